# SPDX-License-Identifier: Apache-2.0
"""The results file: one JSON document, grown through an append-only journal so that none is half-written.

FILE.json          the document, replaced as a whole (written beside it, then renamed) when a run ends
FILE.json.journal  while a run goes on: a record per line, flushed to the disk; a line that a crash cut off
                   is dropped, and what came before it counts

document = {"format", "version", "header": {...}, "cells": [cell]}
cell     = {"key": {net, batch, side, threads, callers}, "passes",
            "blocks": [block], "workers": [...], "failures": [...]}
block    = {"block", "session", "runs": {variant: {"ns": [...], "made", "minor", ...}}}   as turns were taken
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from latency.schedule import CellKey
from memoir import Error

FORMAT, VERSION = "memoir-torch-latency", 1
_SAME = ("seed", "warmup", "settle")  # what a resumed run must share with the file


class Results:
    """What has been measured so far. `record` keeps one more thing, in memory and in the journal."""

    def __init__(self, path: Path | None, header: dict[str, Any]) -> None:
        self.path = path
        self.header = header
        self.cells: dict[CellKey, dict[str, Any]] = {}
        self._journal = None

    # --- reading ---

    @classmethod
    def read(cls, path: Path) -> Results:
        """Reads a file and the journal of a run that did not end; raises memoir.Error with the place."""
        journal = _journal_of(path)
        if not path.exists() and not journal.exists():
            raise Error(f"{path}: no such results file")
        results = cls(path, {})
        if path.exists():
            results._read_document(path)
        if journal.exists():
            results._read_journal(journal)
        return results

    def _read_document(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise Error(f"{path}: not a results file: {error}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise Error(f'{path}: not a results file of torch_latency.py: "format" is not "{FORMAT}"')
        if document.get("version") != VERSION:
            raise Error(
                f"{path}: version {document.get('version')}, but this program reads version {VERSION}"
            )
        try:
            self.header = document["header"]
            self.cells = {CellKey.parse(cell["key"]): cell for cell in document["cells"]}
        except (KeyError, TypeError, ValueError) as error:
            raise Error(
                f"{path}: a cell or the header is damaged ({error!r}); run the benchmark again"
            ) from None

    def _read_journal(self, journal: Path) -> None:
        lines = journal.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):  # the last piece is empty or was cut off
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise Error(
                    f"{journal}:{number}: damaged record ({error!r}); delete this file to go without it"
                ) from None

    # --- writing ---

    def start(self) -> None:
        """Opens the journal; the header is its first record."""
        if self.path is None:
            return
        self._journal = _journal_of(self.path).open("ab")
        self._append({"record": "header", "header": self.header})

    def record(self, kind: str, key: CellKey, **content: Any) -> None:
        """kind: "passes", "block", "worker" or "failure"."""
        record = {"record": kind, "key": key.as_dict(), **content}
        self._apply(record)
        if self._journal is not None:
            self._append(record)

    def finish(self) -> None:
        """Writes the document as a whole, then removes the journal."""
        if self.path is None:
            return
        document = {
            "format": FORMAT,
            "version": VERSION,
            "header": self.header,
            "cells": list(self.cells.values()),
        }
        temporary = self.path.with_name(self.path.name + ".new")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(_pretty(document))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        if self._journal is not None:
            self._journal.close()
        _journal_of(self.path).unlink(missing_ok=True)

    def continues(self, header: dict[str, Any]) -> None:
        """Takes over the header of a resumed run; raises memoir.Error when the two cannot be put together."""
        if not self.header:
            self.header = header
            return
        for name in _SAME:
            if self.header["design"][name] != header["design"][name]:
                raise Error(
                    f"{self.path}: made with {name} {self.header['design'][name]}, "
                    f"not {header['design'][name]}: "
                    f"give the same --{name}, or another -o"
                )
        for name, variant in header["variants"].items():
            known = self.header["variants"].get(name)
            if known and (known["environment"], known["library"]) != (
                variant["environment"],
                variant["library"],
            ):
                raise Error(
                    f"{self.path}: made with another {name} ({known['library']}, {known['environment']})"
                )
        if any(self.header["machine"][name] != header["machine"][name] for name in ("processor", "kernel")):
            raise Error(f"{self.path}: made on another machine or kernel; give another -o")
        self.header["variants"] |= header["variants"]
        self.header["commands"] += header["commands"]
        self.header["design"] = header["design"]

    def _append(self, record: dict[str, Any]) -> None:
        self._journal.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def _apply(self, record: dict[str, Any]) -> None:
        kind = record["record"]
        if kind == "header":
            self.header = record["header"]
            return
        cell = self.cells.setdefault(
            CellKey.parse(record["key"]),
            {"key": record["key"], "passes": None, "blocks": [], "workers": [], "failures": []},
        )
        content = {name: value for name, value in record.items() if name not in ("record", "key")}
        if kind == "passes":
            cell["passes"] = content["passes"]
        else:
            entries = cell[{"block": "blocks", "worker": "workers", "failure": "failures"}[kind]]
            if content not in entries:  # a journal that outlived its document says everything twice
                entries.append(content)


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _pretty(document: dict[str, Any]) -> str:
    """Readable by people and by diff: one line per block and per worker."""
    head = {name: value for name, value in document.items() if name != "cells"}
    lines = [json.dumps(head, indent=1)[:-2] + ',\n "cells": [']
    for index, cell in enumerate(document["cells"]):
        lines.append(f'  {{"key": {json.dumps(cell["key"])}, "passes": {json.dumps(cell["passes"])},')
        lists = [f'   "{name}": {_one_per_line(cell[name])}' for name in ("blocks", "workers", "failures")]
        lines.append(",\n".join(lists) + ("}," if index + 1 < len(document["cells"]) else "}"))
    return "\n".join(lines) + "\n ]\n}\n"


def _one_per_line(entries: list[Any]) -> str:
    if not entries:
        return "[]"
    return (
        "[\n" + ",\n".join("    " + json.dumps(entry, separators=(",", ":")) for entry in entries) + "\n   ]"
    )
