# SPDX-License-Identifier: Apache-2.0
"""memoir.plan(): arrays of buffers in, an array of offsets out. Only arrays need numpy, which is imported with the
first of them: a problem that the core has read from a file is planned without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from memoir._core import ConstrainedProblem, Error, Problem, Skeleton
from memoir.planning.constraints import Arena, Rules
from memoir.planning.plain import plan_plain
from memoir.planning.planners.planner import Effort, Tolerance
from memoir.planning.result import PlanResult

__all__ = ["Arena", "PlanResult", "Problem", "Skeleton", "explain", "fit_budget", "plan"]

if TYPE_CHECKING:
    import numpy as np

    from memoir.planning.budget import fit_budget
    from memoir.planning.why import explain


def __getattr__(name: str) -> Any:  # on first use: numpy
    if name == "fit_budget":
        from memoir.planning import budget

        return budget.fit_budget
    if name == "explain":
        from memoir.planning import why

        return why.explain
    raise AttributeError(f"module 'memoir.planning' has no attribute '{name}'")


@overload
def plan(
    problem: Problem | ConstrainedProblem | np.ndarray | Mapping[str, Any] | Sequence[Any],
    planner: str = "auto",
    *,
    deadline: float | None = None,
    capacity: int | None = None,
    threads: int = 0,
    seed: int = 0,
    work_limit: int = 0,
    tolerance: int | str | Tolerance = 0,
    arenas: Sequence[Arena] = (),
    forbid: Sequence[tuple[Any, ...]] = (),
    banks: tuple[int, int] | None = None,
    conflicts: Any = None,
    replan: Any = None,
    moves: int | None = None,
    locality: bool = False,
    sizes: None = None,
) -> PlanResult: ...
@overload
def plan(
    problem: Problem | ConstrainedProblem | np.ndarray | Mapping[str, Any] | Sequence[Any],
    planner: str = "auto",
    *,
    deadline: float | None = None,
    capacity: int | None = None,
    threads: int = 0,
    seed: int = 0,
    work_limit: int = 0,
    tolerance: int | str | Tolerance = 0,
    arenas: Sequence[Arena] = (),
    forbid: Sequence[tuple[Any, ...]] = (),
    banks: tuple[int, int] | None = None,
    conflicts: Any = None,
    replan: Any = None,
    moves: int | None = None,
    locality: bool = False,
    sizes: Sequence[Any],
) -> Skeleton: ...
def plan(
    problem: Problem | ConstrainedProblem | np.ndarray | Mapping[str, Any] | Sequence[Any],
    planner: str = "auto",
    *,
    deadline: float | None = None,
    capacity: int | None = None,
    threads: int = 0,
    seed: int = 0,
    work_limit: int = 0,
    tolerance: int | str | Tolerance = 0,
    arenas: Sequence[Arena] = (),
    forbid: Sequence[tuple[Any, ...]] = (),
    banks: tuple[int, int] | None = None,
    conflicts: Any = None,
    replan: Any = None,
    moves: int | None = None,
    locality: bool = False,
    sizes: Sequence[Any] | None = None,
) -> PlanResult | Skeleton:
    """Gives every buffer an offset such that no two that live at the same time overlap.

    `problem` is a structured array, a mapping or a sequence of the arrays lower, upper (exclusive), size and
    perhaps alignment. The deadline in seconds is for the planners that search (auto and exact: 1 unless given; mip
    and cpsat: 10); with a capacity in bytes they stop at the first plan that fits. auto and
    exact use `threads` threads (0: one per core); with a work limit (placements tried) instead of a deadline
    they give the same plan for the same seed on any machine. With a tolerance (bytes, '64KiB' or '0.5%') and no capacity
    they also stop at the first plan that is no farther above the bound that they proved. Raises Error for anything that
    is not a problem, or is too large for that planner. Releases the GIL while it plans; Ctrl-C ends auto and exact with
    their best plan.

    A mapping may say more (docs/reference/constraints.md): per buffer `size_low`, `fixed`, `hint`, `alias` (-1: none), `after`,
    `weight`, `arenas`; as rows `gaps`, `in_place`, `apart`. In addition: `arenas` to choose from, `forbid`
    ([arena,] begin, end), `banks` (count, width), `conflicts` (pairs of buffers), `replan` (earlier offsets or
    result) with at most `moves` moved, `locality`. The result then has fields for these too.

    `sizes`: for buffers whose sizes change while their lifetimes do not (another batch, other images). The result is
    a Skeleton: `.at(sizes)` is the plan for any sizes, in microseconds. It is built from plans for the problem's own
    sizes and for each entry of this list (one size per buffer each; the list may be empty), and uses the best of
    them: two or three different ones are enough.
    """
    effort = Effort(deadline, capacity, threads, seed, work_limit, Tolerance.of(tolerance))
    effort.check()
    effort.allow()
    if sizes is not None:
        return _skeleton(problem, planner, effort, sizes)
    if isinstance(problem, ConstrainedProblem):
        return _by_constraints(problem, planner, effort, arenas)
    rules = Rules(arenas, forbid, banks, conflicts, replan, moves, locality)
    if isinstance(problem, Problem) and not rules.any():
        return plan_plain(problem, planner, effort)
    from memoir.planning.arrays import constrain, split_problem

    plain, said, timed = split_problem(problem)
    if rules.any() or said or not timed:
        return _by_constraints(constrain(plain, said, rules, timed=timed), planner, effort, arenas)
    return plan_plain(plain, planner, effort)


def _by_constraints(
    problem: ConstrainedProblem, planner: str, effort: Effort, arenas: Sequence[Arena]
) -> PlanResult:
    from memoir.planning.constrained import plan_constrained  # which needs numpy

    return plan_constrained(problem, planner, effort, arenas)


def _skeleton(problem: Any, planner: str, effort: Effort, sizes: Sequence[Any]) -> Skeleton:
    from memoir.planning.arrays import split_problem

    if isinstance(problem, ConstrainedProblem):
        raise Error("a skeleton is made of plain problems: lifetimes, sizes and alignments")
    plain = problem
    if not isinstance(problem, Problem):
        plain, said, timed = split_problem(problem)
        if said or not timed:
            raise Error("a skeleton is made of plain problems: lifetimes, sizes and alignments")
    import numpy as np

    # Of 0 bytes here, a buffer may have some at other sizes: it needs a place among the others.
    problems = [
        Problem(plain.lower, plain.upper, np.maximum(np.ascontiguousarray(of, np.uint64), 1), plain.alignment)
        for of in (plain.size, *sizes)
    ]
    return Skeleton(problems[0], [plan_plain(one, planner, effort).plan for one in problems])
