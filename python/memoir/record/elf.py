# SPDX-License-Identifier: Apache-2.0
"""ELF files of 64 bits: sections, symbols, build ids. A file may be anybody's: the library that a watched process maps, a
module that a stranger's trace names. So it must be a regular file, each section is read once and only as far as it lies
in the file, and all sections together are not read further than the file is long.

with ElfFile(path) as file:
    print(file.build_id, [symbol.name for symbol in file.symbols(dynamic=True)])
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memoir._core import Error

_MOST = 1 << 30  # bytes that are read of a file
_MOST_NAME = 1 << 16  # bytes of a symbol's name
_SYMTAB, _NOBITS, _DYNSYM = 2, 8, 11
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    name: str
    value: int
    size: int
    info: int
    section: int


class ElfFile:
    """Open from `with` to its end. Raises memoir.Error for what is no such file, OSError where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise Error(f"{path}: not a regular file")
            self._size = status.st_size
            self._left = min(self._size, _MOST)
            self._kept: dict[tuple[int, int], bytes] = {}
            self.sections = self._read_sections()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def build_id(self) -> str:
        """In hexadecimal; "" where it has none."""
        note = self.content(".note.gnu.build-id")
        if len(note) < 16:
            return ""
        name, size, _ = struct.unpack_from("<III", note)
        begin = 12 + (name + 3) // 4 * 4
        return note[begin : begin + size].hex()

    def content(self, name: str) -> bytes:
        """Of the first section of that name; b"" where there is none."""
        return next((self._read(section) for section in self.sections if section.name == name), b"")

    def has(self, name: str) -> bool:
        return any(section.name == name and section.kind != _NOBITS for section in self.sections)

    def tables(self, *, dynamic: bool) -> list[tuple[NDArray[Any], bytes]]:
        """Each symbol table, as records with name, info, section, value and size, and the text that names lie in."""
        found: dict[tuple[int, int, int], tuple[NDArray[Any], bytes]] = {}
        for section in self.sections:
            if section.kind != (_DYNSYM if dynamic else _SYMTAB) or section.link >= len(self.sections):
                continue
            place = section.offset, section.size, section.link
            if place not in found:
                data = self._read(section)
                rows = np.frombuffer(data, _SYMBOL, len(data) // _SYMBOL.itemsize)
                found[place] = rows, self._read(self.sections[section.link])
        return list(found.values())

    def symbols(self, *, dynamic: bool) -> Iterator[Symbol]:
        for rows, names in self.tables(dynamic=dynamic):
            # Names may share their ends, but a table in which each begins inside another is damaged.
            left = 16 * len(names) + _MOST_NAME
            for row in rows.tolist():
                name = name_at(names, row[0])
                left -= len(name)
                if left < 0:
                    raise Error(f"{self._path}: its table of symbols is damaged")
                yield Symbol(name, row[4], row[5], row[1], row[3])

    def _read_sections(self) -> list[Section]:
        head = os.pread(self._file, 64, 0)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise Error(f"{self._path}: not an ELF file of 64 bits")
        (offset,) = struct.unpack_from("<Q", head, 40)
        size, number, names_index = struct.unpack_from("<HHH", head, 58)
        table = self._bytes(offset, size * number)
        if size != 64 or len(table) < size * number or names_index >= number:
            return []
        rows = [
            Section("", row[1], row[4], row[5], row[6]) for row in struct.iter_unpack("<IIQQQQIIQQ", table)
        ]
        names = self._read(rows[names_index])
        begins = [row[0] for row in struct.iter_unpack("<IIQQQQIIQQ", table)]
        return [
            row._replace(name=name_at(names, begin, 100)) for row, begin in zip(rows, begins, strict=True)
        ]

    def _read(self, section: Section) -> bytes:
        return b"" if section.kind == _NOBITS else self._bytes(section.offset, section.size)

    def _bytes(self, offset: int, size: int) -> bytes:
        """What lies there of the file. Sections do not overlap, so all of them are no longer than it."""
        if offset >= self._size or size <= 0:
            return b""
        size = min(size, self._size - offset)
        if (kept := self._kept.get((offset, size))) is not None:
            return kept
        if size > self._left:
            raise Error(f"{self._path}: its sections are longer than it, or than {_MOST >> 30} GiB")
        self._left -= size
        parts = []
        while size > 0 and (part := os.pread(self._file, min(size, 1 << 24), offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        content = b"".join(parts)
        self._kept[offset - len(content), len(content)] = content
        return content


def name_at(names: bytes, begin: int, most: int = _MOST_NAME) -> str:
    """A name that begins there and ends with a zero, cut to `most` bytes."""
    end = names.find(b"\0", begin, begin + most)
    return names[begin : end if end >= 0 else begin + most].decode(errors="replace")
