# SPDX-License-Identifier: Apache-2.0
"""--search of `memoir simulate` and `memoir oom`: PyTorch's settings, searched for a while behind a progress bar."""

from __future__ import annotations

import sys
from typing import Any

from memoir._core import Error, Workload
from memoir.base.quantities import DURATION_UNITS, bytes_text, read_duration
from memoir.base.work_budget import allow

GOALS = ("reserved", "calls")


def search_effort(text: str) -> tuple[float, str]:
    """Seconds and the goal, of '30s', '2min', '30', '30s,calls'. Error for what is not a duration, or another goal."""
    time, _, goal = text.partition(",")
    found = read_duration(time)
    if goal and goal not in GOALS:
        raise Error(f"'{text}' is not a time to search for, with what to make small: {' or '.join(GOALS)}")
    if found is None or found == 0:
        raise Error(
            f"'{text}' is not a time to search for: give seconds (30), or one of {', '.join(DURATION_UNITS)}"
        )
    return found / 1e9, goal or GOALS[0]


def search_settings(
    workload: Workload,
    seconds: float,
    *,
    goal: str,
    cap: int | None = None,
    recorded: str = "",
    workers: int | None = None,
) -> dict[str, Any]:
    """memoir.simulation.search.search(), with a bar on a terminal."""
    from memoir.simulation.search import search
    from memoir.sweep import cores

    allow(seconds * (workers or cores()))
    if not sys.stderr.isatty():
        return search(workload, seconds, goal=goal, cap=cap, recorded=recorded, workers=workers)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("searching"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=seconds)

        def tell(elapsed: float, tried: int, best: int | None) -> None:
            least = (
                "none completes" if best is None else bytes_text(best) if goal == "reserved" else f"{best:,}"
            )
            progress.update(
                bar, completed=min(elapsed, seconds), description=f"{tried:,} tried, best {least}"
            )

        return search(workload, seconds, goal=goal, cap=cap, recorded=recorded, workers=workers, tell=tell)
