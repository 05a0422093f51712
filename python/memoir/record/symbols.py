# SPDX-License-Identifier: Apache-2.0
"""Names for the return addresses of native traces: functions, files and lines, with what was inlined.

The debug information is read by `symbolic` (pip install 'memoir-alloc[symbols]'); without it, the symbol tables of the
modules themselves give function names. docs/decisions/symbolic-reads-debug-information.md says why."""

from __future__ import annotations

import bisect
import ctypes
import functools
import importlib
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoir._core import Trace, add_symbols
from memoir.record import debuginfod

Line = tuple[str, str, int]  # function, file, line; "" and 0: unknown
_DEBUG_FOLDERS = (Path("/usr/lib/debug"),)
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")


@dataclass(frozen=True)
class Named:
    """What became of one module."""

    path: str
    addresses: int
    named: int
    why: str  # "" or what is missing


def symbolize(trace: str | os.PathLike[str], servers: Sequence[str] = ()) -> list[Named]:
    """Finds the names of all native frames of a trace and stores them in it. Returns a row for each module. `servers`:
    URLs of debuginfod servers, which are asked for what is not on this machine.

    Raises memoir.Error for a trace that cannot be written to, or is still recorded.
    """
    opened = Trace.open(trace)
    modules = {module["path"]: module for module in opened.modules}
    rows: list[tuple[int, int, list[Line]]] = []
    said = []
    for path, offsets in sorted(_addresses(opened).items()):
        module = modules.get(path)
        if module is None:
            continue
        found, why = find_lines(Path(path), module["build_id"], offsets, servers)
        rows += [(module["id"], offset, lines) for offset, lines in found.items()]
        said.append(Named(path, len(offsets), len(found), why))
    if rows:
        add_symbols(trace, rows)
    return said


def find_lines(
    path: Path, build_id: str, offsets: Iterable[int], servers: Sequence[str] = ()
) -> tuple[dict[int, list[Line]], str]:
    """Return addresses of a module that have names, with their lines, inlined functions first; and what is missing."""
    finder, why = _finder(path, build_id, servers)
    if finder is None:
        return {}, why
    # A return address is one behind its call.
    found = {offset: finder(offset - 1) for offset in sorted(offsets)}
    return {offset: lines for offset, lines in found.items() if lines}, why


def _addresses(trace: Trace) -> dict[str, set[int]]:
    """By module, the offsets that stacks of the trace have."""
    result: dict[str, set[int]] = {}
    for site in set(trace.events["site"].tolist()):
        for frame in trace.site_frames(site):
            if frame["module"]:
                result.setdefault(frame["module"], set()).add(frame["offset"])
    return result


def _finder(path: Path, build_id: str, servers: Sequence[str]) -> tuple[Any, str]:
    """A function from an offset to its lines, or None; and what is missing."""
    file, why = _debug_file(path, build_id)
    if servers and (file is None or (file == path and not _section(path, ".debug_info"))):
        fetched, refused = debuginfod.fetch(build_id, servers)
        if fetched is not None and _build_id(fetched) == build_id:
            path = path if file is not None else fetched
            file = fetched
        elif fetched is not None:
            why = _both(why, f"{fetched} is not its debug file: remove that to ask the servers again")
        else:
            why = _both(why, refused)
    if file is None:
        return None, why
    try:
        symbolic: Any = importlib.import_module("symbolic")
    except ImportError:
        return _SymbolTable(path, file).lines, "pip install symbolic gives files, lines and inlined functions"
    try:
        found = next(iter(symbolic.Archive.open(str(file)).iter_objects()))
        cache = found.make_symcache()
    except (symbolic.SymbolicError, StopIteration, OSError) as error:
        return _SymbolTable(path, file).lines, f"its debug information cannot be read: {error}"
    table = _SymbolTable(path, file)

    def lines(offset: int) -> list[Line]:
        located = cache.lookup(offset)
        if not located:
            return table.lines(offset)
        return [(demangle(one.symbol), one.full_path or "", one.line or 0) for one in located]

    return lines, why


def _both(one: str, other: str) -> str:
    return f"{one}; {other}" if one and other else one or other


def _debug_file(path: Path, build_id: str) -> tuple[Path | None, str]:
    """The file with the debug information of a module: its own, or one that was split off."""
    if not path.is_file():
        return None, "the file is gone"
    own = _build_id(path)
    if build_id and own != build_id:
        return None, "the file is another build now"
    for folder in _DEBUG_FOLDERS:
        split = folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        if build_id and split.is_file():
            return split, ""
    link = _section(path, ".gnu_debuglink").split(b"\0", 1)[0].decode(errors="replace")
    if link and "/" not in link:
        for folder in (
            path.parent,
            path.parent / ".debug",
            *(d / str(path.parent)[1:] for d in _DEBUG_FOLDERS),
        ):
            if (folder / link).is_file() and _build_id(folder / link) == own:
                return folder / link, ""
    return path, ""


def demangle(name: str) -> str:
    """A C++ or Rust name as people write it; other names as they are."""
    if name.startswith("_R"):
        try:
            rust: Any = importlib.import_module("rust_demangler")
        except ImportError:
            return name
        try:
            return str(rust.demangle(name))
        except Exception:  # what it raises for names that are none is not documented
            return name
    if not name.startswith("_Z"):
        return name
    function = _cxa_demangle()
    status = ctypes.c_int(0)
    text = function(name.encode(), None, None, ctypes.byref(status)) if function else None
    if not text:
        return name
    try:
        return _RUST_HASH.sub("", ctypes.string_at(text).decode(errors="replace"))
    finally:
        _free()(text)


@functools.cache
def _cxa_demangle() -> Any:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


@functools.cache
def _free() -> Any:
    function = ctypes.CDLL(None).free
    function.argtypes = [ctypes.c_void_p]
    function.restype = None
    return function


class _SymbolTable:
    """Functions by the symbol tables that loaders and linkers use; sizes say where one ends."""

    def __init__(self, *paths: Path):
        rows = {}
        for path in dict.fromkeys(paths):
            for kind in (11, 2):  # SHT_DYNSYM, SHT_SYMTAB
                for name, value, size in _symbols(path, kind):
                    rows[value] = (size, name)
        self.starts = sorted(rows)
        self.rows = rows

    def lines(self, offset: int) -> list[Line]:
        index = bisect.bisect_right(self.starts, offset) - 1
        if index < 0:
            return []
        size, name = self.rows[self.starts[index]]
        return [(demangle(name), "", 0)] if offset - self.starts[index] < max(size, 1) else []


def _sections(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and header of each section of a 64-bit little-endian ELF file; nothing of other files."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return
        (offset,) = struct.unpack_from("<Q", head, 40)
        size, number, names_index = struct.unpack_from("<HHH", head, 58)
        file.seek(offset)
        table = file.read(size * number)
        if size != 64 or len(table) < size * number or names_index >= number:
            return
        headers = list(struct.iter_unpack("<IIQQQQIIQQ", table))
        file.seek(headers[names_index][4])
        names = file.read(min(headers[names_index][5], 1 << 20))
    for header in headers:
        yield names[header[0] : names.find(b"\0", header[0])].decode(errors="replace"), header


def _read(path: Path, header: Iterable[int]) -> bytes:
    row = tuple(header)
    if row[1] == 8:  # SHT_NOBITS
        return b""
    with path.open("rb") as file:
        file.seek(row[4])
        return file.read(min(row[5], 1 << 28))


def _section(path: Path, wanted: str) -> bytes:
    return next((_read(path, header) for name, header in _sections(path) if name == wanted), b"")


def _symbols(path: Path, kind: int) -> Iterator[tuple[str, int, int]]:
    headers = [header for _, header in _sections(path)]
    for header in headers:
        if header[1] != kind or header[6] >= len(headers):
            continue
        names = _read(path, headers[header[6]])
        data = _read(path, header)
        for name, info, _, section, value, size in struct.iter_unpack(
            "<IBBHQQ", data[: len(data) // 24 * 24]
        ):
            if info & 15 in (2, 10) and section != 0 and value != 0:  # functions, indirect ones too
                yield names[name : names.find(b"\0", name)].decode(errors="replace"), value, size


def _build_id(path: Path) -> str:
    note = _section(path, ".note.gnu.build-id")
    if len(note) < 16:
        return ""
    name, size, _ = struct.unpack_from("<III", note)
    begin = 12 + (name + 3) // 4 * 4
    return note[begin : begin + size].hex()
