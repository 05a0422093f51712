# SPDX-License-Identifier: Apache-2.0
"""Results as they were before they became a bench's: one JSON document, and a journal while it was made.

FILE.json          {"format", "version", "header", "cells": [cell]}
FILE.json.journal  a record per line, of a run that did not end: {"record": "header", "header"} or
                   {"record": "passes" | "block" | "worker" | "failure", "key", ...}

cell  = {"key": {net, batch, side, threads, callers}, "passes", "blocks", "workers", "failures"}
block = {"block", "session", "runs": {variant: {"ns": [...], "made", "minor", ...}}}   as turns were taken

They are read, never written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memoir.bench import journal, sessions
from memoir.bench.grid import Cell
from memoir.bench.journal import MEMBER
from memoir.bench.process.workers import Failure

from latency.cells import CellKey
from memoir import Error

FORMAT, VERSION = "memoir-torch-latency", 1


@dataclass
class Old:
    """A document with its journal's records in it."""

    header: dict[str, Any] = field(default_factory=dict)
    cells: list[dict[str, Any]] = field(default_factory=list)


def is_old(path: Path) -> bool:
    """True for a document of this format, or where only its journal is left."""
    if path.is_dir():
        return False
    if not path.exists():
        return _journal_of(path).exists()
    with path.open("rb") as file:
        return f'"{FORMAT}"'.encode() in file.read(200)


def read(path: Path) -> Old:
    """Raises memoir.Error, with the place, for what is damaged."""
    old = Old()
    if path.exists():
        old = _document(path)
    if _journal_of(path).exists():
        _read_journal(old, _journal_of(path))
    if not old.header:
        raise Error(f"{path}: has no header; run the benchmark again")
    return old


def rows(old: Old, row_fields: Callable[[dict], dict]) -> list[dict]:
    """Every turn and every failure as a bench's row; row_fields makes quantities of a turn."""
    found = []
    for cell in old.cells:
        key = CellKey(**cell["key"])
        for block in cell["blocks"]:
            for position, (variant, turn) in enumerate(block["runs"].items()):
                where = key.under(variant), block["session"], block["block"], position
                found.append(sessions.turn_row(*where, row_fields(turn), started=0.0))
        for failure in cell["failures"]:
            how = Failure(failure["what"], failure["last_lines"])
            found.append(sessions.failure_row(key.under(failure["variant"]), failure["session"], 0, how))
    return found


def members(old: Old) -> list[dict]:
    """Every process as a bench's member."""
    return [_member(CellKey(**cell["key"]), worker) for cell in old.cells for worker in cell["workers"]]


def _member(key: CellKey, worker: dict) -> dict:
    cell: Cell = key.under(worker["variant"])
    opened = {name: value for name, value in worker.items() if name not in ("session", "variant", "last")}
    seen = {"session": worker["session"], "opened": opened, "closed": worker["last"]}
    return {"record": MEMBER, **cell.to_dict(), **seen}


def _document(path: Path) -> Old:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Error(f"{path}: not a results file: {error}") from None
    if document.get("version") != VERSION:
        raise Error(f"{path}: version {document.get('version')}, but this program reads version {VERSION}")
    try:
        for cell in document["cells"]:
            _check_key(cell["key"])
        return Old(document["header"], document["cells"])
    except (KeyError, TypeError, ValueError) as error:
        raise Error(f"{path}: a cell or the header is damaged ({error!r}); run the benchmark again") from None


def _read_journal(old: Old, path: Path) -> None:
    cells = {json.dumps(cell["key"]): cell for cell in old.cells}
    for number, record in journal.read_lines(path):
        try:
            if record["record"] == "header":
                old.header = record["header"]
                continue
            _check_key(record["key"])
            cell = cells.get(json.dumps(record["key"]))
            if cell is None:
                cell = {"key": record["key"], "passes": None, "blocks": [], "workers": [], "failures": []}
                cells[json.dumps(record["key"])] = cell
                old.cells.append(cell)
            _apply(cell, record)
        except (ValueError, KeyError, TypeError) as error:
            raise Error(
                f"{path}:{number}: damaged record ({error!r}); delete this file to go without it"
            ) from None


def _apply(cell: dict[str, Any], record: dict[str, Any]) -> None:
    content = {name: value for name, value in record.items() if name not in ("record", "key")}
    if record["record"] == "passes":
        cell["passes"] = content["passes"]
        return
    entries = cell[{"block": "blocks", "worker": "workers", "failure": "failures"}[record["record"]]]
    if content not in entries:  # a journal that outlived its document says everything twice
        entries.append(content)


def _check_key(fields: dict[str, Any]) -> None:
    key = CellKey(**fields)
    numbers = (key.batch, key.side, key.threads, key.callers)
    if not isinstance(key.net, str) or not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"not the key of a cell: {fields}")


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + ".journal")
