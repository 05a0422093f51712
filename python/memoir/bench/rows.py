# SPDX-License-Identifier: Apache-2.0
"""One run as a line of the results file."""

from __future__ import annotations

import re

from memoir._core import Error
from memoir.base.files import Record
from memoir.bench.grid import Cell, Program
from memoir.bench.process import launch, memory
from memoir.bench.process.clients import Turn

_NOT_IN_A_ROW = ("said", "memory", "images")
_SERIES = re.compile(r"^memory ([0-9.]+) ([0-9]+) ([0-9]+)$", re.MULTILINE)


def record(
    program: Program,
    cell: Cell,
    replicate: int,
    position: int,
    started: float,
    measurement: launch.Measurement,
    turn: Turn | None,
    exit_code: int,
) -> Record:
    """One line of the results file."""
    said = measurement.said if turn is None else turn.said
    metrics = {
        metric.name: said.last_number(compile_metric(metric.pattern))
        for metric in program.metrics
        if metric.pattern
    }
    status = turn.failure if turn is not None else None
    status = status or measurement.failure
    if status is None and measurement.exit_code != exit_code and not measurement.asked:
        status = f"exit code {measurement.exit_code}"
    if status is None and None in metrics.values():
        status = "no metric"
    row = {
        **cell.to_dict(),
        "replicate": replicate,
        "position": position,
        "started": round(started, 3),
        "status": status or "ok",
        **{name: value for name, value in vars(measurement).items() if name not in _NOT_IN_A_ROW},
        "metrics": metrics,
    }
    if turn is not None:
        row["ready"] = round(turn.ready, 6)
        if program.server:
            row |= {"server_wall": measurement.wall, "wall": turn.wall}
    if measurement.memory:
        marks = turn.marks if turn is not None else memory.marks_of(said.tail(1 << 20), measurement.memory)
        row |= memory.numbers(measurement.memory, marks, bool(turn is not None and program.settle))
        row["samples"] = memory.thinned(measurement.memory)
    series = [[float(t), int(live), int(resident)] for t, live, resident in said.matches(_SERIES)]
    if series:
        row["memory"] = series
    if status:
        row["tail"] = [*measurement.tail, *(turn.said.last_lines() if turn is not None else [])]
    return row


def compile_metric(pattern: str) -> re.Pattern[str]:
    """Raises memoir.Error for an invalid pattern, and for one that captures nothing."""
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise Error(f"metric {pattern!r} is not a regular expression: {error}") from None
    if compiled.groups < 1:
        raise Error(
            f"metric {pattern!r} captures nothing: put the number in parentheses, as in 'ops: ([0-9.]+)'"
        )
    return compiled
