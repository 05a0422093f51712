# SPDX-License-Identifier: Apache-2.0
"""Builds memoir's wheel for this Python, for machines without a compiler.

    .venv/bin/python .ci/wheel.py

The wheel holds memoir.torch once for each minor version of PyTorch that pyproject.toml's extra `torch` allows. Of each its
headers are needed: they come from its package, once, and stay in build/torch. auditwheel names the platform: the oldest
system that has what the wheel asks for.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def supported() -> list[str]:
    """The minor versions that the extra `torch` allows."""
    least, above = re.search(r'"torch>=2\.(\d+),<2\.(\d+)"', (ROOT / "pyproject.toml").read_text()).groups()
    return [f"2.{minor}" for minor in range(int(least), int(above))]


def run(*command) -> None:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, "PATH": path})


def torch_folder(minor: str) -> Path:
    """A folder with include/ and version.py of that torch."""
    folder = ROOT / "build" / "torch" / minor
    if not (folder / "version.py").exists():
        print(f"the headers of torch {minor}: from its package, which is large", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
            run(
                BIN / "uv",
                "pip",
                "install",
                "-q",
                "--python",
                sys.executable,
                "--no-deps",
                "--target",
                unpacked,
                "--require-hashes",
                "-r",
                ROOT / ".ci" / f"torch-{minor}.txt",
            )
            shutil.copytree(Path(unpacked, "torch", "include"), folder / "include", dirs_exist_ok=True)
            shutil.copy(Path(unpacked, "torch", "version.py"), folder)  # last: it says that the rest is there
    return folder


def build(output: Path, settings: dict[str, str]) -> Path:
    """Builds the wheel with these settings of scikit-build, has auditwheel name its platform, leaves it in `output`."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
        run(*pip, *(f"-C{name}={value}" for name, value in settings.items()), "-w", made, ROOT)
        (wheel,) = Path(made).glob("*.whl")
        named = Path(made, "named")
        excluded = [f"--exclude={name}" for name in ("libc10.so", "libtorch_cpu.so")]  # torch brings them
        run(sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", named, wheel)
        return Path(shutil.copy(next(named.iterdir()), output))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="folder for the wheel")
    arguments.add_argument(
        "--installed-torch",
        action="store_true",
        help="for the torch that is here alone, from what make dev compiled",
    )
    arguments.add_argument(
        "--no-torch", action="store_true", help="as pip builds it where no torch is, from the same"
    )
    given = arguments.parse_args()
    settings = {}
    if given.no_torch:
        settings = {"cmake.define.MEMOIR_TORCH_FOLDERS": "none"}
    elif not given.installed_torch:
        settings = {
            "build-dir": "build/wheel/{wheel_tag}",
            "cmake.define.MEMOIR_TORCH_FOLDERS": ";".join(str(torch_folder(minor)) for minor in supported()),
            "cmake.define.CMAKE_CXX_FLAGS": f"-ffile-prefix-map={ROOT}/=",  # messages name files as the checkout does
        }
    print(build(given.output, settings))


if __name__ == "__main__":
    main()
