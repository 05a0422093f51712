# SPDX-License-Identifier: Apache-2.0
"""The planners by name, the core's and Python's: the one list behind memoir.plan() and `memoir plan`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from memoir import _core
from memoir._core import Error
from memoir.planning.planners.planner import DEADLINE, Effort, Outcome, Planner


def _search(exact: bool) -> Callable[[_core.Problem, Effort], Outcome]:
    def run(problem: _core.Problem, effort: Effort) -> Outcome:
        found = _core.search(
            problem,
            exact=exact,
            deadline=DEADLINE if effort.deadline is None else effort.deadline,
            work_limit=effort.work_limit,
            threads=effort.threads,
            seed=effort.seed,
            capacity=effort.capacity,
            tolerance=effort.tolerance.pair,
        )
        return Outcome(
            found.plan,
            found.lower_bound,
            bound_reason=found.bound_reason,
            interrupted=found.interrupted,
            starved=found.starved,
        )

    return run


def _native(name: str) -> Callable[[_core.Problem, Effort], Outcome]:
    def run(problem: _core.Problem, effort: Effort) -> Outcome:
        return Outcome(_core.run_planner(name, problem, effort.deadline))

    return run


def _first_fit(problem: _core.Problem, effort: Effort) -> Outcome:
    found = _core.plan_constrained(
        _core.ConstrainedProblem(problem),
        "first_fit",
        capacity=effort.capacity,
        tolerance=effort.tolerance.pair,
    )
    return Outcome(found.plan)


def _mip(problem: _core.Problem, effort: Effort) -> Outcome:
    from memoir.planning.planners import mip

    return mip.run(problem, effort)


def _cpsat(problem: _core.Problem, effort: Effort) -> Outcome:
    from memoir.planning.planners import cpsat

    return cpsat.run(problem, effort)


# Never the only best over 90 problems, or the tests' oracle: each is there by its name, and in no list that is shown.
_BY_NAME = {
    "bump",
    "mincost_flow",
    "greedy_by_conflicts",
    "first_fit_by_length",
    "first_fit_by_area",
    "cpsat",
}

PLANNERS: dict[str, Planner] = {
    planner.name: dataclasses.replace(planner, shown=planner.name not in _BY_NAME)
    for planner in (
        Planner(
            "auto", "an anytime portfolio: parts apart, cheap methods first, then search", _search(False)
        ),
        Planner("exact", "complete search of each part, with a proof where it ends", _search(True)),
        Planner("first_fit", "five orders, each buffer to the lowest place or the tightest gap", _first_fit),
        *(Planner(name, what, _native(name)) for name, what in _core.planners()),
        Planner("mip", "a mixed-integer program for HiGHS, with a proven bound", _mip),
        Planner("cpsat", "rectangles without overlap for OR-tools, with a proven bound", _cpsat),
    )
}


SHOWN = tuple(name for name, planner in PLANNERS.items() if planner.shown)
# What one word stands for; "thesis": what MemoMalloc, a thesis on static planning, compares.
SETS: dict[str, tuple[str, ...]] = {
    "all": SHOWN,
    "thesis": ("bump", "greedy_by_size", "gergov", "mincost_flow", "mip"),
}


def find(name: str) -> Planner:
    """Raises Error, listing the names, when there is none of that name."""
    if name not in PLANNERS:
        raise Error(
            f"there is no planner called '{name}'; there are {', '.join(SHOWN)}, and by name {', '.join(sorted(_BY_NAME))}"
        )
    return PLANNERS[name]
