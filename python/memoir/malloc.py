# SPDX-License-Identifier: Apache-2.0
"""memoir's malloc, for any program: where its library is, what it can be told, and a program's environment with it.

import subprocess, memoir.malloc
subprocess.run(["./server"], env=memoir.malloc.environment({"tau": "2"}))
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoir import _core
from memoir._core import Error
from memoir.base.files import read_regular

VARIABLE = "MEMOIR_MALLOC"
_FIGURE = re.compile(r"[a-z][a-z0-9_]{0,63}")  # a figure's name: it becomes a name of Prometheus'


@dataclass(frozen=True)
class Setting:
    """One setting of the malloc: its unit is "flag", "share" or "bytes"."""

    name: str
    unit: str
    initial: str
    help: str


def library(secure: bool = False) -> Path:
    """libmemoir_malloc.so, to be preloaded or linked; with `secure`, libmemoir_malloc_secure.so, which ends a program
    that misuses the heap.

    Raises memoir.Error when it was not built.
    """
    name = "libmemoir_malloc_secure.so" if secure else "libmemoir_malloc.so"
    path = Path(_core.__file__).parent / "bin" / name
    if not path.exists():
        raise Error(f"{path.name} is missing next to the package's compiled core: build it again (make dev)")
    return path


@functools.cache
def settings() -> dict[str, Setting]:
    """The settings that MEMOIR_MALLOC takes, from the one list in the library itself."""
    describe = ctypes.CDLL(str(library()), mode=os.RTLD_LOCAL).memoir_malloc_settings
    describe.restype = ctypes.c_char_p
    rows = (line.split("\t") for line in describe().decode().splitlines())
    return {row[0]: Setting(*row) for row in rows}


def asks_for_checks(chosen: Mapping[str, str]) -> bool:
    """Whether these settings are for the library that library(secure=True) names."""
    return chosen.get("secure", "false") in ("1", "true", "yes", "on")


def environment(
    chosen: Mapping[str, str] | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of `base` (this process's own) with the malloc in front of whatever is preloaded.

    chosen: settings by name; they follow those that `base` has, and the last one counts. `secure` chooses the library.
    Raises memoir.Error for a setting that does not exist.
    """
    for name in chosen or {}:
        if name not in settings():
            raise Error(f"no setting {name!r} of the malloc: use {', '.join(settings())}")
    result = dict(os.environ if base is None else base)
    words = [f"{name}={value}" for name, value in (chosen or {}).items()]
    text = ",".join(filter(None, [result.get(VARIABLE), *words]))
    pairs = (part.partition("=") for part in text.split(","))
    path = library(asks_for_checks({name: value if equals else "true" for name, equals, value in pairs}))
    if any(letter in str(path) for letter in ": "):
        raise Error(f"{path} has a space or a colon in it, which LD_PRELOAD cannot name")
    mallocs = {str(path.parent / f"libmemoir_malloc{kind}.so") for kind in ("", "_secure")}
    others = [one for one in result.get("LD_PRELOAD", "").split(":") if one and one not in mallocs]
    result["LD_PRELOAD"] = ":".join([str(path), *others])
    if words:
        result[VARIABLE] = text
    return result


# --- a running process ---


def figures(pid: int) -> dict[str, int]:
    """The figures that the malloc of a running process publishes, by name: bytes, counts. Reads the process's memory.

    Raises memoir.Error when there is no such process, when it has another malloc, may not be read, or has no figures
    yet.
    """
    places = _exported(pid, _mappings(pid), "memoir_malloc_figures", "memoir_malloc_figure_names")
    with _memory(pid) as memory:
        return _stable_figures(memory, pid, *places)


@dataclass(frozen=True)
class LiveSite:
    """A call that asked for memory which is still held. Bytes are estimates, from samples."""

    function: (
        str  # whose code asked, what it calls of a standard library inline folded; "" where it has no name
    )
    file: str  # its source, "" where that is not known
    line: int  # in it, 0: not known
    module: str  # the file that the call is in, "" for code that lies in no file
    offset: int  # of the return address in the module
    live: int  # bytes
    old: int  # of these, in objects that count as long-lived
    samples: int  # that the estimate is made of


def sites(pid: int) -> list[LiveSite]:
    """Who holds memory in a running process, long-lived objects first; at most 32. Empty before there are samples.

    Raises memoir.Error as figures() does.
    """
    mappings = _mappings(pid)
    (place,) = _exported(pid, mappings, "memoir_malloc_sites")
    with _memory(pid) as memory:
        rows = _stable_sites(memory, pid, place)
    found = [(_place_in_module(caller, mappings), live, old, samples) for caller, live, old, samples in rows]
    names = _names({where for where, *_ in found})
    return [LiveSite(*names[where], *where, *numbers) for where, *numbers in found]


@dataclass(frozen=True)
class _Mapping:
    begin: int
    end: int
    file_offset: int
    path: str


def _mappings(pid: int) -> list[_Mapping]:
    try:
        content = Path(f"/proc/{pid}/maps").read_bytes()
    except PermissionError:
        raise Error(f"process {pid} belongs to another user") from None
    except OSError:
        raise Error(f"there is no process {pid}") from None
    found = []
    # Names are bytes of any kind; the kernel writes a line's end in one as \\012.
    for fields in (line.split(None, 5) for line in content.split(b"\n") if line):
        begin, end = (int(part, 16) for part in fields[0].split(b"-"))
        name = os.fsdecode(fields[5].replace(b"\\012", b"\n")) if len(fields) == 6 else ""
        found.append(_Mapping(begin, end, int(fields[2], 16), name))
    return found


def _exported(pid: int, mappings: list[_Mapping], *names: str) -> list[int]:
    """Where the process's malloc has these."""
    for mapping in mappings:
        if mapping.file_offset == 0 and "libmemoir_malloc" in Path(mapping.path).name:
            break
    else:
        raise Error(f"process {pid} has another malloc: start it with memoir run")
    symbols = _dynamic_symbols(Path(mapping.path))
    try:
        return [mapping.begin + symbols[name] for name in names]
    except KeyError:
        raise Error(f"{mapping.path}: a malloc of another version, which publishes no figures") from None


@contextlib.contextmanager
def _memory(pid: int) -> Iterator[io.FileIO]:
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            yield memory
    except OSError as error:
        raise Error(f"the memory of process {pid} cannot be read: {error.strerror}") from None
    except (struct.error, OverflowError, ValueError):  # addresses of its own making
        raise Error(f"the memory of process {pid} cannot be read: it ends too early") from None


def _stable_sites(memory: io.FileIO, pid: int, place: int) -> list[tuple[int, int, int, int]]:
    row = struct.Struct("<4Q")
    for _ in range(100):
        memory.seek(place)
        version, count, changes = struct.unpack("<3Q", memory.read(24))
        if version != 1 or count > 32:
            raise Error(f"process {pid}: sites of version {version}, which this memoir does not know")
        rows = list(row.iter_unpack(memory.read(row.size * count)))
        memory.seek(place + 16)
        if changes % 2 == 0 and memory.read(8) == changes.to_bytes(8, "little"):
            break
        time.sleep(0.001)
    return rows


def _place_in_module(address: int, mappings: list[_Mapping]) -> tuple[str, int]:
    """The file that an address of the process is in, and where in it as its symbol table counts."""
    for mapping in mappings:
        if mapping.begin <= address < mapping.end:
            break
    else:
        return "", address
    if not mapping.path.startswith("/"):
        return mapping.path, address - mapping.begin
    try:
        head = read_regular(mapping.path, 18)
        fixed = head[16:18] == b"\x02\x00"  # ET_EXEC: addresses in the file are those in memory
    except OSError:
        fixed = False
    bases = [one.begin for one in mappings if one.path == mapping.path and one.file_offset == 0]
    return mapping.path, address if fixed else address - min(
        bases, default=mapping.begin - mapping.file_offset
    )


_Asked = tuple[str, str, int]  # function, file, line
_known: dict[tuple[str, int], _Asked] = {}  # what was found: symbol tables are slow to read


def _names(places: set[tuple[str, int]]) -> dict[tuple[str, int], _Asked]:
    """Who asked at these places; no function where their files have no names."""
    from memoir.record.name_reader import Line, NameReader

    offsets: dict[str, set[int]] = {}
    for module, offset in places - _known.keys():
        offsets.setdefault(module, set()).add(offset)
    with NameReader() as reader:
        for module, some in offsets.items():
            lines: dict[int, list[Line]] = {}
            if module.startswith("/"):
                with contextlib.suppress(Error):  # a file that is gone, or is not ELF
                    lines, _ = reader.find_lines(Path(module), "", some)
            for offset in some:
                _known[module, offset] = _who_asked(lines.get(offset, ()), module)
    return {place: _known[place] for place in places}


def _who_asked(frames: Sequence[_Asked], module: str) -> _Asked:
    """Of the functions that one place is in, each inside the next, the innermost of the program's own."""
    from memoir.traces.code_names import function_name
    from memoir.traces.own_code import owner_of

    named = [(function_name(function), file, line) for function, file, line in frames if function]
    return min(named, key=lambda frame: owner_of(frame[0], frame[1], module), default=("", "", 0))


def _stable_figures(memory: io.FileIO, pid: int, numbers: int, names: int) -> dict[str, int]:
    for _ in range(100):
        memory.seek(numbers)
        version, count, changes = struct.unpack("<3Q", memory.read(24))
        if version != 1 or count > 160:
            raise Error(f"process {pid}: figures of version {version}, which this memoir does not know")
        values = struct.unpack(f"<{count}Q", memory.read(8 * count))
        memory.seek(numbers + 16)
        if changes % 2 == 0 and memory.read(8) == changes.to_bytes(8, "little"):
            break
        time.sleep(0.001)
    if changes == 0:
        raise Error(f"process {pid} has no figures yet: heaps below background_from (16 MiB) publish none")
    memory.seek(names)
    words = memory.read(2048).split(b"\0", 1)[0].decode("ascii", "replace").split()
    if len(set(words)) != len(words) or not all(map(_FIGURE.fullmatch, words)):
        raise Error(f"process {pid}: the names of its figures are not those of memoir's malloc")
    return dict(zip(words, values, strict=False))


def _dynamic_symbols(path: Path) -> dict[str, int]:
    """The addresses of a shared object's exported names, from its beginning."""
    from memoir.record.elf import ElfFile

    try:
        with ElfFile(path) as file:
            return {symbol.name: symbol.value for symbol in file.symbols(dynamic=True)}
    except (OSError, Error) as error:
        raise Error(f"{path}: its names cannot be read: {error}") from None
