# SPDX-License-Identifier: Apache-2.0
"""Planning of problems that are lifetimes, sizes and alignments: behind memoir.plan()."""

from __future__ import annotations

import time

from memoir._core import Problem, aligned_load, check, load
from memoir.planning.planners import find
from memoir.planning.planners.planner import Effort
from memoir.planning.result import PlanResult


def plan_plain(problem: Problem, planner: str, effort: Effort) -> PlanResult:
    """By the planner of that name. Raises Error where there is none, or the problem is too much for it."""
    chosen = find(planner)
    began = time.perf_counter()
    sized = problem.sized()  # None: every buffer has bytes
    outcome = chosen.run(sized if sized is not None else problem, effort)
    plan = problem.with_empty(outcome.plan) if sized is not None else outcome.plan
    seconds = time.perf_counter() - began
    violation = check(problem, plan)
    if violation is not None:  # a bug of ours, never to be handed out
        raise AssertionError(f"{planner} made an invalid plan: buffers {violation}")
    arena_size = plan.arena_size
    lower_bound = max(aligned_load(problem), outcome.lower_bound)
    capacity = effort.capacity
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
        plan=plan,
        starved=outcome.starved,
        proven_infeasible=capacity is not None and capacity < lower_bound,
    )
