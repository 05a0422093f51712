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
        """Raises memoir.Error where the file cannot be made, or is a link or a pipe."""
        self.path = path
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
        try:
            os.fsync(self._file)
        finally:
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
    for header in headers:
        check_header(path, header)
    members = [record for record in records if record.get("record") == MEMBER]
    rows = [record for record in records if not _is_header(record) and record.get("record") != MEMBER]
    check_rows(path, rows)
    check_members(path, members)
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


_TEXTS, _NUMBERS = {"*": str}, {"*": (int, float, type(None))}
_ALLOCATOR = {"name!": str, "library": (str, type(None)), "environment": _TEXTS}
_METRIC = {"name!": str, "pattern!": str, "higher_is_better": bool}
_PROGRAM = {
    "name!": str,
    "command!": [str],
    "client": [str],
    "ready": [str],
    "stop": [str],
    "metrics": [_METRIC],
}


class _Fixed(tuple[Any, ...]):
    """A list of so many values, each of a type."""


_PROOF = {
    "program!": str,
    "allocator!": str,
    "requests!": (int, float),
    "provider!": str,
    "share": (int, float, type(None)),
    "anonymous": (int, float),
    "weak": [_Fixed((str, (int, float), (int, float)))],
    "aside": [str],
}
# What readers of a header rely on: a name with ! must be there; "*" stands for every name.
_NUMBER = (int, float)
_OPTIONS: dict[str, Any] = (
    dict.fromkeys(("replicates", "warmup", "sessions", "exit_code"), int)
    | dict.fromkeys(("pause", "budget"), _NUMBER)
    | dict.fromkeys(("timeout", "until"), (*_NUMBER, type(None)))
    | dict.fromkeys(("pin", "prepare"), (str, type(None)))
    | {"seed": (int, type(None)), "memory": bool, "counters": [str]}
)
_HEADER: dict[str, Any] = {
    "grid": {
        "programs": [_PROGRAM],
        "allocators": [_ALLOCATOR],
        "threads": [int],
        "loads": [int],
        "parameters": [list],
    },
    "options": _OPTIONS,
    "versions": {"*": (str, type(None))},
    "machine": {"memory_bytes": _NUMBER},
    "proofs": [_PROOF],
    "sources": [str],
    "started": (int, float),
    "interleaved": bool,
    "made_by": str,
}
_OPTIONAL_ROW: dict[str, Any] = dict.fromkeys(
    ("user", "system", "peak_rss", "largest_rss", "minor_faults", "major_faults", "voluntary_switches")
    + ("involuntary_switches", "processes", "leftover", "memory_held", "padding", "started"),
    (int, float),
) | {
    "metrics": _NUMBERS,
    "counters": _NUMBERS,
    "memory": [list],
    "session": int,
    "position": int,
    "exit_code": (int, type(None)),
    "signal": (int, type(None)),
}


_SAMPLED = ("rss_", "pss_", "huge_", "lazy_", "swap_")


def check_header(path: Path, header: Record) -> None:
    """Raises memoir.Error, naming the place, for a header that has not what every reader of headers relies on."""
    if place := _misfit(header, _HEADER, ""):
        raise Error(f"{path}: the header is damaged: {place[1:]} is not what a bench writes there")


def _misfit(value: Any, wanted: Any, place: str) -> str:
    """Where a value of JSON is of another type than wanted; "" where it is not."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return place or ".header"
        each = {name: wanted["*"] for name in value} if "*" in wanted else wanted
        for name in each:
            if name.endswith("!") and name[:-1] not in value:
                return f"{place}.{name[:-1]}"
        named = {name.removesuffix("!"): kind for name, kind in each.items()}
        parts = ((value[name], kind, f"{place}.{name}") for name, kind in named.items() if name in value)
    elif isinstance(wanted, _Fixed):
        if not isinstance(value, list) or len(value) != len(wanted):
            return place
        parts = ((one, kind, place) for one, kind in zip(value, wanted, strict=True))
    elif isinstance(wanted, list):
        if not isinstance(value, list):
            return place
        parts = ((one, wanted[0], f"{place}.{number}") for number, one in enumerate(value))
    else:
        fits = isinstance(value, wanted) and (wanted is bool or wanted is dict or not isinstance(value, bool))
        if isinstance(value, (int, float)) and not abs(value) < 1 << 63:
            fits = False  # numpy has no such whole numbers
        return "" if fits else place
    return next(filter(None, (_misfit(*part) for part in parts)), "")


def check_rows(path: Path, rows: list[Record]) -> None:
    """Raises memoir.Error, naming the run, for a row without what every reader of rows relies on."""
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row.keys() >= _ROW.keys():
            raise Error(f"{path}: run {number} has no {', '.join(sorted(_ROW.keys() - set(row)))}")
        for name, kind in _ROW.items():
            value = row[name]
            if not isinstance(value, kind) or isinstance(value, bool) or not _fits(value):
                raise Error(f"{path}: run {number} has {name} {str(value)[:40]!r}, not a {_KIND[name]}")
        if not all(isinstance(value, str) for value in row["parameters"].values()):
            raise Error(f"{path}: run {number} has parameters that are no texts")
        sampled = {name: (int, float, type(None)) for name in row if name.startswith(_SAMPLED)}
        if place := _misfit(row, {**_OPTIONAL_ROW, **sampled}, ""):
            raise Error(f"{path}: run {number} has {place[1:]} that is not what a bench writes there")


def check_members(path: Path, members: list[Record]) -> None:
    """Raises memoir.Error for a member without the words of a cell."""
    wanted = {name: _ROW[name] for name in ("program", "allocator", "threads", "load", "parameters")}
    for number, member in enumerate(members, start=1):
        known = isinstance(member, dict) and member.keys() >= wanted.keys()
        place = (
            _misfit(member, {**wanted, "session": int, "opened": dict, "closed": dict}, "")
            if known
            else ".it"
        )
        if place:
            raise Error(f"{path}: member {number} is damaged: {place[1:]} is not what a bench writes there")


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
