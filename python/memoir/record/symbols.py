# SPDX-License-Identifier: Apache-2.0
"""Names for the return addresses of native traces: functions, files and lines, with what was inlined.

A function's own name is that of the symbol which covers the address; files, lines and inlined functions come from the
debug information, which `symbolic` reads. Without it, the symbol tables alone give
function names. docs/decisions/symbolic-reads-debug-information.md says why."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memoir._core import Error, Trace, add_symbols
from memoir.base.quantities import printable
from memoir.record import debuginfod, jit_names, libdw
from memoir.record.elf import ElfFile, name_at
from memoir.record.name_reader import Line, NameReader

_DEBUG_FOLDERS = (Path("/usr/lib/debug"),)
_LONGEST_NAME = 1 << 16  # letters that a name is to people
_MOST_STEPS = 4096  # symbols that are looked at for one address
_RESERVED = re.compile(r"_(?![ZR])")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
# What compilers append to the name of a function that they split, copy or rename.
_CLONE = re.compile(
    r"(\.(cold|part|isra|constprop|lto_priv|localalias|llvm|clone|unlikely|hot|warm|__uniq)(\.\d+)*)+$"
)


@dataclass(frozen=True)
class Named:
    """What became of one module."""

    path: str
    addresses: int
    named: int
    why: str  # "" or what is missing


def symbolize(trace: str | os.PathLike[str], servers: Sequence[str] = ()) -> list[Named]:
    """Finds the names of all native frames of a trace and stores them in it. Returns a row for each file. `servers`:
    URLs of debuginfod servers, which are asked for what is not on this machine.

    Raises memoir.Error for a trace that cannot be written to, or is still recorded.
    """
    opened = Trace.open(trace)
    modules = {module["id"]: module for module in opened.modules}
    # A file that was loaded again is another module of the trace.
    files: dict[tuple[str, str], list[tuple[int, int]]] = {}
    made: set[int] = set()
    for number, offset in set(opened.native_addresses):
        if number in modules:
            key = modules[number]["path"], modules[number]["build_id"]
            files.setdefault(key, []).append((number, offset))
        elif number == 0:
            made.add(offset)
    # One file may have many paths, and is read once.
    same: dict[tuple[object, str], list[str]] = {}
    for path, build_id in sorted(files):
        same.setdefault((_identity(path), build_id), []).append(path)
    rows: list[tuple[int, int, list[Line]]] = []
    said = []
    with NameReader() as reader:
        for (_, build_id), paths in same.items():
            addresses = [one for path in paths for one in files[path, build_id]]
            loaded = opened.start + min(modules[number]["loaded_ns"] for number, _ in addresses)
            offsets = {offset for _, offset in addresses}
            try:
                found, why = reader.find_lines(Path(paths[0]), build_id, offsets, servers, loaded)
            except Error as error:  # one that cannot be read; the others have names all the same
                found, why = {}, str(error)
            rows += [(number, offset, found[offset]) for number, offset in addresses if offset in found]
            for path in paths:
                offsets = {offset for _, offset in files[path, build_id]}
                said.append(Named(path, len(offsets), len(offsets & found.keys()), why))
        said.sort(key=lambda row: row.path)
        if made and (names := jit_names.find(opened, made)) is not None:
            readable = reader.demangle([name for name, _, _ in names.values()])
            rows += [
                (0, address, [(name, file, line)])
                for name, (address, (_, file, line)) in zip(readable, names.items(), strict=True)
            ]
            said.append(Named("code made at run time", len(made), len(names), ""))
    if rows:
        add_symbols(trace, rows)
    return said


def _identity(path: str) -> object:
    """The same for all paths of one file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path
    return status.st_dev, status.st_ino


def find_lines(
    path: Path,
    build_id: str,
    offsets: Iterable[int],
    servers: Sequence[str] = (),
    written_by: int | None = None,
    *,
    longest: float = debuginfod.LONGEST,
    plain: bool = False,
    opened: Callable[[int], None] = lambda size: None,
) -> tuple[dict[int, list[Line]], str]:
    """Return addresses of a module that have names, with their lines, inlined functions first; and what is missing.

    Offsets count from where the file's own addresses do. `written_by`: nanoseconds since 1970; a file that was written
    later is another one, unless build ids say otherwise. longest: seconds that each server may take. plain: the names of
    the symbol tables, as they are. opened: is called with the bytes of the files that are read, before they are. A
    stranger's files are for a process of its own: symbols_process.py."""
    with contextlib.ExitStack() as files:
        finder, why = _finder(files, path, build_id, servers, written_by, longest, plain, opened)
        if finder is None:
            return {}, why
        # A return address is one behind its call.
        found = {offset: finder(offset - 1) for offset in sorted(offsets) if offset > 0}
        return {offset: lines for offset, lines in found.items() if lines}, why


def _finder(
    files: contextlib.ExitStack,
    path: Path,
    build_id: str,
    servers: Sequence[str],
    written_by: int | None,
    longest: float,
    plain: bool,
    opened: Callable[[int], None],
) -> tuple[Callable[[int], list[Line]] | None, str]:
    """A function from an address of the file to its lines, or None; and what is missing. It holds as long as `files`."""
    own, file, why = _debug_file(files, path, build_id, written_by)
    if servers and (file is None or (file is own and not file.has(".debug_info"))):
        fetched, refused = debuginfod.fetch(build_id, servers, longest)
        debug = None if fetched is None else _opened(files, fetched)
        if debug is not None and debug.build_id == build_id:
            own = own if file is not None else debug
            file = debug
        elif fetched is not None:
            why = _both(why, f"{fetched} is not its debug file: remove that to ask the servers again")
        else:
            why = _both(why, refused)
    if own is None or file is None:
        return None, why
    opened(sum(one.held for one in dict.fromkeys([own, file])))
    packed = own.packed()
    table = SymbolTable(
        list(dict.fromkeys([own, file, *([] if packed is None else [files.enter_context(packed)])])),
        plain=plain,
    )
    if plain:
        return table.lines, why
    try:
        symbolic: Any = importlib.import_module("symbolic")
    except ImportError:
        return table.lines, "pip install symbolic gives files, lines and inlined functions"
    try:
        cache = next(iter(symbolic.Archive.open(str(file.path)).iter_objects())).make_symcache()
    except (symbolic.SymbolicError, StopIteration, OSError) as error:
        said = str(error).partition("\n")[0][:200]
        return table.lines, f"its debug information cannot be read: {printable(said)}"
    base = file.base
    split, missing = _split_reader(files, file)

    def lines(address: int) -> list[Line]:
        chain: list[Line] = split.lines(address) if split is not None else []
        if not chain and address >= base:
            chain = [(one.symbol, one.full_path or "", one.line or 0) for one in cache.lookup(address - base)]
        names = table.names(address)
        if not chain:
            return [(table.choose(names), "", 0)] if names else []
        # symbolic gives parts of functions the names of others, and addresses behind a function its name.
        if not names and not chain[-1][1]:
            return []
        outermost = table.choose(names, chain[-1][0]) if names else demangle(chain[-1][0])
        return [
            *((demangle(name), place, line) for name, place, line in chain[:-1]),
            (outermost, *chain[-1][1:]),
        ]

    return lines, _both(why, missing)


def _split_reader(files: contextlib.ExitStack, file: ElfFile) -> tuple[libdw.Reader | None, str]:
    """For debug information in more files than one; and what is missing of it."""
    shared, build_id = file.alternate()
    if not shared and b".dwo\0" not in file.content(".debug_str") + file.content(".debug_line_str"):
        return None, ""
    what = f"{shared}, which it shares" if shared else ".dwo files"
    by_id = [folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug" for folder in _DEBUG_FOLDERS]
    places = [file.path.resolve().parent / shared, *by_id] if shared else []
    try:
        for place in places:
            libdw.check_part(str(place))
        reader = libdw.open_reader(file.path)
    except OSError as error:
        return None, f"{error.filename}, where names of inlined functions are, is {error.strerror}"
    if reader is None:
        return None, f"some inlined functions are in {what}: install libdw (elfutils) to read it"
    files.callback(reader.close)
    if reader.missing:
        return reader, f"{reader.missing:,} .dwo files with its inlined functions are not here"
    if shared and not any(place.is_file() for place in places):
        return reader, f"{shared}, where names of inlined functions are, is not here"
    return reader, ""


def _both(one: str, other: str) -> str:
    return f"{one}; {other}" if one and other else one or other


def _opened(files: contextlib.ExitStack, path: Path) -> ElfFile | None:
    """None for what is no ELF file, or cannot be read."""
    try:
        return files.enter_context(ElfFile(path))
    except (Error, OSError):
        return None


def _debug_file(
    files: contextlib.ExitStack, path: Path, build_id: str, written_by: int | None
) -> tuple[ElfFile | None, ElfFile | None, str]:
    """A module's file and that with its debug information, its own or one that was split off; or what is missing. Only ELF
    files of the build that the trace names are opened further: it is the trace that says which files."""
    if not path.is_file():
        return None, None, "the file is gone" if not path.exists() else "it is no regular file"
    try:
        own = files.enter_context(ElfFile(path))
    except Error as error:
        return None, None, str(error).removeprefix(f"{path}: ")
    if build_id and own.build_id != build_id:
        return None, None, "the file is another build now"
    if not build_id and written_by is not None and path.stat().st_mtime_ns > written_by:
        return (
            None,
            None,
            "the file was written after it was recorded, and has no build id to tell builds apart",
        )
    for folder in _DEBUG_FOLDERS:
        split = folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        if build_id and split.is_file() and (file := _opened(files, split)) and file.build_id == build_id:
            return own, file, ""
    link, check = own.debug_link()
    of_folders = [folder / str(path.parent)[1:] for folder in _DEBUG_FOLDERS]
    for folder in (path.parent, path.parent / ".debug", *of_folders) if link else ():
        if not (folder / link).is_file() or (file := _opened(files, folder / link)) is None:
            continue
        if file.build_id == own.build_id if own.build_id or file.build_id else file.checksum() == check:
            return own, file, ""
    return own, own, ""


class SymbolTable:
    """Functions by the symbol tables that loaders and linkers use; sizes say where one ends."""

    def __init__(self, files: Sequence[ElfFile], *, plain: bool = False):
        """plain: names stay as they are."""
        self._readable: Callable[[str], str] = str if plain else demangle
        self._is_go = any(file.has(".gopclntab") or file.has(".go.buildinfo") for file in files)
        self._names: list[bytes] = []
        starts, sizes, kinds, places, texts = [], [], [], [], []
        for file in files:
            for names, rows in _functions(file):
                starts.append(rows["value"].astype(np.uint64))
                sizes.append(rows["size"].astype(np.uint64))
                kinds.append(rows["info"])
                places.append(rows["name"].astype(np.int64))
                texts.append(np.full(len(rows), len(self._names)))
                self._names.append(names)
        self._starts = np.concatenate(starts) if starts else np.zeros(0, np.uint64)
        size = np.concatenate(sizes) if sizes else np.zeros(0, np.uint64)
        self._kinds = np.concatenate(kinds) if kinds else np.zeros(0, np.uint8)
        self._places = np.concatenate(places) if places else np.zeros(0, np.int64)
        self._texts = np.concatenate(texts) if texts else np.zeros(0, np.int64)
        order = np.lexsort((size, self._starts))
        self._starts, size = self._starts[order], size[order]
        self._kinds, self._places, self._texts = self._kinds[order], self._places[order], self._texts[order]
        self._ends = self._starts + size
        # What has no size goes on to the next symbol, or to the end of its section.
        for number in np.flatnonzero(size == 0).tolist():
            start = int(self._starts[number])
            behind = int(np.searchsorted(self._starts, start, "right"))
            last = max((file.end_of_code(start) for file in files), default=0)
            if behind < len(self._starts):
                last = min(last, int(self._starts[behind])) if last else int(self._starts[behind])
            self._ends[number] = last
        self._reach = np.maximum.accumulate(self._ends)

    def names(self, address: int) -> list[str]:
        """Those of the innermost function that covers the address."""
        index = int(np.searchsorted(self._starts, np.uint64(address), "right")) - 1
        least = index - _MOST_STEPS
        best: tuple[bool, int, int] | None = None
        found: list[tuple[int, str]] = []
        while index >= 0 and index > least and self._reach[index] > address:
            if self._ends[index] > address:
                is_function = int(self._kinds[index] & 15) != 0
                key = (is_function, int(self._starts[index]), -int(self._ends[index]))
                if best is None or key > best:
                    best, found = key, []
                if key == best:
                    name = name_at(self._names[self._texts[index]], int(self._places[index]))
                    found.append((int(self._kinds[index]) >> 4, name.partition("@")[0]))
            index -= 1
            if best is not None and best[0] and int(self._starts[index]) != best[1]:
                break
        # Those that other files may use first: their names are the ones that people know.
        return list(dict.fromkeys(name for _, name in sorted(found, key=lambda row: (row[0] == 0, row[0]))))

    def choose(self, names: Sequence[str], known: str = "") -> str:
        """Of several names of one function the one that the debug information has, unless people know another one
        (malloc, not __libc_malloc); else the plainest."""
        said = _CLONE.sub("", known)
        if known in names and not _RESERVED.match(known):
            return self._readable(self._plain(known))
        if said and not _RESERVED.match(said) and any(_CLONE.sub("", name) == said for name in names):
            return self._readable(said)
        return self._readable(
            min(map(self._plain, names), key=lambda name: (len(name) - len(name.lstrip("_")), len(name)))
        )

    def lines(self, address: int) -> list[Line]:
        names = self.names(address)
        return [(self.choose(names), "", 0)] if names else []

    def _plain(self, name: str) -> str:
        return name if self._is_go else _CLONE.sub("", name)


def _functions(file: ElfFile) -> Iterator[tuple[bytes, NDArray[Any]]]:
    """Its tables of symbols, each with the bytes of all names: rows of what may be a function."""
    is_code = np.array([bool(one.flags & 4) for one in file.sections] + [False])  # SHF_EXECINSTR
    for dynamic in (True, False):
        for rows, names in file.tables(dynamic=dynamic):
            kind = rows["info"] & 15
            wanted = (kind == 2) | (kind == 10) | ((kind == 0) & (rows["name"] != 0))
            place = np.minimum(rows["section"], len(is_code) - 1)
            yield names, rows[wanted & is_code[place] & (rows["value"] != 0)]


@functools.lru_cache(1 << 16)
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
        readable = ctypes.string_at(text)
        if len(readable) > _LONGEST_NAME:  # each part of a short name may stand for all before it, twice
            return name
        return _RUST_HASH.sub("", readable.decode(errors="replace"))
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
