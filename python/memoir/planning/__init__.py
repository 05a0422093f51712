# SPDX-License-Identifier: Apache-2.0
"""memoir.plan(): arrays of buffers in, an array of offsets out. Only arrays need numpy, which is imported with the
first of them: a problem that the core has read from a file is planned without."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memoir._core import ConstrainedProblem, Plan, Problem, aligned_load, check, load
from memoir.planning.constraints import Arena, Beside
from memoir.planning.planners import Effort, find

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class PlanResult:
    """A plan, and how good it is. Sizes in bytes."""

    planner: str  # as asked for
    maker: str  # the planner that made it: another one only for `auto`
    buffers: int
    load: int  # the most bytes live at one tick
    lower_bound: (
        int  # no arena can be smaller: the load, knowing of alignment, or more where a planner proved more
    )
    arena_size: int
    optimal: bool  # arena_size == lower_bound
    seconds: float  # of planning, the clock on the wall
    capacity: int | None
    fits: bool | None  # arena_size <= capacity; None without a capacity
    bound_reason: str  # why no arena is smaller than lower_bound; empty where it is the load or the alignment
    interrupted: bool  # by Ctrl-C: the best so far
    plan: Plan  # of the core

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """uint64, one per buffer, in bytes."""
        return self.plan.offsets

    @property
    def hopeless(self) -> bool:
        """True when it is proven that no plan fits the capacity."""
        return self.capacity is not None and self.capacity < self.lower_bound

    def summary(self) -> dict[str, Any]:
        """All but the offsets, as `memoir plan --json` prints it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "plan"}


def plan(
    problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any],
    planner: str = "auto",
    *,
    deadline: float | None = None,
    capacity: int | None = None,
    threads: int = 0,
    seed: int = 0,
    work_limit: int = 0,
    arenas: Sequence[Arena] = (),
    forbid: Sequence[tuple] = (),
    banks: tuple[int, int] | None = None,
    conflicts: Any = None,
    replan: Any = None,
    moves: int | None = None,
    locality: bool = False,
) -> PlanResult:
    """Gives every buffer an offset such that no two that live at the same time overlap.

    `problem` is a structured array, a mapping or a sequence of the arrays lower, upper (exclusive), size and
    perhaps alignment. The deadline in seconds binds the planners that would otherwise search on (auto and
    exact: 1 unless given; mip and cpsat: 10); with a capacity in bytes those stop at the first plan that fits. auto and
    exact use `threads` threads (0: one per core); with a work limit (placements tried) instead of a deadline
    they give the same plan for the same seed on any machine. Raises Error for what is no problem, or too much
    for that planner. Releases the GIL while it plans; Ctrl-C ends auto and exact with their best.

    A mapping may say more (docs/constraints.md): per buffer `size_low`, `fixed`, `hint`, `alias` (-1: none),
    `weight`, `arenas`; as rows `gaps`, `in_place`, `apart`. Beside it: `arenas` to choose from, `forbid`
    ([arena,] begin, end), `banks` (count, width), `conflicts` (pairs of buffers), `replan` (earlier offsets or
    result) with at most `moves` moved, `locality`. Then the result is a ConstrainedPlanResult.
    """
    effort = Effort(deadline, capacity, threads, seed, work_limit)
    effort.check()
    if not isinstance(problem, ConstrainedProblem):
        beside = Beside(arenas, forbid, banks, conflicts, replan, moves, locality)
        if beside.any() or not isinstance(problem, Problem):
            from memoir.planning.arrays import constrain, split_problem

            problem, said, timed = split_problem(problem)
            if beside.any() or said or not timed:
                problem = constrain(problem, said, beside, timed=timed)
    if isinstance(problem, ConstrainedProblem):
        from memoir.planning.constrained import plan_constrained

        return plan_constrained(problem, planner, effort, arenas)
    chosen = find(planner)
    began = time.perf_counter()
    outcome = chosen.run(problem, effort)
    seconds = time.perf_counter() - began
    violation = check(problem, outcome.plan)
    if violation is not None:  # a bug of ours, never to be handed out
        raise AssertionError(f"{planner} made a plan that is none: buffers {violation}")
    arena_size = outcome.plan.arena_size
    lower_bound = max(aligned_load(problem), outcome.lower_bound)
    return PlanResult(
        planner=planner,
        maker=outcome.maker or planner,
        buffers=len(problem),
        load=load(problem),
        lower_bound=lower_bound,
        arena_size=arena_size,
        optimal=arena_size == lower_bound,
        seconds=seconds,
        capacity=capacity,
        fits=None if capacity is None else arena_size <= capacity,
        bound_reason=outcome.bound_reason,
        interrupted=outcome.interrupted,
        plan=outcome.plan,
    )
