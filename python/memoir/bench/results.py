# SPDX-License-Identifier: Apache-2.0
"""What a bench found: its rows, and the files that are written of them (reading.py reads them)."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memoir._core import Error
from memoir.base.files import Record, write_output
from memoir.bench import journal
from memoir.bench.grid import Block, Cell, Metric, block_of, cell_of

STUDY = ("malloc", "Threads", "Work", "Load", "Replicate", "Time")
MEASURED = (
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
        found = [Metric.from_dict(metric) for program in programs for metric in program.get("metrics", ())]
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
        writer.writerow({name: _cell(name) for name in names})
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
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


def _cell(value: Any) -> Any:
    """For spreadsheets, which run texts that begin so: a name may be anybody's."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
        return value
    except ValueError:
        return f"'{value}"


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
    flat |= {name: row[name] for name in (*MEASURED, "exit_code", "signal") if name in row}
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
