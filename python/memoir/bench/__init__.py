# SPDX-License-Identifier: Apache-2.0
"""Allocators against each other, honestly: what `memoir bench` does, for Python.

    import memoir.bench
    result = memoir.bench.run("system,jemalloc", ["./server", "-j{threads}"], threads=[1, 2], replicates=20)
    memoir.bench.analyse(result).overall["jemalloc"].interval      # (ratio, low, high)
    result.columns()                                               # numpy arrays
    result.frame("pandas")                                         # or "polars"

`statistics` serves every measurement of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memoir._core import Error
from memoir.bench.analysis import analyse, analyse_all, widest
from memoir.bench.experiment import Experiment
from memoir.bench.grid import Grid, Metric, Program
from memoir.bench.loop import run_all
from memoir.bench.options import Options
from memoir.bench.process import allocators as _allocators
from memoir.bench.reading import read
from memoir.bench.recording import Recording, check_output
from memoir.bench.results import Result
from memoir.bench.suite import programs as _suite
from memoir.bench.verdicts import Analysis

__all__ = [
    "Analysis",
    "Experiment",
    "Grid",
    "Metric",
    "Options",
    "Program",
    "Result",
    "analyse",
    "analyse_all",
    "read",
    "run",
]


def run(
    allocators: str = "system",
    command: Sequence[str] = (),
    *,
    threads: Sequence[int] | None = None,
    load: Sequence[int] = (1,),
    parameters: Mapping[str, Sequence[str]] | None = None,
    metrics: Sequence[Metric] = (),
    suite: str | None = None,
    smoke: bool = False,
    output: Path | str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Result:
    """Runs a grid and returns its Result, as `memoir bench` would.

    allocators and command are as on the command line; suite: built-in workloads instead of a command.
    output: a folder for runs.jsonl, results.json and results.csv; None keeps the rows in memory only.
    options: the fields of Options (replicates, warmup, seed, pin, timeout, exit_code, prepare, until, ...).
    Raises memoir.Error for any bad argument, before anything is measured.
    """
    programs = (
        _suite(suite, smoke) if suite else (Program(_name(command), tuple(command), metrics=tuple(metrics)),)
    )
    grid = Grid(
        programs=programs,
        allocators=tuple(_allocators.parse(allocators)),
        threads=tuple(threads or (1,)),
        loads=tuple(load),
        parameters=tuple((name, tuple(map(str, values))) for name, values in (parameters or {}).items()),
        threads_given=threads is not None,
        extra_placeholders=("port",) if suite else (),
    )
    experiment = Experiment(grid, Options(**options))
    folder = Path(output) if output else None
    if folder:
        check_output(folder, force=False)
    experiment.check(progress)
    with Recording.begin(experiment.header(), folder, notes=experiment.notes) as recording:
        result = recording.result
        recording.change_header(result.header | {"proofs": experiment.proof_records()})
        run_all(experiment, recording, narrow_enough=lambda width: widest(result) <= width)
    recording.save()
    return result


def _name(command: Sequence[str]) -> str:
    if not command:
        raise Error("no command to measure, and no suite")
    return Path(command[0]).name
