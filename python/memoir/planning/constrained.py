# SPDX-License-Identifier: Apache-2.0
"""Planning of problems that say more than lifetimes, sizes and alignments: behind memoir.plan()."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Error
from memoir.planning import PlanResult
from memoir.planning.constraints import Arena
from memoir.planning.planners import DEADLINE, Effort, find

PLANNERS = ("auto", "exact", "first_fit")  # those that take whatever a problem can say


@dataclass(frozen=True)
class ConstrainedPlanResult(PlanResult):
    """A plan of a constrained problem. `arena_size` is the sum of the arenas' sizes; `lower_bound` is of plans
    that move as few buffers and cost as little as can be."""

    found: bool = (
        True  # False: banks, fixed offsets and so on left a buffer no place; there are no offsets then
    )
    proven_infeasible: bool = False  # no plan keeps to the capacities and the limit of moves
    arenas: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))  # per buffer, an index
    arena_sizes: tuple[int, ...] = ()  # bytes
    arena_names: tuple[str, ...] = ()
    cost: int = 0  # the sum over the buffers of weight x cost of the arena
    lower_bound_cost: int = 0
    cost_reason: str = ""  # why it is not less, where capacities raise it
    moves: int | None = None  # of those that the earlier plan knew; None: there was none
    known_before: int | None = None
    hints: int | None = None  # how many there are; None without
    hints_followed: int | None = None
    load_low: int | None = None  # the load when every buffer has its least size; None without such
    cold_bytes: int = 0  # of all buffers' bytes, those that none had before
    mean_age: float = 0.0  # ticks since the others were freed, on average

    @property
    def hopeless(self) -> bool:
        return self.proven_infeasible

    def summary(self) -> dict[str, Any]:
        out = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("plan", "arenas", "arena_sizes", "arena_names")
        }
        if len(self.arena_names) > 1:
            counts = np.bincount(self.arenas.astype(np.int64), minlength=len(self.arena_names))
            out["arenas"] = [
                {"name": name, "size": size, "buffers": int(count)}
                for name, size, count in zip(self.arena_names, self.arena_sizes, counts, strict=True)
            ]
        return out


def plan_constrained(
    problem: _core.ConstrainedProblem,
    planner: str = "auto",
    effort: Effort | None = None,
    arenas: Sequence[Arena] = (),
) -> ConstrainedPlanResult:
    """By auto, exact or first_fit; by any other planner when the problem has a plain one with the same plans.
    Raises Error for a planner that cannot, and for constraints that contradict each other."""
    effort = effort or Effort()
    find(planner)
    problem.validate()
    began = time.perf_counter()
    common = {"planner": planner, "buffers": len(problem), "capacity": effort.capacity}
    common["arena_names"] = tuple(arena.name for arena in arenas)
    if "size_low" in problem.says:
        common["load_low"] = problem.low_load()
    if planner not in PLANNERS:
        return _by_plain(problem, planner, effort, common, began)
    found = _core.plan_constrained(
        problem,
        planner,
        deadline=DEADLINE if effort.deadline is None else effort.deadline,
        work_limit=effort.work_limit,
        seed=effort.seed,
        capacity=effort.capacity,
    )
    limited = effort.capacity is not None or not found.fits or any(a.capacity is not None for a in arenas)
    return ConstrainedPlanResult(
        **common,
        **_measures(problem, found.plan, found.arenas if found.found else None),
        maker=found.maker or planner,
        load=found.load,
        lower_bound=found.least_total,
        lower_bound_cost=found.least_cost,
        cost_reason=found.cost_reason,
        arena_size=found.plan.arena_size,
        optimal=found.optimal,
        seconds=time.perf_counter() - began,
        fits=found.fits if limited else None,
        bound_reason=found.bound_reason,
        interrupted=found.interrupted,
        plan=found.plan,
        found=found.found,
        proven_infeasible=found.proven_infeasible,
        arenas=found.arenas,
        arena_sizes=tuple(found.arena_sizes.tolist()),
    )


def _by_plain(
    problem: _core.ConstrainedProblem, planner: str, effort: Effort, common: dict[str, Any], began: float
) -> ConstrainedPlanResult:
    plain = problem.plain()
    if plain is None:
        unable = [name for name in problem.says if name not in ("hint", "size_low", "locality")]
        raise Error(f"{planner} cannot plan with {', '.join(unable)}; {', '.join(PLANNERS)} can")
    reduced, body_of = plain
    outcome = find(planner).run(reduced, effort)
    placed = outcome.plan
    if len(body_of):
        placed = _core.Plan(placed.offsets[body_of.astype(np.int64)], placed.arena_size)
    arenas = np.zeros(len(placed), np.uint64)
    if (violation := _core.check_constrained(problem, placed.offsets, arenas)) is not None:
        raise AssertionError(f"{planner} made a plan that is none: buffers {violation}")
    bound = max(_core.aligned_load(reduced), outcome.lower_bound)
    fits = None if effort.capacity is None else placed.arena_size <= effort.capacity
    return ConstrainedPlanResult(
        **common,
        **_measures(problem, placed, arenas),
        maker=outcome.maker or planner,
        load=_core.load(reduced),
        lower_bound=bound,
        arena_size=placed.arena_size,
        optimal=placed.arena_size == bound,
        seconds=time.perf_counter() - began,
        fits=fits,
        bound_reason=outcome.bound_reason,
        interrupted=outcome.interrupted,
        plan=placed,
        proven_infeasible=effort.capacity is not None and bound > effort.capacity,
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
