# SPDX-License-Identifier: Apache-2.0
"""The loop that runs an experiment: sessions, warm-ups, replicates, until intervals are narrow enough."""

from __future__ import annotations

import time
from collections.abc import Callable

from memoir.base.files import Record
from memoir.bench.experiment import Experiment
from memoir.bench.grid import Cell, cell_of
from memoir.bench.recording import Recording


def run_all(
    experiment: Experiment,
    recording: Recording,
    narrow_enough: Callable[[float], bool] | None = None,
    on_run: Callable[[str, Record], None] = lambda phase, row: None,
) -> None:
    """Warm-ups, then replicate by replicate; what the recording has already is not run again.

    narrow_enough decides after each replicate, once the asked number is reached, whether all intervals are
    as narrow as --until asks.
    On Ctrl-C what is done stays in the recording, and KeyboardInterrupt goes on up.
    """
    options = experiment.options
    done = frozenset((row.get("session", 0), row["replicate"], cell_of(row)) for row in recording.result.rows)
    for session in range(options.sessions):
        if session and options.pause:
            time.sleep(options.pause)
        cells = experiment.grid.cells()
        if options.sessions > 1 and all(
            (session, number, cell) in done for number in range(options.replicates) for cell in cells
        ):
            continue
        for warmup in range(options.warmup):
            for position, cell in experiment.replicate(-1 - warmup, session=session):
                on_run("warm-up", experiment.run_cell(cell, 0, position, session))
        _run_session(experiment, recording, session, done, narrow_enough, on_run)


def _run_session(
    experiment: Experiment,
    recording: Recording,
    session: int,
    done: frozenset[tuple[int, int, Cell]],
    narrow_enough: Callable[[float], bool] | None,
    on_run: Callable[[str, Record], None],
) -> None:
    options = experiment.options
    began, number = time.monotonic(), 0
    while True:
        if number >= options.replicates:
            if options.until is None or narrow_enough is None or narrow_enough(options.until):
                break
            if time.monotonic() - began > options.budget:
                experiment.notes.append(
                    f"the budget of {options.budget:.0f} s ended before every interval was within "
                    f"{options.until:.1%} of its ratio"
                )
                break
        for position, cell in experiment.replicate(number, done, session):
            row = experiment.run_cell(cell, number, position, session)
            recording.add(row)
            on_run("replicate", row)
        recording.sync()
        number += 1
