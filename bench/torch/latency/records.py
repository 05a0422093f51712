# SPDX-License-Identifier: Apache-2.0
"""A run's records: the rows and members of memoir.bench, and a header that says how the passes were made.

A folder as every bench writes it (docs/reference/bench.md): runs.jsonl, results.json, results.csv.

row      a turn: wall, user, system, faults and cycles of one pass (wall: the median pass), and
         "turn": {"ns": [one number per pass], "made", "wall_ns", "anonymous", "minor", "user_us", ...}
member   a process: "opened": {"before", "warmup", "warmup_ns", "warmup_minor"}, memory before the first pass
         and after the warm-up; "closed": memory since, the output's hash, memoir's statistics
header   a bench's, with made_by, unit, date, commands, libraries, variants, skipped; options is the Design
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from memoir.bench import reading
from memoir.bench.experiment import new_header
from memoir.bench.grid import Grid, Program, cell_of
from memoir.bench.process.allocators import Allocator
from memoir.bench.recording import Recording
from memoir.bench.results import Result

from latency.cells import CellKey
from memoir import Error

MADE_BY = "bench/torch/torch_latency.py"
_SAME = ("seed", "warmup", "settle")  # what a resumed run must share with the one before


@dataclass
class Kept:
    """All that was kept of one cell, by allocator."""

    turns: dict[str, dict[tuple[int, int], dict]] = field(default_factory=dict)  # by (session, block)
    members: dict[str, list[dict]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def by_cell(result: Result) -> dict[CellKey, Kept]:
    """What was kept, cell by cell, in the order in which it was measured."""
    found: dict[CellKey, Kept] = {}
    for row in result.rows:
        kept = found.setdefault(CellKey.of(cell_of(row)), Kept())
        if row["status"] == "ok":
            block = (row["session"], row["replicate"])
            kept.turns.setdefault(row["allocator"], {})[block] = row["turn"]
        else:
            kept.failures[row["allocator"]] = row["status"]
    for member in result.members:
        kept = found.setdefault(CellKey.of(cell_of(member)), Kept())
        kept.members.setdefault(member["allocator"], []).append(member)
    return found


def row_fields(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as a row's quantities: those of one pass, in seconds."""
    made = turn["made"]
    fields = {
        "wall": float(np.median(turn["ns"])) / 1e9,
        "user": turn["user_us"] / made / 1e6,
        "system": turn["system_us"] / made / 1e6,
        "minor_faults": turn["minor"] / made,
        "major_faults": turn["major"] / made,
    }
    if "cycles" in turn:
        fields["counters"] = {"cycles_user": turn["cycles"] / made}
    return fields | {"turn": turn}


def passes_of(result: Result) -> dict[CellKey, int]:
    """Passes per turn and caller of every cell that has a turn: a resumed run makes as many."""
    passes = {}
    for row in result.rows:
        if row["status"] == "ok":
            key = CellKey.of(cell_of(row))
            passes[key] = len(row["turn"]["ns"]) // key.callers
    return passes


# --- the header ---


def header(
    keys: Iterable[CellKey],
    design: dict[str, Any],
    variants: dict[str, dict],
    skipped: dict[str, str],
    libraries: dict[str, str],
    commands: list[str],
) -> dict[str, Any]:
    """variants: what describe() says of each that runs; skipped: the others and why; libraries: versions."""
    return new_header(_grid(keys, variants), design) | {
        "made_by": MADE_BY,
        "unit": "pass",
        "date": time.strftime("%Y-%m-%d"),
        "commands": commands,
        "libraries": libraries,
        "variants": variants,
        "skipped": skipped,
    }


def joined_header(
    before: Result, now: dict[str, Any], keys: Iterable[CellKey], where: Path
) -> dict[str, Any]:
    """The header of a run that goes on with another's results, those at `where`; memoir.Error when it cannot."""
    old = before.header
    for name in _SAME:
        if old["options"][name] != now["options"][name]:
            raise Error(
                f"{where}: made with {name} {old['options'][name]}, not {now['options'][name]}: "
                f"give the same --{name}, or another -o"
            )
    for name, variant in now["variants"].items():
        known = old["variants"].get(name)
        if known and any(known[part] != variant[part] for part in ("environment", "library")):
            raise Error(f"{where}: made with another {name} ({known['library']}, {known['environment']})")
    if any(old["machine"][name] != now["machine"][name] for name in ("processor", "kernel")):
        raise Error(f"{where}: made on another machine or kernel; give another -o")
    variants = old["variants"] | now["variants"]
    every = dict.fromkeys([*map(CellKey.of, map(cell_of, before.rows)), *keys])
    return old | {
        "grid": _grid(every, variants).to_dict(),
        "options": now["options"],
        "versions": old["versions"] | now["versions"],
        "variants": variants,
        "commands": old["commands"] + now["commands"],
    }


def _grid(keys: Iterable[CellKey], variants: dict[str, dict]) -> Grid:
    """Every value of every axis; not all of its cells are measured."""
    cells = [key.under("") for key in keys]
    names = list(dict(cells[0].parameters)) if cells else []
    axes = {name: tuple(dict.fromkeys(dict(cell.parameters)[name] for cell in cells)) for name in names}
    return Grid(
        programs=tuple(Program(net, ()) for net in dict.fromkeys(cell.program for cell in cells)),
        allocators=tuple(
            Allocator(
                name, Path(one["library"]) if one["library"] else None, tuple(one["environment"].items())
            )
            for name, one in variants.items()
        ),
        threads=tuple(dict.fromkeys(cell.threads for cell in cells)) or (1,),
        parameters=tuple(axes.items()),
    )


# --- files ---


def read(path: Path) -> Result:
    """A folder or one of its files; raises memoir.Error with the place."""
    if not path.exists():
        raise Error(f"{path}: no such results")
    result = reading.read([path])
    if result.header.get("made_by") != MADE_BY:
        raise Error(f"{path}: not a bench of {MADE_BY}; `memoir bench --from {path}` may read it")
    return result


def resume(path: Path, now: dict[str, Any], keys: Iterable[CellKey]) -> Recording:
    """Results to go on with, `now` being the header of the run that does; memoir.Error when they do not fit."""
    header = joined_header(read(path), now, keys, path)
    recording = Recording.resume(path if path.is_dir() else path.parent)
    recording.change_header(header)
    return recording
