# SPDX-License-Identifier: Apache-2.0
"""Debug information in more than one file, which symbolic does not follow: what several files share (dwz), and what a
compiler left in .dwo files. elfutils' libdw reads both, where it is installed (libdw1, elfutils-libs). Called with the
files of programs that were run here; it asks no server."""

from __future__ import annotations

import bisect
import ctypes
import errno
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_uint, c_ulong, c_void_p
from pathlib import Path
from typing import Any

Line = tuple[str, str, int]  # function, file, line; "" and 0: unknown
_SUBPROGRAM, _INLINED = 0x2E, 0x1D  # DW_TAG_
_CALL_FILE, _CALL_LINE = 0x58, 0x59  # DW_AT_
_LINKAGE_NAMES = (0x6E, 0x2007)
_DWO_NAMES, _FOLDER = (0x76, 0x2130), 0x1B  # DW_AT_
_SKELETON = 4  # DW_UT_


class _Die(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("unit", c_void_p), ("abbreviation", c_void_p), ("padding", c_long)]


class _Attribute(ctypes.Structure):
    _fields_ = [("code", c_uint), ("form", c_uint), ("value", c_void_p), ("unit", c_void_p)]


@functools.cache
def _library() -> Any:
    """libdw, or None where it is not installed."""
    try:
        library = ctypes.CDLL("libdw.so.1")
        free = ctypes.CDLL(None).free
    except OSError:
        return None
    die, attribute = POINTER(_Die), POINTER(_Attribute)
    for name, result, arguments in (
        ("dwarf_begin", c_void_p, [c_int, c_int]),
        ("dwarf_end", c_int, [c_void_p]),
        ("dwarf_get_units", c_int, [c_void_p, c_void_p, POINTER(c_void_p), c_void_p, c_void_p, die, die]),
        ("dwarf_ranges", c_long, [die, c_long, POINTER(c_ulong), POINTER(c_ulong), POINTER(c_ulong)]),
        ("dwarf_getscopes", c_int, [die, c_ulong, POINTER(die)]),
        ("dwarf_getscopes_die", c_int, [die, POINTER(die)]),
        ("dwarf_tag", c_int, [die]),
        ("dwarf_diename", c_char_p, [die]),
        ("dwarf_attr", c_void_p, [die, c_uint, attribute]),
        ("dwarf_attr_integrate", c_void_p, [die, c_uint, attribute]),
        ("dwarf_formstring", c_char_p, [attribute]),
        ("dwarf_formudata", c_int, [attribute, POINTER(c_ulong)]),
        ("dwarf_getsrc_die", c_void_p, [die, c_ulong]),
        ("dwarf_linesrc", c_char_p, [c_void_p, c_void_p, c_void_p]),
        ("dwarf_lineno", c_int, [c_void_p, POINTER(c_int)]),
        ("dwarf_getsrcfiles", c_int, [die, POINTER(c_void_p), POINTER(c_size_t)]),
        ("dwarf_filesrc", c_char_p, [c_void_p, c_size_t, c_void_p, c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    free.argtypes, free.restype = [c_void_p], None
    vars(library)["free_scopes"] = free
    return library


class Reader:
    """The debug information that begins in one file."""

    def __init__(self, path: Path):
        self._library = _library()
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._dwarf = self._library.dwarf_begin(self._file, 0)  # DWARF_C_READ
        self._units: list[tuple[_Die, _Die]] = []
        self._ranges: list[tuple[int, int, int]] = []  # begin, end, unit
        self.missing = 0  # .dwo files
        if not self._dwarf:
            return
        try:
            self._look_at_parts(path)
        except OSError:
            self.close()
            raise
        unit, kind = c_void_p(), ctypes.c_uint8()
        whole, part = _Die(), _Die()
        while not self._library.dwarf_get_units(
            self._dwarf, unit, byref(unit), None, byref(kind), byref(whole), byref(part)
        ):
            if kind.value == _SKELETON and not part.address:
                self.missing += 1
            self._add(_copy(whole), _copy(part if part.address else whole))
        self._ranges.sort()
        self._begins = [row[0] for row in self._ranges]

    def _look_at_parts(self, path: Path) -> None:
        """Raises OSError where what has the name of a .dwo file is a pipe or the like: libdw opens them all, and would wait."""
        folder = os.path.dirname(os.path.realpath(path))
        parts = {f"{os.path.realpath(path)}.dwp"}
        unit, die = c_void_p(), _Die()
        while not self._library.dwarf_get_units(
            self._dwarf, unit, byref(unit), None, None, byref(die), None
        ):  # without what is in other files
            made_in = self._word(die, _FOLDER)
            for name in filter(None, (self._word(die, what) for what in _DWO_NAMES)):
                parts |= {os.path.join(folder, name), os.path.join(folder, made_in, name)}
        for part in parts:
            check_part(part)

    def _word(self, die: _Die, what: int) -> str:
        attribute = _Attribute()
        if not self._library.dwarf_attr(byref(die), what, byref(attribute)):
            return ""
        return os.fsdecode(self._library.dwarf_formstring(byref(attribute)) or b"")

    def _add(self, whole: _Die, part: _Die) -> None:
        base, begin, end = c_ulong(), c_ulong(), c_ulong()
        at = 0
        while (at := self._library.dwarf_ranges(byref(whole), at, byref(base), byref(begin), byref(end))) > 0:
            if begin.value < end.value:
                self._ranges.append((begin.value, end.value, len(self._units)))
        self._units.append((whole, part))

    def close(self) -> None:
        if self._dwarf:
            self._library.dwarf_end(self._dwarf)
        self._dwarf = None
        os.close(self._file)

    def lines(self, address: int) -> list[Line]:
        """The functions at an address, inlined ones first; [] where nothing tells of it."""
        index = bisect.bisect_right(self._begins, address) - 1 if self._ranges else -1
        if index < 0 or address >= self._ranges[index][1]:
            return []
        whole, part = self._units[self._ranges[index][2]]
        file, line = self._place(whole, address)
        found: list[Line] = []
        for die in self._scopes(part, address):
            tag = self._library.dwarf_tag(byref(die))
            if tag not in (_SUBPROGRAM, _INLINED):
                continue
            found.append((self._name(die), file, line))
            if tag == _SUBPROGRAM:
                return found
            file, line = self._file_of(part, self._number(die, _CALL_FILE)), self._number(die, _CALL_LINE)
        return found or ([("", file, line)] if file else [])

    def _scopes(self, unit: _Die, address: int) -> list[_Die]:
        """The innermost first; of inlined functions those that they are inlined into."""
        by_address, by_place = POINTER(_Die)(), POINTER(_Die)()
        if self._library.dwarf_getscopes(byref(unit), address, byref(by_address)) <= 0:
            return []
        count = self._library.dwarf_getscopes_die(by_address, byref(by_place))
        found = [_copy(by_place[i]) for i in range(max(count, 0))]
        for scopes in (by_address, by_place) if count > 0 else (by_address,):
            self._library.free_scopes(scopes)
        return found

    def _name(self, die: _Die) -> str:
        for what in _LINKAGE_NAMES:
            attribute = _Attribute()
            if self._library.dwarf_attr_integrate(byref(die), what, byref(attribute)):
                return _text(self._library.dwarf_formstring(byref(attribute)))
        return _text(self._library.dwarf_diename(byref(die)))

    def _number(self, die: _Die, what: int) -> int:
        attribute, value = _Attribute(), c_ulong()
        if not self._library.dwarf_attr_integrate(byref(die), what, byref(attribute)):
            return 0
        return 0 if self._library.dwarf_formudata(byref(attribute), byref(value)) else int(value.value)

    def _file_of(self, unit: _Die, number: int) -> str:
        files, count = c_void_p(), c_size_t()
        if self._library.dwarf_getsrcfiles(byref(unit), byref(files), byref(count)) or number >= count.value:
            return ""
        return _text(self._library.dwarf_filesrc(files, number, None, None))

    def _place(self, unit: _Die, address: int) -> tuple[str, int]:
        line, number = self._library.dwarf_getsrc_die(byref(unit), address), c_int()
        if not line or self._library.dwarf_lineno(line, byref(number)):
            return "", 0
        return _text(self._library.dwarf_linesrc(line, None, None)), max(number.value, 0)


def _copy(die: _Die) -> _Die:
    return _Die(die.address, die.unit, die.abbreviation, die.padding)


def _text(text: bytes | None) -> str:
    return "" if text is None else text.decode(errors="replace")


def check_part(path: str) -> None:
    """Raises OSError where there is something of that name which is no regular file."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file", path)


def open_reader(path: Path) -> Reader | None:
    """None where libdw is not installed, or is too old. Raises OSError for what is no regular file, and for such a part."""
    try:
        return None if _library() is None else Reader(path)
    except AttributeError:
        return None
