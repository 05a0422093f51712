# SPDX-License-Identifier: Apache-2.0
"""The planners by name, the core's and Python's: the one list behind memoir.plan() and `memoir plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memoir import _core


@dataclass(frozen=True)
class Outcome:
    """What a planner found, and the floor that it proved (bytes, or 0)."""

    plan: _core.Plan
    lower_bound: int = 0
    maker: str = ""  # the planner that made it, where one planner chose among others
    bound_reason: str = ""  # why no plan is smaller than lower_bound
    interrupted: bool = False  # by Ctrl-C: the best so far


@dataclass(frozen=True)
class Effort:
    """How long a planner that searches may go on, and with what. The others do not look at it."""

    deadline: float | None = None  # seconds; None: the planner's own
    capacity: int | None = None  # bytes: it may stop once that is met
    threads: int = 0  # 0: one per core
    seed: int = 0
    work_limit: int = 0  # placements tried, instead of a deadline: the same plan on any machine; 0: none

    def check(self) -> None:
        """Raises Error for what cannot be."""
        if self.deadline is not None and not self.deadline >= 0:
            raise _core.Error(f"the deadline must be 0 seconds or more, not {self.deadline}")
        for name, value in (
            ("threads", self.threads),
            ("seed", self.seed),
            ("work limit", self.work_limit),
        ):
            if value < 0:
                raise _core.Error(f"the {name} must be 0 or more, not {value}")
        if self.capacity is not None and self.capacity < 0:
            raise _core.Error(f"the capacity must be 0 bytes or more, not {self.capacity}")


@dataclass(frozen=True)
class Planner:
    name: str
    what: str
    run: Callable[[_core.Problem, Effort], Outcome]


DEADLINE = 1.0  # seconds, when none is given


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
        )
        return Outcome(
            found.plan, found.lower_bound, bound_reason=found.bound_reason, interrupted=found.interrupted
        )

    return run


def _native(name: str) -> Callable[[_core.Problem, Effort], Outcome]:
    def run(problem: _core.Problem, effort: Effort) -> Outcome:
        return Outcome(_core.run_planner(name, problem))

    return run


def _first_fit(problem: _core.Problem, effort: Effort) -> Outcome:
    found = _core.plan_constrained(_core.ConstrainedProblem(problem), "first_fit", capacity=effort.capacity)
    return Outcome(found.plan)


def _mip(problem: _core.Problem, effort: Effort) -> Outcome:
    from memoir.planning.planners import mip

    return mip.run(problem, effort.deadline, effort.capacity)


def _cpsat(problem: _core.Problem, effort: Effort) -> Outcome:
    from memoir.planning.planners import cpsat

    return cpsat.run(problem, effort.deadline, effort.capacity, effort.threads, effort.seed)


PLANNERS: dict[str, Planner] = {
    planner.name: planner
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


def find(name: str) -> Planner:
    """Raises Error, listing the names, when there is none of that name."""
    if name not in PLANNERS:
        raise _core.Error(f"there is no planner called '{name}'; there are {', '.join(PLANNERS)}")
    return PLANNERS[name]
