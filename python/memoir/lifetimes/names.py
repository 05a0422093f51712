# SPDX-License-Identifier: Apache-2.0
"""Names for the frames of a profile, from the symbol tables of this machine's files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from memoir._core import demangle
from memoir.lifetimes import NO_MODULE, Lifetimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_SYMBOL = numpy.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SYMTAB, _NOTE, _DYNSYM = 2, 7, 11
_FUNCTION, _INDIRECT = 2, 10


def name_frames(lifetimes: Lifetimes) -> Lifetimes:
    """A profile in which frames have the names of their functions, where the files of their modules are here and are
    the same build. What has a name keeps it."""
    frames = lifetimes.frames
    names: dict[int, str] = {}
    for module in range(len(lifetimes.modules)):
        wanted = [
            int(number)
            for number in numpy.flatnonzero(frames["module"] == module)
            if frames["name"][number, 1] == 0 and frames["offset"][number] > 0
        ]
        if not wanted:
            continue
        table = _symbols(Path(lifetimes.module_path(module)), lifetimes.build_id(module))
        if table is None:
            continue
        for number in wanted:
            # The call, not where it returns to.
            name = table.find(int(frames["offset"][number]) - 1)
            if name:
                names[number] = name
    assert NO_MODULE not in names
    return Lifetimes(lifetimes.profile.with_names(names)) if names else lifetimes


class _Symbols:
    """Functions by address."""

    def __init__(self, symbols: NDArray[numpy.void], strings: bytes):
        kinds = symbols["info"] & 15
        kept = symbols[((kinds == _FUNCTION) | (kinds == _INDIRECT)) & (symbols["section"] != 0)]
        self._symbols = kept[numpy.argsort(kept["value"], kind="stable")]
        self._strings = strings

    def __len__(self) -> int:
        return len(self._symbols)

    def find(self, address: int) -> str:
        after = int(numpy.searchsorted(self._symbols["value"], address, side="right"))
        if after == 0:
            return ""
        symbol = self._symbols[after - 1]
        begin, size = int(symbol["value"]), int(symbol["size"])
        if size and address >= begin + size:
            return ""
        start = int(symbol["name"])
        end = self._strings.find(b"\0", start)
        name = self._strings[start:end].decode(errors="replace")
        return demangle(name.partition("@")[0])  # without a version of it


def _symbols(path: Path, build_id: str) -> _Symbols | None:
    """The fullest table of the file, or of its debug file; None when they are another build, or not here."""
    candidates = [path]
    if len(build_id) > 2:
        candidates.insert(0, _DEBUG_FILES / build_id[:2] / f"{build_id[2:]}.debug")
    tables = [table for each in candidates if (table := _read_symbols(each, build_id)) is not None]
    return max(tables, key=len, default=None)


def _read_symbols(path: Path, build_id: str) -> _Symbols | None:
    try:
        content = path.read_bytes()
        return _parse_elf(content, build_id)
    except (OSError, struct.error, ValueError, IndexError):
        return None


def _parse_elf(content: bytes, build_id: str) -> _Symbols | None:
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    (offset,) = struct.unpack_from("<Q", content, 40)
    size, number = struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, offset + i * size) for i in range(number)]
    found = _build_id(content, sections)
    if build_id and found != build_id:
        return None
    for kind in (_SYMTAB, _DYNSYM):
        for section in sections:
            if section[1] != kind:
                continue
            symbols = numpy.frombuffer(content[section[4] : section[4] + section[5]], _SYMBOL)
            strings = sections[section[6]]
            table = _Symbols(symbols, content[strings[4] : strings[4] + strings[5]])
            if len(table):
                return table
    return None


def _build_id(content: bytes, sections: list[tuple[int, ...]]) -> str:
    for section in sections:
        if section[1] != _NOTE:
            continue
        at, end = section[4], section[4] + section[5]
        while at + 12 <= end:
            name, data, kind = struct.unpack_from("<III", content, at)
            body = at + 12 + (name + 3 & ~3)
            if kind == 3 and content[at + 12 : at + 15] == b"GNU":
                return content[body : body + data].hex()
            at = body + (data + 3 & ~3)
    return ""
