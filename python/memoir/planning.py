# SPDX-License-Identifier: Apache-2.0
"""memoir.plan(): arrays of buffers in, an array of offsets out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir import constraints
from memoir._core import ConstrainedProblem, Error, Problem, aligned_load, check, load
from memoir.planners import Effort, find


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
    offsets: np.ndarray  # uint64, one per buffer

    @property
    def hopeless(self) -> bool:
        """True when it is proven that no plan fits the capacity."""
        return self.capacity is not None and self.capacity < self.lower_bound

    def summary(self) -> dict[str, Any]:
        """All but the offsets, as `memoir plan --json` prints it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "offsets"}


_FIELDS = ("lower", "upper", "size", "alignment")
_MORE = (*constraints.PER_BUFFER, *constraints.ROWS)


def as_problem(problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any]) -> Problem:
    """From lower, upper, size and perhaps alignment: a structured array, a mapping, or these in order."""
    problem, more, timed = split_problem(problem)
    if more or not timed:
        raise Error("a plain problem has the fields lower, upper, size and perhaps alignment")
    return problem


def split_problem(
    problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any],
) -> tuple[Problem, dict[str, Any], bool]:
    """The plain problem, the fields that constrain it, and whether it has times."""
    if isinstance(problem, Problem):
        return problem, {}, True
    if isinstance(problem, np.ndarray) and problem.dtype.names is not None:
        problem = {name: problem[name] for name in problem.dtype.names}
    if isinstance(problem, Mapping):
        timed = "lower" in problem or "upper" in problem
        unknown = set(problem) - {*_FIELDS, *_MORE}
        missing = ({"lower", "upper", "size"} if timed else {"size"}) - set(problem)
        if unknown or missing:
            what = f"unknown {sorted(unknown)}" if unknown else f"missing {sorted(missing)}"
            raise Error(
                f"a problem has the fields lower, upper, size and perhaps alignment, {', '.join(_MORE)}: {what}"
            )
        columns = {name: np.asarray(problem[name]) for name in problem if name in _FIELDS}
        more = {name: problem[name] for name in problem if name in _MORE}
    elif 3 <= len(problem) <= 4:
        columns, more, timed = dict(zip(_FIELDS, map(np.asarray, problem), strict=False)), {}, True
    else:
        raise Error(
            "a problem is lower, upper, size and perhaps alignment: arrays, a mapping or a structured array"
        )
    if not timed:  # everything lives in [0, 1): what conflicts is said otherwise
        count = len(columns["size"])
        columns |= {"lower": np.zeros(count, np.uint64), "upper": np.ones(count, np.uint64)}
    columns.setdefault("alignment", np.ones(len(columns["lower"]), np.uint64))
    return Problem(**{name: constraints.unsigned(name, columns[name]) for name in _FIELDS}), more, timed


def plan(
    problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any],
    planner: str = "auto",
    *,
    deadline: float | None = None,
    capacity: int | None = None,
    threads: int = 0,
    seed: int = 0,
    work_limit: int = 0,
    arenas: Sequence[constraints.Arena] = (),
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
        problem, said, timed = split_problem(problem)
        beside = (
            arenas,
            forbid,
            banks,
            conflicts is not None,
            replan is not None,
            moves is not None,
            locality,
        )
        if said or not timed or any(beside):
            problem = constraints.constrain(
                problem,
                said,
                timed=timed,
                arenas=arenas,
                forbid=forbid,
                banks=banks,
                conflicts=conflicts,
                replan=replan,
                moves=moves,
                locality=locality,
            )
    if isinstance(problem, ConstrainedProblem):
        from memoir.constrained import plan_constrained

        return plan_constrained(problem, planner, effort, arenas)
    chosen = find(planner)
    began = time.perf_counter()
    outcome = chosen.run(problem, effort)
    seconds = time.perf_counter() - began
    violation = check(problem, outcome.offsets, outcome.arena_size)
    if violation is not None:  # a bug of ours, never to be handed out
        raise AssertionError(f"{planner} made a plan that is none: buffers {violation}")
    lower_bound = max(aligned_load(problem), outcome.lower_bound)
    return PlanResult(
        planner=planner,
        maker=outcome.maker or planner,
        buffers=len(problem),
        load=load(problem),
        lower_bound=lower_bound,
        arena_size=outcome.arena_size,
        optimal=outcome.arena_size == lower_bound,
        seconds=seconds,
        capacity=capacity,
        fits=None if capacity is None else outcome.arena_size <= capacity,
        bound_reason=outcome.bound_reason,
        interrupted=outcome.interrupted,
        offsets=outcome.offsets,
    )
