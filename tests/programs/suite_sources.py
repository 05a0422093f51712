# SPDX-License-Identifier: Apache-2.0
"""Where the sources of suites come from: Debian's source packages, and cargo's crates."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from suites import Suite

COMMANDS = Path(__file__).with_name("suites.sh")


def fetch(name: str, suite: Suite, folder: Path) -> Path:
    """The suite's source, unpacked and prepared."""
    source, done = folder / "sources" / name, folder / "sources" / f"{name}.ready"
    if done.exists():
        return source
    shutil.rmtree(source, ignore_errors=True)
    if suite.source:
        unpack_debian(suite.source, source, folder)
    elif suite.crate:
        unpack_crate(suite.crate, source, folder)
    else:
        source.mkdir(parents=True)
    if suite.prepares:
        with open(folder / f"{name}.prepare.log", "w") as log:
            subprocess.run(
                ["bash", str(COMMANDS), f"prepare_{name}"],
                cwd=source,
                env={**os.environ, "SOURCE": str(source)},
                stdout=log,
                check=True,
            )
    done.touch()
    return source


def unpack_debian(package: str, source: Path, folder: Path) -> None:
    """By apt-get, with lists of its own: those of the machine need no lines for sources. Security updates are left out."""
    apt = folder / "apt"
    if not (apt / "ready").exists():
        shutil.rmtree(apt, ignore_errors=True)
        (apt / "lists" / "partial").mkdir(parents=True)
        (apt / "parts").mkdir()
        for file in Path("/etc/apt/sources.list.d").glob("*.sources"):
            kept = [part for part in file.read_text().split("\n\n") if "security" not in part]
            (apt / "parts" / file.name).write_text(
                "\n\n".join(kept).replace("Types: deb\n", "Types: deb-src\n")
            )
        lines = (
            Path("/etc/apt/sources.list").read_text().splitlines()
            if Path("/etc/apt/sources.list").exists()
            else []
        )
        listed = [
            f"deb-src{line[3:]}\n" for line in lines if line.startswith("deb ") and "security" not in line
        ]
        (apt / "sources.list").write_text("".join(listed))
        subprocess.run([*apt_get(apt), "update"], check=True)
        (apt / "ready").touch()
    unpacked = apt / package
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    subprocess.run([*apt_get(apt), "source", package], cwd=unpacked, check=True, stderr=subprocess.DEVNULL)
    source.parent.mkdir(exist_ok=True)
    next(path for path in unpacked.iterdir() if path.is_dir()).rename(source)
    shutil.rmtree(unpacked)


def apt_get(apt: Path) -> list[str]:
    places = {
        "State::lists": apt / "lists",
        "Etc::sourcelist": apt / "sources.list",
        "Etc::sourceparts": apt / "parts",
    }
    return ["apt-get", "-q", *(word for name, at in places.items() for word in ("-o", f"Dir::{name}={at}"))]


def unpack_crate(crate: str, source: Path, folder: Path) -> None:
    """The newest one of that name, by cargo."""
    with_it = folder / "sources" / f"{crate}-vendored"
    shutil.rmtree(with_it, ignore_errors=True)
    subprocess.run(["cargo", "init", "-q", "--name", "vendors", str(with_it)], check=True)
    subprocess.run(["cargo", "add", "-q", crate], cwd=with_it, check=True)
    subprocess.run(["cargo", "vendor", "-q", "all"], cwd=with_it, check=True, stdout=subprocess.DEVNULL)
    (with_it / "all" / crate).rename(source)
    shutil.rmtree(with_it)
