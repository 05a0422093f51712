# SPDX-License-Identifier: Apache-2.0
"""The planners by name, the core's and Python's: the one list behind memoir.plan() and `memoir plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memoir import _core


@dataclass(frozen=True)
class Outcome:
    """What a planner found: one offset per buffer, and the floor that it proved (bytes, or 0)."""

    offsets: np.ndarray
    arena_size: int
    lower_bound: int = 0
    maker: str = ""  # the planner that made it, where one planner chose among others


@dataclass(frozen=True)
class Planner:
    name: str
    what: str
    # (problem, deadline in seconds or None, capacity in bytes or None); with a capacity it may stop once that
    # is met
    run: Callable[[_core.Problem, float | None, int | None], Outcome]


def _auto(problem: _core.Problem, deadline: float | None, capacity: int | None) -> Outcome:
    offsets, arena_size, maker = _core.plan_quickly(problem)
    return Outcome(offsets, arena_size, maker=maker)


def _native(name: str) -> Callable[..., Outcome]:
    def run(problem: _core.Problem, deadline: float | None, capacity: int | None) -> Outcome:
        return Outcome(*_core.run_planner(name, problem))

    return run


def _mip(problem: _core.Problem, deadline: float | None, capacity: int | None) -> Outcome:
    from memoir.planners import mip

    return mip.run(problem, deadline, capacity)


PLANNERS: dict[str, Planner] = {
    planner.name: planner
    for planner in (
        Planner("auto", "the best of the cheap ones", _auto),
        *(Planner(name, what, _native(name)) for name, what in _core.planners()),
        Planner("mip", "a mixed-integer program for HiGHS, with a proven bound", _mip),
    )
}


def find(name: str) -> Planner:
    """Raises Error, listing the names, when there is none of that name."""
    if name not in PLANNERS:
        raise _core.Error(f"there is no planner called '{name}'; there are {', '.join(PLANNERS)}")
    return PLANNERS[name]
