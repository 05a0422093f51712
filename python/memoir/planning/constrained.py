# SPDX-License-Identifier: Apache-2.0
"""Planning of problems that say more than lifetimes, sizes and alignments: behind memoir.plan()."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Error
from memoir.planning.constraints import Arena
from memoir.planning.plain import plan_plain
from memoir.planning.planners import find
from memoir.planning.planners.planner import DEADLINE, Effort
from memoir.planning.result import PlanResult

PLANNERS = ("auto", "exact", "first_fit")  # those that take whatever a problem can say


def plan_constrained(
    problem: _core.ConstrainedProblem,
    planner: str = "auto",
    effort: Effort | None = None,
    arenas: Sequence[Arena] = (),
) -> PlanResult:
    """By auto, exact or first_fit; by any other planner when the problem has a plain one with the same plans.
    Raises Error for a planner that cannot, and for constraints that contradict each other."""
    effort = effort or Effort()
    find(planner)
    problem.validate()
    began = time.perf_counter()
    common: dict[str, Any] = {"constrained": True, "arena_names": tuple(arena.name for arena in arenas)}
    if "size_low" in problem.says:
        common["load_low"] = problem.low_load()
    if planner not in PLANNERS:
        result = dataclasses.replace(_by_plain(problem, planner, effort), **common)
        return dataclasses.replace(result, seconds=time.perf_counter() - began)
    found = _core.plan_constrained(
        problem,
        planner,
        deadline=DEADLINE if effort.deadline is None else effort.deadline,
        work_limit=effort.work_limit,
        seed=effort.seed,
        capacity=effort.capacity,
        tolerance=effort.tolerance.pair,
    )
    limited = effort.capacity is not None or not found.fits or any(a.capacity is not None for a in arenas)
    return PlanResult(
        **common,
        **_measures(problem, found.plan, found.arenas if found.found else None),
        planner=planner,
        maker=found.maker or planner,
        buffers=len(problem),
        load=found.load,
        lower_bound=found.least_total,
        lower_bound_cost=found.least_cost,
        paid=found.paid if "price" in problem.says else None,
        least_priced=found.least_priced if "price" in problem.says else None,
        cost_reason=found.cost_reason,
        arena_size=found.plan.arena_size,
        optimal=found.optimal,
        seconds=time.perf_counter() - began,
        capacity=effort.capacity,
        fits=found.fits if limited else None,
        bound_reason=found.bound_reason,
        interrupted=found.interrupted,
        plan=found.plan,
        found=found.found,
        proven_infeasible=found.proven_infeasible,
        arenas=found.arenas,
        arena_sizes=tuple(found.arena_sizes.tolist()),
    )


def _by_plain(problem: _core.ConstrainedProblem, planner: str, effort: Effort) -> PlanResult:
    plain = problem.plain()
    if plain is None:
        unable = [name for name in problem.says if name not in ("hint", "size_low", "locality", "loop")]
        raise Error(f"{planner} cannot plan with {', '.join(unable)}; {', '.join(PLANNERS)} can")
    reduced, body_of, shift = plain
    result = plan_plain(reduced, planner, effort)
    placed = result.plan
    if len(body_of):
        placed = _core.Plan(placed.offsets[body_of.astype(np.int64)] + shift, placed.arena_size)
    arenas = np.zeros(len(placed), np.uint64)
    if (violation := _core.check_constrained(problem, placed.offsets, arenas)) is not None:
        raise AssertionError(f"{planner} made an invalid plan: buffers {violation}")
    return dataclasses.replace(
        result,
        **_measures(problem, placed, arenas),
        buffers=len(problem),
        plan=placed,
        arenas=arenas,
        arena_sizes=(placed.arena_size,),
    )


def _measures(
    problem: _core.ConstrainedProblem, placed: _core.Plan, arenas: np.ndarray | None
) -> dict[str, Any]:
    if arenas is None:
        return {}
    moves, cost, followed, _, cold, age = _core.measure(problem, placed.offsets, arenas)
    replanned = "replan" in problem.says
    return {
        "cost": cost,
        "moves": moves if replanned else None,
        "known_before": problem.known_before if replanned else None,
        "hints": problem.hints if problem.hints else None,
        "hints_followed": followed if problem.hints else None,
        "cold_bytes": cold,
        "mean_age": age,
    }
