# SPDX-License-Identifier: Apache-2.0
"""Allocators by name: where distributions put them, what brings them, and how a command line names them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoir import malloc
from memoir._core import Error, __version__
from memoir.base.files import Record
from memoir.bench.process import fetching


@dataclass(frozen=True)
class Known:
    """An allocator that people know by name."""

    libraries: tuple[str, ...]  # file names, the preferred first; a trailing * stands for any version
    package: str  # what brings it
    version: str | None = (
        None  # an expression over `library`, the process's own symbols, that gives a version
    )


_MALLCTL = (
    "(lambda p: (library.mallctl(b'version', ctypes.byref(p), ctypes.byref(ctypes.c_size_t(8)), None, 0),"
    " p.value.decode().split('-')[0])[1])(ctypes.c_char_p())"
)
_TC_VERSION = (
    "(setattr(library.tc_version, 'restype', ctypes.c_char_p), library.tc_version(*[None] * 3))[1].decode()"
)
_MI_VERSION = "'.'.join(str(library.mi_version()))"

KNOWN = {
    "jemalloc": Known(
        ("libjemalloc.so.2", "libjemalloc.so*"),
        "apt-get install libjemalloc2 | dnf install jemalloc",
        _MALLCTL,
    ),
    "tcmalloc": Known(
        ("libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so*", "libtcmalloc.so*"),
        "apt-get install libtcmalloc-minimal4 | dnf install gperftools-libs",
        _TC_VERSION,
    ),
    "mimalloc": Known(
        ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so*"),
        "apt-get install libmimalloc2.0 | dnf install mimalloc",
        _MI_VERSION,
    ),
    "hoard": Known(("libhoard.so*",), "no package: build github.com/emeryberger/Hoard"),
    "mesh": Known(("libmesh.so*",), "no package: build github.com/plasma-umass/Mesh"),
    "rpmalloc": Known(("librpmallocwrap.so*", "librpmalloc.so*"), "no package: memoir doctor --get rpmalloc"),
    "snmalloc": Known(
        ("libsnmallocshim.so*", "libsnmallocshim-checks.so*"),
        "no package: memoir doctor --get snmalloc",
    ),
}
SYSTEM = "system"
OWN = "memoir"  # comes with this package
NAMES = (SYSTEM, OWN, *KNOWN)

_NAME = re.compile(r"[a-z][A-Za-z0-9_.+-]*")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True)
class Allocator:
    """One competitor: a library to preload (None: the C library's own malloc) and variables that tune it."""

    name: str
    library: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> Record:
        return {
            "name": self.name,
            "library": None if self.library is None else str(self.library),
            "environment": dict(self.environment),
        }


@functools.cache
def find(name: str) -> Path | None:
    """The library of a known allocator, or None when this machine has none."""
    if name == OWN:
        with contextlib.suppress(Error):
            return malloc.library()
        return None
    known = KNOWN[name]
    folders = _library_folders()
    for pattern in known.libraries:
        for folder in folders:
            matches = sorted(folder.glob(pattern), key=lambda path: (len(path.name), path.name))
            if matches:
                return matches[0]
    return fetching.cached(name)


@functools.cache
def c_library() -> Path:
    """The C library that this process runs on: what `system` means."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.fullmatch(r"libc(\.so\.6|-[0-9.]+\.so|\.musl-\w+\.so\.1)", Path(path).name):
            return Path(path)
    return Path("libc.so.6")


@functools.cache
def version(name: str, library: Path | None) -> str:
    """A version for people to read, asked of the library itself if it can tell; else its file's name."""
    if library is None:
        return f"glibc {(os.confstr('CS_GNU_LIBC_VERSION') or '').split()[-1]}" if _glibc() else "C library"
    if library.name == "libmemoir_malloc.so":
        return f"memoir {__version__}"
    for known_name, known in KNOWN.items():
        if known.version is None or not _serves(library, known):
            continue
        code = f"import ctypes; library = ctypes.CDLL(None); print({known.version})"
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
        )
        if answer.returncode == 0 and answer.stdout.strip():
            return f"{known_name} {answer.stdout.strip()}"
    return fetching.described(library) or library.resolve().name


def parse(text: str) -> list[Allocator]:
    """Reads `system,jemalloc,name=path.so,ENV=VALUE,...`; variables belong to the allocator before them.

    A value's own commas are kept when the next part looks like one of its options (`a:1,b:2`, as in
    MALLOC_CONF).
    Raises memoir.Error for an unknown name, a missing file, a repeated name.
    """
    found: list[Allocator] = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not part:
            raise Error(f"allocators {text!r}: an empty name; separate them by single commas")
        if equals and _VARIABLE.fullmatch(key):
            if not found:
                raise Error(f"allocators {text!r}: {part} comes before any allocator")
            found[-1] = _with_variable(found[-1], key, value)
        elif not equals and ":" in part and found and found[-1].environment:
            key, value = found[-1].environment[-1]
            found[-1] = _with_variable(found[-1], key, f"{value},{part}")
        else:
            name, what = (key, value) if equals else (part, part)
            found.append(_named(name, what, bool(equals)))
    names = [allocator.name for allocator in found]
    for name in names:
        if names.count(name) > 1:
            raise Error(
                f"allocator {name} is named twice: give one of them a name of its own, as in {name}2={name}"
            )
    return found


def from_dict(entry: Record) -> Allocator:
    """The inverse of Allocator.to_dict()."""
    library = entry["library"]
    return Allocator(
        entry["name"], None if library is None else Path(library), tuple(entry["environment"].items())
    )


def _named(name: str, what: str, renamed: bool) -> Allocator:
    if renamed and not _NAME.fullmatch(name):
        raise Error(f"allocator name {name!r}: use small letters, digits and _ . + -")
    if what == SYSTEM:
        return Allocator(name)
    if what == OWN:
        return Allocator(name, malloc.library())
    if what in KNOWN:
        library = find(what)
        if library is None:
            raise Error(
                f"allocator {what} was not found on this machine: {KNOWN[what].package}; "
                f"or memoir doctor --get {what}"
            )
        return Allocator(name, library)
    if not renamed:
        raise Error(f"unknown allocator {name!r}: use {', '.join(NAMES)}, or name=path.so")
    path = Path(what).expanduser()
    if not path.is_file():
        raise Error(f"allocator {name}: no file {what}")
    if any(letter in str(path.absolute()) for letter in ": "):
        raise Error(f"allocator {name}: {path} has a space or a colon in it, which LD_PRELOAD cannot name")
    _check_shared_object(name, path)
    return Allocator(name, path.absolute())


def _with_variable(allocator: Allocator, key: str, value: str) -> Allocator:
    variables = {**dict(allocator.environment), key: value}
    return Allocator(allocator.name, allocator.library, tuple(variables.items()))


def _check_shared_object(name: str, path: Path) -> None:
    header, own = path.read_bytes()[:20], Path(sys.executable).read_bytes()[:20]
    if len(header) < 20 or header[:4] != b"\x7fELF":
        raise Error(f"allocator {name}: {path} is not a shared library (no ELF header)")
    if header[4:6] != own[4:6] or header[18:20] != own[18:20]:
        raise Error(f"allocator {name}: {path} is built for another kind of processor")
    if struct.unpack_from("<H", header, 16)[0] != 3:
        raise Error(f"allocator {name}: {path} is not a shared library")


def _library_folders() -> list[Path]:
    triple = f"{os.uname().machine}-linux-gnu"
    folders = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    folders += [Path("/usr/local/lib", triple), Path("/usr/local/lib"), Path("/usr/local/lib64")]
    folders += [
        Path("/usr/lib", triple),
        Path("/usr/lib64"),
        Path("/usr/lib"),
        Path("/lib", triple),
        Path("/lib"),
    ]
    folders += sorted(Path("/opt").glob("*/lib*")) + [Path.home() / ".local/lib"]
    return [folder for folder in folders if folder.is_dir()]


def _serves(library: Path, known: Known) -> bool:
    stems = {pattern.split(".so")[0] for pattern in known.libraries}
    return any(library.resolve().name.startswith(stem) or library.name.startswith(stem) for stem in stems)


def _glibc() -> bool:
    return "CS_GNU_LIBC_VERSION" in os.confstr_names


def describe(allocators: Sequence[Allocator]) -> list[Record]:
    """What a results file keeps of each: name, library, variables, version."""
    return [{**one.to_dict(), "version": version(one.name, one.library)} for one in allocators]
