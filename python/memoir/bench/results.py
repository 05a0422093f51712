# SPDX-License-Identifier: Apache-2.0
"""What a bench found: its rows, and the files they are kept in or read from."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memoir._core import Error
from memoir.base.files import write_output
from memoir.bench import journal
from memoir.bench.grid import Block, Cell, Metric, block_of, cell_of
from memoir.bench.journal import Record

STUDY = ("malloc", "Threads", "Work", "Load", "Replicate", "Time")
_MEASURED = (
    "user",
    "system",
    "peak_rss",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
)


@dataclass
class Result:
    """Rows of one bench, or of several old files knit together. Rows are dictionaries as in runs.jsonl."""

    header: Record
    rows: list[Record]
    notes: list[str] = field(default_factory=list)
    members: list[Record] = field(default_factory=list)  # of cells that stay alive between their turns

    @property
    def interleaved(self) -> bool:
        """True when replicates are blocks that were run in random order, so that pairing them is right."""
        return bool(self.header.get("interleaved"))

    @property
    def session_means(self) -> bool:
        """True when whole sessions were repeated (--sessions), so that they are what varies."""
        return int(self.header.get("options", {}).get("sessions") or 1) > 1

    @property
    def allocators(self) -> list[str]:
        named = [entry["name"] for entry in self.header.get("grid", {}).get("allocators", [])]
        return list(dict.fromkeys([*named, *(row["allocator"] for row in self.rows)]))

    @property
    def programs(self) -> list[str]:
        named = [entry["name"] for entry in self.header.get("grid", {}).get("programs", [])]
        return list(dict.fromkeys([*named, *(row["program"] for row in self.rows)]))

    @property
    def failures(self) -> list[Record]:
        return [row for row in self.rows if row["status"] != "ok"]

    @property
    def metrics(self) -> list[Metric]:
        """Every number that programs were asked to print."""
        programs = self.header.get("grid", {}).get("programs", [])
        found = [Metric(**metric) for program in programs for metric in program["metrics"]]
        return list({metric.name: metric for metric in found}.values())

    @property
    def leading_quantity(self) -> str:
        """What the answer is about: time, or the first number that the clients of servers print."""
        programs = self.header.get("grid", {}).get("programs", [])
        if programs and all(program.get("server") for program in programs) and self.metrics:
            return self.metrics[0].name
        return "wall"

    @property
    def seconds_per_replicate(self) -> float | None:
        """How long one replicate of every cell takes, from when runs were started; None where that is not known."""
        started: dict[Block, float] = {}
        for row in self.rows:
            if "started" in row:
                block = block_of(row)
                started[block] = min(row["started"], started.get(block, row["started"]))
        times = sorted(started.values())
        gaps = [second - first for first, second in zip(times, times[1:], strict=False)]
        return float(np.median(gaps)) if gaps else None

    def cells(self) -> dict[Cell, list[Record]]:
        """Rows that count, by cell, in the order of their blocks; a cell whose runs all failed has an empty list."""
        found: dict[Cell, list[Record]] = {}
        for row in self.rows:
            found.setdefault(cell_of(row), []).extend([row] if row["status"] == "ok" else [])
        for rows in found.values():
            rows.sort(key=block_of)
        return found

    def columns(self) -> dict[str, np.ndarray]:
        """One array per quantity over all rows: the study's columns first, then everything else."""
        flat = [_flat(row) for row in self.rows]
        names = list(dict.fromkeys(name for row in flat for name in row))
        return {name: _array([row.get(name) for row in flat]) for name in names}

    def frame(self, kind: str = "pandas") -> Any:
        """columns() as a pandas or polars DataFrame; imports that library only here."""
        if kind not in ("pandas", "polars"):
            raise Error(f"unknown frame {kind!r}: use pandas or polars")
        try:
            library = __import__(kind)
        except ImportError:
            raise Error(f"{kind} is not installed: pip install {kind}") from None
        return library.DataFrame(self.columns())

    def to_csv(self) -> str:
        """The study's columns (malloc,Threads,Work,Load,Replicate,Time), then ours; runs that count."""
        rows = [_flat(row) for row in self.rows if row["status"] == "ok"]
        names = list(dict.fromkeys([*STUDY, *(name for row in rows for name in row)]))
        names = [name for name in names if name not in ("status", "exit_code", "signal")]
        out = io.StringIO()
        writer = csv.DictWriter(out, names, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def to_json(self) -> Record:
        """hyperfine's export (results[]: command, mean, stddev, median, user, system, min, max, times,
        exit_codes, parameters), with ours next to it under "memoir".

        Cells that never succeeded are in "failures" only: hyperfine's readers expect numbers.
        """
        cells = self.cells()
        ours = {"header": self.header, "rows": self.rows, "notes": self.notes}
        if self.members:
            ours["members"] = self.members
        return {
            "results": [_hyperfine(cell, rows, self) for cell, rows in cells.items() if rows],
            "failures": [_without(row, ("memory",)) for row in self.failures],
            "memoir": ours,
        }

    def save(self, folder: Path) -> None:
        """Writes results.json and results.csv, each whole or not at all."""
        write_whole(
            folder / "results.json", json.dumps(journal.strict(self.to_json()), indent=1, allow_nan=False)
        )
        write_whole(folder / "results.csv", self.to_csv())


def write_whole(path: Path, content: str | bytes) -> None:
    """Puts a file in the place of what is there, so that no reader ever finds half of it."""
    write_output(
        path, content.encode(errors="backslashreplace") if isinstance(content, str) else content, force=True
    )


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


def _read_one(path: Path) -> Result:
    if path.is_dir():
        kept = [path / name for name in (journal.NAME, "results.json") if (path / name).is_file()]
        if not kept:
            raise Error(f"{path}: no bench in it (neither {journal.NAME} nor results.json)")
        path = kept[0]
    if not path.is_file():
        raise Error(f"no file {path}")
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.suffix == ".jsonl":
        header, rows, members = journal.read_all(path)
        return Result(header, rows, _kept_notes(path.with_name("results.json")), members)
    try:
        content = json.loads(path.read_bytes(), parse_constant=lambda name: None)
        if "memoir" not in content and "results" in content:
            return read_hyperfine(path, content["results"])
        ours = content["memoir"]
        found = Result(ours["header"], ours["rows"], ours.get("notes", []), ours.get("members", []))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Error(f"{path}: not a results.json of `memoir bench`") from None
    journal.check_rows(path, found.rows)
    return found


def read_hyperfine(path: Path, entries: Any) -> Result:
    """An export of hyperfine: commands stand where allocators do, parameters are axes; compared unpaired."""
    rows = []
    for entry in entries:
        command = str(entry["command"])
        parameters = {str(name): str(value) for name, value in (entry.get("parameters") or {}).items()}
        for name, value in parameters.items():
            command = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", f"{{{name}}}", command)
        codes = entry.get("exit_codes") or [0] * len(entry["times"])
        sizes = entry.get("memory_usage_byte") or [None] * len(entry["times"])
        whole = {
            name: int(parameters.pop(name))
            for name in ("threads", "load")
            if parameters.get(name, "").isdigit()
        }
        threads, load = max(1, whole.get("threads", 1)), max(1, whole.get("load", 1))
        for replicate, (seconds, code, size) in enumerate(zip(entry["times"], codes, sizes, strict=True)):
            row = {
                "program": "command",
                "allocator": command,
                "threads": threads,
                "load": load,
                "work": threads * load,
                "parameters": dict(parameters),
                "replicate": replicate,
                "status": "ok" if code in (0, None) else f"exit code {code}",
                "wall": float(seconds),
                "metrics": {},
            }
            rows.append(row | ({} if size is None else {"peak_rss": size}))
    journal.check_rows(path, rows)
    if not rows:
        raise Error(f"{path}: no runs")
    header = {"interleaved": False, "sources": [path.name]}
    return Result(header, rows, ["hyperfine runs one command after another: these are compared unpaired"])


def _kept_notes(path: Path) -> list[str]:
    """What was noted when the bench ended; the journal next to it has only header and runs."""
    try:
        return list(json.loads(path.read_text())["memoir"]["notes"])
    except (OSError, ValueError, KeyError):
        return []


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
                    raise ValueError(f"replicate {row['replicate']} of this cell is here for the second time")
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
    for column in _MEASURED:
        if entry.get(column):
            row[column] = float(entry[column])
    return row


def _flat(row: Record) -> Record:
    flat: Record = {
        "malloc": row["allocator"],
        "Threads": row["threads"],
        "Work": row["work"],
        "Load": row["load"],
        "Replicate": row["replicate"],
        "Time": row["wall"],
        "Aggregate Throughput": row["work"] / row["wall"] if row["wall"] else None,
        "Marginal Throughput": row["load"] / row["wall"] if row["wall"] else None,
        "program": row["program"],
        "status": row["status"],
    }
    flat |= {f"param_{name}": value for name, value in row["parameters"].items()}
    flat |= {name: row[name] for name in (*_MEASURED, "exit_code", "signal") if name in row}
    return {**flat, **row.get("metrics", {}), **row.get("counters", {})}


def _array(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values])
    if any(value is None for value in values):
        return np.array([math.nan if value is None else value for value in values])
    return np.array(values)


def _hyperfine(cell: Cell, rows: list[Record], result: Result) -> Record:
    times = np.array([row["wall"] for row in rows])
    mean = {name: float(np.mean([row.get(name, 0.0) for row in rows])) for name in ("user", "system")}
    parameters = {
        "allocator": cell.allocator,
        "threads": str(cell.threads),
        "load": str(cell.load),
        **dict(cell.parameters),
    }
    entry = {
        "command": f"{cell.program} " + " ".join(f"{name}={value}" for name, value in parameters.items()),
        "mean": float(times.mean()),
        "stddev": float(times.std(ddof=1)) if len(times) > 1 else None,
        "median": float(np.median(times)),
        **mean,
        "min": float(times.min()),
        "max": float(times.max()),
        "times": times.tolist(),
        "exit_codes": [row.get("exit_code", 0) for row in rows],
        "parameters": {"program": cell.program, **parameters},
    }
    if all("peak_rss" in row for row in rows):
        entry["memory_usage_byte"] = [row["peak_rss"] for row in rows]
    for program in result.header.get("grid", {}).get("programs", []):
        if program["name"] == cell.program:
            entry["command"] += f" -- {shlex.join(program['command'])}"
    return entry


def _without(row: Record, names: tuple[str, ...]) -> Record:
    return {name: value for name, value in row.items() if name not in names}
