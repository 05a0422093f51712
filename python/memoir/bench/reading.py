# SPDX-License-Identifier: Apache-2.0
"""Reads results: of memoir bench, of hyperfine, and the CSV files of the study."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Record, read_beside, read_regular
from memoir.bench import hyperfine, journal
from memoir.bench.grid import Block, Cell, block_of, cell_of
from memoir.bench.results import MEASURED, STUDY, Result


def read(paths: Sequence[Path]) -> Result:
    """Reads folders, runs.jsonl, results.json or a study's CSV files; several are knit together.

    Raises memoir.Error naming file and line for what cannot be read, and for runs that two files both claim.
    """
    parts = [(path, _read_one(path)) for path in paths]
    if len(parts) == 1:
        return parts[0][1]
    seen: dict[tuple[Cell, Block], Path] = {}
    for path, part in parts:
        for row in part.rows:
            key = (cell_of(row), block_of(row))
            if key in seen and seen[key] != path:
                raise Error(
                    f"{path}: {row['allocator']}, threads {row['threads']}, load {row['load']}, replicate "
                    f"{row['replicate']} is in {seen[key]} too; compare two benches with `memoir diff`"
                )
            seen[key] = path
    header = {"interleaved": False, "sources": [path.name for path in paths]}
    note = "the files were measured one after another: drift cannot be told from the allocator"
    return Result(header, [row for _, part in parts for row in part.rows], [note])


def file_of(path: Path) -> Path:
    """Of a folder of results, the file that is read. Raises memoir.Error where there is none."""
    if not path.is_dir():
        return path
    kept = [path / name for name in (journal.NAME, "results.json") if (path / name).is_file()]
    if not kept:
        raise Error(f"{path}: no bench in it (neither {journal.NAME} nor results.json)")
    return kept[0]


def _read_one(path: Path) -> Result:
    path = file_of(path)
    if not path.is_file():
        raise Error(f"no file {path}")
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.suffix == ".jsonl":
        header, rows, members = journal.read_all(path)
        return Result(header, rows, _kept_notes(path.with_name("results.json")), members)
    try:
        content = json.loads(read_regular(path), parse_constant=lambda name: None)
        if "memoir" not in content and "results" in content:
            return hyperfine.read_export(path, content["results"])
        ours = content["memoir"]
        found = Result(ours["header"], ours["rows"], ours.get("notes", []), ours.get("members", []))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise Error(f"{path}: not a results.json of `memoir bench`") from None
    if not isinstance(found.header, dict) or not all(isinstance(note, str) for note in found.notes):
        raise Error(f"{path}: not a results.json of `memoir bench`")
    journal.check_header(path, found.header)
    journal.check_rows(path, found.rows)
    journal.check_members(path, found.members)
    return found


def _kept_notes(path: Path) -> list[str]:
    """What was noted when the bench ended; the journal next to it has only header and runs."""
    try:
        notes = json.loads(read_beside(path, 1 << 28))["memoir"]["notes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _read_csv(path: Path) -> Result:
    """The study's files: an allocator each, named malloc=NAME+ext=.csv, or all with a malloc column."""
    named = re.search(r"malloc=([^+]+)", path.stem)
    rows = []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        for needed in ("Threads", "Load", "Time"):
            if needed not in names:
                raise Error(f"{path}:1: no column {needed}; a study's file has {','.join(STUDY)}")
        seen: set[tuple[Cell, Block]] = set()
        counted: dict[tuple[object, ...], int] = {}
        for entry in reader:
            try:
                row = _study_row(entry, named.group(1) if named else path.stem, counted)
                key = (cell_of(row), block_of(row))
                if key in seen:
                    raise ValueError(f"replicate {row['replicate']} of this cell occurs twice")
            except (ValueError, TypeError) as error:
                raise Error(f"{path}:{reader.line_num}: {error}") from None
            seen.add(key)
            rows.append(row)
    if not rows:
        raise Error(f"{path}: no runs")
    header = {"interleaved": False, "sources": [path.name]}
    return Result(header, rows, ["runs of a CSV file are compared unpaired: their order is not known"])


def _study_row(entry: Record, name: str, counted: dict[tuple[object, ...], int]) -> Record:
    seconds, threads, load = float(entry["Time"]), int(entry["Threads"]), int(entry["Load"])
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"Time {entry['Time']} is not a positive number")
    if threads < 1 or load < 1:
        raise ValueError("Threads and Load must be 1 or more")
    allocator = entry.get("malloc") or name
    program = entry.get("program") or "program"
    parameters = {
        key[6:]: value for key, value in entry.items() if key and key.startswith("param_") and value
    }
    key = (program, allocator, threads, load, *parameters.items())
    replicate = int(entry["Replicate"]) if entry.get("Replicate") else counted.get(key, 0)
    counted[key] = replicate + 1
    row = {
        "program": program,
        "allocator": allocator,
        "threads": threads,
        "load": load,
        "work": int(entry["Work"]) if entry.get("Work") else threads * load,
        "parameters": parameters,
        "replicate": replicate,
        "status": "ok",
        "wall": seconds,
        "metrics": {},
    }
    for column in MEASURED:
        if entry.get(column):
            row[column] = float(entry[column])
    return row
