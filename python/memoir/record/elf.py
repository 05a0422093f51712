# SPDX-License-Identifier: Apache-2.0
"""ELF files of 64 bits: sections, symbols, build ids. A file may be anybody's: the library that a watched process maps, a
module that a stranger's trace names. So it must be a regular file, each section is read once and only as far as it lies
in the file, and all sections together are not read further than the file is long.

with ElfFile(path) as file:
    print(file.build_id, [symbol.name for symbol in file.symbols(dynamic=True)])
"""

from __future__ import annotations

import functools
import lzma
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memoir._core import Error

_MOST = 1 << 30  # bytes that are read of a file
_MOST_NAME = 1 << 16  # bytes of a symbol's name
_MOST_UNPACKED = 1 << 28  # bytes of a section that is compressed, or of a file in a file
_LOAD, _SYMTAB, _NOBITS, _DYNSYM = 1, 2, 8, 11
_EXECUTABLE, _COMPRESSED = 4, 0x800
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int
    flags: int
    address: int


class Symbol(NamedTuple):
    name: str
    value: int
    size: int
    info: int
    section: int


class ElfFile:
    """Open from `with` to its end. Raises memoir.Error for what is no such file, OSError where it cannot be read."""

    def __init__(self, path: Path, file: int | None = None) -> None:
        """`file`: opened already, of that name; it is closed at the end."""
        self.path = path
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        self._file = os.open(path, flags) if file is None else file
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
    def held(self) -> int:
        """Bytes of the disk that it takes: less than its size where it has holes."""
        return min(self._size, os.fstat(self._file).st_blocks * 512)

    @property
    def build_id(self) -> str:
        """In hexadecimal; "" where it has none."""
        note = self.content(".note.gnu.build-id")
        if len(note) < 16:
            return ""
        name, size, _ = struct.unpack_from("<III", note)
        begin = 12 + (name + 3) // 4 * 4
        return note[begin : begin + size].hex()

    @functools.cached_property
    def base(self) -> int:
        """The address of its first segment: what readers of debug information count from."""
        offset, size, number = struct.unpack_from("<Q14xHH", os.pread(self._file, 64, 0), 32)
        if size != 56:
            return 0
        table = self._bytes(offset, size * number)
        rows = struct.iter_unpack("<IIQQQQQQ", table[: len(table) // 56 * 56])
        return next((int(row[3]) for row in rows if row[0] == _LOAD), 0)

    def debug_link(self) -> tuple[str, bytes]:
        """The name of the file that its debug information was split off to, "" for none; and that file's checksum."""
        link = self.content(".gnu_debuglink")
        name = name_at(link, 0)
        return ("" if "/" in name else name), link[-4:]

    def checksum(self) -> bytes:
        """Of the whole file, as links to debug files have it; b"" of one whose holes would have to be read."""
        if os.fstat(self._file).st_size > max(64 * self.held, 1 << 20):
            return b""
        check = at = 0
        while part := os.pread(self._file, 1 << 20, at):
            check, at = zlib.crc32(part, check), at + len(part)
        return check.to_bytes(4, "little")

    def alternate(self) -> tuple[str, str]:
        """The path and build id of the file that several debug files share parts of (dwz); "" for none."""
        name, _, identity = self.content(".gnu_debugaltlink").partition(b"\0")
        return name.decode(errors="replace"), identity.hex()

    def packed(self) -> ElfFile | None:
        """The small file with more symbols that is packed into some (.gnu_debugdata)."""
        content = self.content(".gnu_debugdata")
        if not content:
            return None
        try:
            unpacked = lzma.LZMADecompressor(memlimit=_MOST_UNPACKED).decompress(content, _MOST_UNPACKED)
        except (lzma.LZMAError, EOFError):
            return None
        file = os.memfd_create("memoir-elf", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(file), "wb") as whole:
            whole.write(unpacked)
        return ElfFile(self.path, file)

    def end_of_code(self, address: int) -> int:
        """Where the section of code ends that an address lies in; 0: in none."""
        for one in self.sections:
            if one.flags & _EXECUTABLE and one.address <= address < one.address + one.size:
                return one.address + one.size
        return 0

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
                    raise Error(f"{self.path}: its table of symbols is damaged")
                yield Symbol(name, row[4], row[5], row[1], row[3])

    def _read_sections(self) -> list[Section]:
        head = os.pread(self._file, 64, 0)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise Error(f"{self.path}: not an ELF file of 64 bits")
        (offset,) = struct.unpack_from("<Q", head, 40)
        size, number, names_index = struct.unpack_from("<HHH", head, 58)
        table = self._bytes(offset, size * number)
        if size != 64 or len(table) < size * number or names_index >= number:
            return []
        rows = [
            Section("", row[1], row[4], row[5], row[6], row[2], row[3])
            for row in struct.iter_unpack("<IIQQQQIIQQ", table)
        ]
        names = self._read(rows[names_index])
        begins = [row[0] for row in struct.iter_unpack("<IIQQQQIIQQ", table)]
        return [
            row._replace(name=name_at(names, begin, 100)) for row, begin in zip(rows, begins, strict=True)
        ]

    def _read(self, section: Section) -> bytes:
        raw = b"" if section.kind == _NOBITS else self._bytes(section.offset, section.size)
        if not section.flags & _COMPRESSED:
            return raw
        if len(raw) < 24 or struct.unpack_from("<I", raw)[0] != 1:  # ELFCOMPRESS_ZLIB
            return b""
        try:
            return zlib.decompressobj().decompress(raw[24:], _MOST_UNPACKED)
        except zlib.error:
            return b""

    def _bytes(self, offset: int, size: int) -> bytes:
        """What lies there of the file. Sections do not overlap, so all of them are no longer than it."""
        if offset >= self._size or size <= 0:
            return b""
        size = min(size, self._size - offset)
        if (kept := self._kept.get((offset, size))) is not None:
            return kept
        if size > self._left:
            raise Error(f"{self.path}: its sections are longer than it, or than {_MOST >> 30} GiB")
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
