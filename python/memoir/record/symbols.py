# SPDX-License-Identifier: Apache-2.0
"""Names for the return addresses of native traces: functions, files and lines, with what was inlined.

The debug information is read by `symbolic`; without it, the symbol tables of the modules themselves give function names.
docs/decisions/symbolic-reads-debug-information.md says why."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memoir._core import Error, Trace, add_symbols
from memoir.record import debuginfod
from memoir.record.elf import ElfFile, name_at

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
        try:
            found, why = find_lines(Path(path), module["build_id"], offsets, servers)
        except (OSError, Error) as error:  # one that cannot be read; the others have names all the same
            found, why = {}, f"cannot be read: {getattr(error, 'strerror', None) or error}"
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
    if servers and (file is None or (file == path and not _has_debug_information(path))):
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
    """The file with the debug information of a module: its own, or one that was split off. Only ELF files of the build
    that the trace names are opened further: it is the trace that says which files."""
    if not path.is_file():
        return None, "the file is gone" if not path.exists() else "it is no regular file"
    try:
        with ElfFile(path) as file:
            own, link = file.build_id, name_at(file.content(".gnu_debuglink"), 0)
    except Error as error:
        return None, str(error).removeprefix(f"{path}: ")
    if build_id and own != build_id:
        return None, "the file is another build now"
    for folder in _DEBUG_FOLDERS:
        split = folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        if build_id and split.is_file():
            return split, ""
    if link and "/" not in link:
        for folder in (
            path.parent,
            path.parent / ".debug",
            *(d / str(path.parent)[1:] for d in _DEBUG_FOLDERS),
        ):
            if (folder / link).is_file() and _build_id(folder / link) == own:
                return folder / link, ""
    return path, ""


def _build_id(path: Path) -> str:
    """ "" for what has none, or is no ELF file."""
    with contextlib.suppress(Error, OSError), ElfFile(path) as file:
        return file.build_id
    return ""


def _has_debug_information(path: Path) -> bool:
    with contextlib.suppress(Error, OSError), ElfFile(path) as file:
        return file.has(".debug_info")
    return False


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
        self._texts: list[bytes] = []
        parts = []
        for path in dict.fromkeys(paths):
            with contextlib.suppress(Error, OSError), ElfFile(path) as file:
                for dynamic in (True, False):
                    for rows, names in file.tables(dynamic=dynamic):
                        kept = rows[_is_function(rows)]
                        parts.append((kept["value"], kept["size"], kept["name"], len(self._texts)))
                        self._texts.append(names)
        columns = [
            np.concatenate([part[i] for part in parts]) if parts else np.zeros(0, "<u8") for i in range(3)
        ]
        texts = (
            np.concatenate([np.full(len(part[0]), part[3]) for part in parts]) if parts else np.zeros(0, int)
        )
        # Of several names for a place, the last one: the full table's rather than that of the exported ones.
        order = np.argsort(columns[0], kind="stable")
        starts = columns[0][order]
        last = np.append(starts[1:] != starts[:-1], True) if len(starts) else np.zeros(0, bool)
        order = order[last]
        self._starts = columns[0][order]
        self._sizes, self._names, self._from = columns[1][order], columns[2][order], texts[order]

    def lines(self, offset: int) -> list[Line]:
        if offset < 0:
            return []
        index = int(np.searchsorted(self._starts, np.uint64(offset), side="right")) - 1
        if index < 0 or offset - int(self._starts[index]) >= max(int(self._sizes[index]), 1):
            return []
        name = name_at(self._texts[self._from[index]], int(self._names[index]))
        return [(demangle(name), "", 0)]


def _is_function(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Of a symbol table: functions that lie in the module, indirect ones too."""
    kind = rows["info"] & 15
    wanted: NDArray[np.bool_] = ((kind == 2) | (kind == 10)) & (rows["section"] != 0) & (rows["value"] != 0)
    return wanted
