# SPDX-License-Identifier: Apache-2.0
"""The file that a bench writes while it runs: JSON lines, appended whole, never rewritten.

The first line is the header (what is measured, how, on which machine). Each further line is one of these:

    a run      what one cell measured once: a run of a command, or a turn of a member (sessions.py)
    a member   "record": "member": what a cell that stays alive between its turns saw at its start and its end
    a header   once more, when a resumed bench changes it: the last one counts

A line is written by one write() to a file opened for appending, so a crash leaves whole lines and at most one
torn tail, which reading ignores and resuming cuts off.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from memoir._core import Error

Record = dict[str, Any]  # one JSON object of a results file

NAME = "runs.jsonl"
VERSION = 1
MEMBER = "member"
_ROW = {"program", "allocator", "threads", "load", "work", "parameters", "replicate", "status", "wall"}


class Kept(NamedTuple):
    """What a journal holds."""

    header: Record
    rows: list[Record]
    members: list[Record]


class Journal:
    """Appends records to one file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def append(self, *records: Record) -> None:
        """Several records are written together: a crash keeps all of them, or the first ones."""
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode()
        if os.write(self._file, text) != len(text):
            raise Error(f"{self.path}: the disk is full; make room, then go on with --resume")

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


def read(path: Path) -> tuple[Record, list[Record]]:
    """Header and runs. A torn last line is left out; anything else that is no record: memoir.Error."""
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

    Raises memoir.Error, naming the line, for one that is no JSON object.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    lines.pop()  # what follows the last newline: nothing, or a torn line
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError
        except (ValueError, RecursionError):  # the latter: brackets in brackets in brackets
            raise Error(
                f"{path}:{number}: not a record of a bench; is this a file of `memoir bench`?"
            ) from None
        records.append((number, record))
    return records


def check_rows(path: Path, rows: list[Record]) -> None:
    """Raises memoir.Error, naming the run, for a row without what every reader of rows relies on."""
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row.keys() >= _ROW:
            raise Error(f"{path}: run {number} has no {', '.join(sorted(_ROW - set(row)))}")


def cut_torn_line(path: Path) -> None:
    """Removes a line that was never finished, so that the next append begins a line of its own."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _is_header(record: Record) -> bool:
    return bool(record.get("memoir_bench") == VERSION)
