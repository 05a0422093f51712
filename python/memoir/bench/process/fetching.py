# SPDX-License-Identifier: Apache-2.0
"""Allocators that this machine lacks, as shared objects in the user's cache: from the system's packages, or built here
from a source whose checksum is pinned.

    memoir doctor --get snmalloc,rpmalloc

Nothing is installed and no rights are needed. A package is downloaded by the system's own tool, which verifies it, and
taken apart. A source is a crate, fetched by cargo, that carries the allocator's own C or C++ files; its checksum must be
the one below. What was built is remembered with its own checksum, and checked whenever it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Record, make_folder, read_beside, read_regular, write_new, write_output

_OPTIMISED = ("-O3", "-DNDEBUG", "-fPIC", "-shared", "-ftls-model=initial-exec")
_JEMALLOC = "5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8"
_TIMEOUT = 3600.0  # seconds of one step; on a busy machine jemalloc takes a quarter of an hour


@dataclass(frozen=True)
class Crate:
    """A source that a registry of Rust packages carries, and how to make a shared object of it."""

    name: str
    version: str
    checksum: str  # SHA-256 of the crate's file
    folder: str  # within it, where the commands run
    commands: tuple[tuple[str, ...], ...]  # {out} is the library to make
    library: str
    needs: tuple[str, ...]  # programs


@dataclass(frozen=True)
class Source:
    package: str | None = None  # of Debian and its kin
    crate: Crate | None = None
    why_none: str = ""  # where neither is known


SOURCES = {
    "jemalloc": Source(
        "libjemalloc2",
        Crate(
            "tikv-jemalloc-sys",
            f"0.7.1+{_JEMALLOC}",
            "1a2825c78386b4ae0314074867860ba9577875de945f05992c38815cbec327f0",
            "jemalloc",
            (
                ("cp", "../configure/configure", "configure"),
                ("sh", "configure", "--disable-doc", "--disable-static", f"--with-version={_JEMALLOC}"),
                ("make", "build_lib_shared"),
                ("cp", "lib/libjemalloc.so.2", "{out}"),
            ),
            "libjemalloc.so.2",
            ("cc", "make"),
        ),
    ),
    "tcmalloc": Source("libtcmalloc-minimal4"),
    "mimalloc": Source(
        "libmimalloc2.0",
        Crate(
            "libmimalloc-sys",
            "0.1.49",
            "6a45a52f43e1c16f667ccfe4dd8c85b7f7c204fd5e3bf46c5b0db9a5c3c0b8e9",
            "c_src/mimalloc/v3",
            (
                ("cc", *_OPTIMISED, "-fvisibility=hidden", "-DMI_MALLOC_OVERRIDE=1", "-DMI_SHARED_LIB=1",
                 "-DMI_SHARED_LIB_EXPORT=1", "-Iinclude", "src/static.c", "-o", "{out}", "-lpthread"),
            ),
            "libmimalloc.so.3",
            ("cc",),
        ),
    ),
    "rpmalloc": Source(
        None,
        Crate(
            "rpmalloc-sys",
            "0.2.3+b097fd0",
            "8d4b7d5e225a53887ee57fcec492eaf114b8e290f7072d035adc6ddd6810b67b",
            "rpmalloc/rpmalloc",
            (
                ("cc", *_OPTIMISED, "-std=gnu11", "-D_GNU_SOURCE", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1",
                 "rpmalloc.c", "-o", "{out}", "-lpthread", "-ldl"),
            ),
            "librpmalloc.so",
            ("cc",),
        ),
    ),
    "snmalloc": Source(
        None,
        Crate(
            "snmalloc-sys",
            "0.7.6",
            "f09c93c55f9a2b8dab75738a83c771231c5f408af65b8657433fe5bc93cc76cb",
            "upstream",
            (
                ("c++", *_OPTIMISED, "-std=c++20", "-mcx16", "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1", "-Isrc",
                 "src/snmalloc/override/malloc.cc", "src/snmalloc/override/new.cc", "-o", "{out}",
                 "-static-libstdc++", "-static-libgcc", "-lpthread"),
            ),
            "libsnmallocshim.so",
            ("c++",),
        ),
    ),
    "mesh": Source(why_none="no distribution and no package registry carries it; build github.com/plasma-umass/Mesh"),
    "hoard": Source(why_none="no distribution and no package registry carries it; build github.com/emeryberger/Hoard"),
}  # fmt: skip


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "memoir" / "allocators"


def cached(name: str) -> Path | None:
    """The library that get() left for this user. Raises memoir.Error when it is not what get() left."""
    folder = cache() / name
    try:
        about = json.loads(read_beside(folder / "about.json", 1 << 20))
        library = folder / str(about["library"])
        content = read_regular(library)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if hashlib.sha256(content).hexdigest() != about.get("sha256"):
        raise Error(
            f"{library} has changed since it was installed: remove {folder}, then memoir doctor --get {name}"
        )
    return library


def described(library: Path) -> str | None:
    """What a library of the cache was made of; None for any other."""
    try:
        about = json.loads((library.parent / "about.json").read_text())
    except (OSError, ValueError):
        return None
    return about.get("package") or f"{about.get('crate')} {about.get('version')}"


def get(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Brings an allocator into the cache; the library's path. Raises memoir.Error with the reason when that fails."""
    if name not in SOURCES:
        raise Error(f"--get {name}: use {', '.join(SOURCES)}")
    source, reasons = SOURCES[name], []
    ways: list[tuple[str, Callable[[Path], tuple[Path, Record]]]] = []
    if package := source.package:
        ways.append((f"package {package}", lambda folder: _from_package(package, folder)))
    if crate := source.crate:
        ways.append((f"crate {crate.name} {crate.version}", lambda folder: _from_crate(crate, folder)))
    for what, bring in ways:
        say(f"{name}: {what}")
        with tempfile.TemporaryDirectory(prefix="memoir-get-") as folder:
            try:
                library, about = bring(Path(folder))
                return _keep(name, library, about)
            except Error as error:
                reasons.append(f"{what}: {error}")
    raise Error(f"{name} is not available here: {'; '.join(reasons) or source.why_none}")


def _keep(name: str, library: Path, about: Record) -> Path:
    """Puts a library that works into the cache."""
    _check(library)
    folder = cache() / name
    try:
        make_folder(folder)
        kept = folder / library.name
        content = read_regular(library)
        write_output(kept, content, force=True)
        about = {**about, "library": kept.name, "sha256": hashlib.sha256(content).hexdigest()}
        write_output(folder / "about.json", (json.dumps(about, indent=1) + "\n").encode(), force=True)
    except OSError as error:
        raise Error(f"{folder}: cannot be written: {error.strerror}") from None
    return kept


_WHO = """
import ctypes
at = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
for line in open("/proc/self/maps"):
    first, last = (int(end, 16) for end in line.split()[0].split("-"))
    if first <= at < last:
        print(line.split(maxsplit=5)[-1].strip())
"""


def _check(library: Path) -> None:
    """A program must run with it, without the loader's complaints, and its malloc must be the library's."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _WHO],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    if done.returncode != 0 or done.stderr:
        raise Error(f"no program runs with it: {done.stderr.strip()[:200] or done.returncode}")
    if os.path.realpath(done.stdout.strip()) != os.path.realpath(library):
        raise Error(f"it has no malloc that programs can use: {done.stdout.strip()[:200]} serves them")


def _from_package(package: str, folder: Path) -> tuple[Path, Record]:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Error(f"no {tool} here")
    _run(["apt-get", "download", package], folder)
    archive = next(iter(folder.glob("*.deb")), None)
    if archive is None:
        raise Error("nothing was downloaded")
    _run(["dpkg-deb", "-x", str(archive), "content"], folder)
    libraries = [
        path
        for path in (folder / "content").rglob("lib*.so*")
        if path.is_file() and not path.is_symlink() and "debug" not in path.name
    ]
    if not libraries:
        raise Error("there is no library in it")
    return min(libraries, key=lambda path: len(path.name)), {"package": archive.name}


def _from_crate(crate: Crate, folder: Path) -> tuple[Path, Record]:
    for tool in ("cargo", *crate.needs):
        if shutil.which(tool) is None:
            raise Error(f"no {tool} here")
    make_folder(folder / "src")
    write_new(folder / "src" / "main.rs", b"fn main() {}\n")
    manifest = (
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\n{crate.name} = "={crate.version.split("+")[0]}"\n'
    )
    write_new(folder / "Cargo.toml", manifest.encode())
    _run(["cargo", "vendor", "--quiet", "vendor"], folder)
    source = folder / "vendor" / crate.name
    try:
        checksum = json.loads((source / ".cargo-checksum.json").read_text())["package"]
    except (OSError, ValueError, KeyError):
        raise Error("cargo left no checksum") from None
    if checksum != crate.checksum:
        raise Error(f"its checksum is {checksum}, not {crate.checksum}")
    out = folder / crate.library
    for command in crate.commands:
        _run([word.replace("{out}", str(out)) for word in command], source / crate.folder)
    if not out.is_file():
        raise Error("the build made no library")
    return out, {"crate": crate.name, "version": crate.version, "checksum": crate.checksum}


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT,
            errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Error(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        raise Error(
            f"{command[0]} ended with {done.returncode}: {(errors or lines or ['it said nothing'])[0][:200]}"
        )
