# SPDX-License-Identifier: Apache-2.0
"""The file that a bench writes while it runs: JSON lines, appended whole, never rewritten.

The first line is the header (what is measured, how, on which machine). Each further line is one of these:

    a run      what one cell measured once: a run of a command, or a turn of a member (sessions.py)
    a member   "record": "member": what a cell that stays alive between its turns saw at its start and its end
    a header   once more, when a resumed bench changes it: the last one counts

A line is written by one write() to a file opened for appending, so a crash leaves whole lines and at most one
torn tail, which reading ignores and resuming cuts off. Each line ends with its own checksum, as the member "crc" (CRC-32
of the bytes before it); a header that says "checksums" is of a journal in which every line has one. Older journals have
none, and stay readable. Numbers are finite: strict JSON.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from memoir._core import Error
from memoir.base.files import Record, append_to, open_beside, read_regular

NAME = "runs.jsonl"
VERSION = 1
MEMBER = "member"
_ROW: dict[str, type | tuple[type, ...]] = {
    "program": str,
    "allocator": str,
    "threads": int,
    "load": (int, float),
    "work": (int, float),
    "parameters": dict,
    "replicate": int,
    "status": str,
    "wall": (int, float, type(None)),
}
_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')


class Kept(NamedTuple):
    """What a journal holds."""

    header: Record
    rows: list[Record]
    members: list[Record]


class Journal:
    """Appends records to one file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Raises memoir.Error where the file cannot be made, or is a link or a pipe."""
        try:
            self._file = append_to(path)
        except OSError as error:
            raise Error(f"{path}: cannot be written: {error.strerror}") from None

    def append(self, *records: Record) -> None:
        """Several records are written together: a crash keeps all of them, or the first ones."""
        text = b"".join(map(line_of, records))
        try:
            full = os.write(self._file, text) != len(text)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            full = True
        if full:
            what = "the disk is full; make room, then go on with --resume"
            raise OSError(errno.ENOSPC, what, str(self.path))

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


def line_of(record: Record) -> bytes:
    """A record as a line of a journal, with its checksum. What is not finite becomes null."""
    if _is_header(record):
        record = {**record, "checksums": True}
    text = json.dumps(strict(record), separators=(",", ":"), allow_nan=False).encode()[:-1]
    return text + b',"crc":"%08x"}\n' % zlib.crc32(text)


def strict(value: Any) -> Any:
    """The same with null for every number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: strict(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(entry) for entry in value]
    return value


def read(path: Path) -> tuple[Record, list[Record]]:
    """Header and runs. A torn last line is left out; anything else that is not a record: memoir.Error."""
    kept = read_all(path)
    return kept.header, kept.rows


def read_all(path: Path) -> Kept:
    """Header, runs and members; the same as read() otherwise."""
    records = [record for _, record in read_lines(path)]
    if not records or not _is_header(records[0]):
        raise Error(f"{path}:1: no header of a bench (version {VERSION}); is this a file of `memoir bench`?")
    headers = [record for record in records if _is_header(record)]
    members = [record for record in records if record.get("record") == MEMBER]
    rows = [record for record in records if not _is_header(record) and record.get("record") != MEMBER]
    check_rows(path, rows)
    return Kept(headers[-1], rows, members)


def read_lines(path: Path) -> list[tuple[int, Record]]:
    """(line number, JSON object) of every whole line; a torn last line is left out.

    Raises memoir.Error, naming the line, for one that is not a JSON object.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    tail = lines.pop()  # what follows the last newline: nothing, or a torn line
    if re.match(rb'.*,"crc":"[0-9a-f]{8}"\}.', tail, re.DOTALL):
        raise Error(f"{path}:{len(lines) + 1}: this line is damaged: something follows its checksum")
    records: list[tuple[int, Record]] = []
    checked = False
    for number, line in enumerate(lines, start=1):
        found = _CHECKSUM.search(line)
        if found:
            if int(found.group(1), 16) != zlib.crc32(line[: found.start()]):
                raise Error(f"{path}:{number}: this line is damaged: its checksum does not match")
            line = line[: found.start()] + b"}"
        try:
            record = json.loads(line, parse_constant=lambda name: None)
            if not isinstance(record, dict):
                raise ValueError
        except (ValueError, RecursionError):  # the latter: brackets in brackets in brackets
            raise Error(
                f"{path}:{number}: not a record of a bench; is this a file of `memoir bench`?"
            ) from None
        if number == 1:
            checked = record.pop("checksums", False) is True
        else:
            record.pop("checksums", None)
        if checked and not found:
            raise Error(f"{path}:{number}: this line is damaged: it has no checksum, and the others have one")
        records.append((number, record))
    return records


def check_rows(path: Path, rows: list[Record]) -> None:
    """Raises memoir.Error, naming the run, for a row without what every reader of rows relies on."""
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row.keys() >= _ROW.keys():
            raise Error(f"{path}: run {number} has no {', '.join(sorted(_ROW.keys() - set(row)))}")
        for name, kind in _ROW.items():
            value = row[name]
            if not isinstance(value, kind) or isinstance(value, bool) or not _fits(value):
                raise Error(f"{path}: run {number} has {name} {str(value)[:40]!r}, not a {_KIND[name]}")


def _fits(value: object) -> bool:
    return not isinstance(value, (int, float)) or (0 <= value < 1e18 and math.isfinite(value))


_KIND = dict.fromkeys(_ROW, "whole number") | dict.fromkeys(("program", "allocator", "status"), "text")
_KIND |= {"parameters": "table of parameters", "wall": "time", "load": "number", "work": "number"}


def cut_torn_line(path: Path) -> None:
    """Removes a line that was never finished, so that the next append begins a line of its own."""
    with os.fdopen(open_beside(path, os.O_RDWR), "r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            file.truncate(whole)


def _is_header(record: Record) -> bool:
    return bool(record.get("memoir_bench") == VERSION)
