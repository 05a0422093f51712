# SPDX-License-Identifier: Apache-2.0
"""What memoir.plan() returns."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memoir._core import Plan

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class PlanResult:
    """A plan, and how good it is. Sizes in bytes.

    The fields from `found` on speak of what a problem says beyond lifetimes, sizes and alignments
    (docs/reference/constraints.md). A plain problem leaves them at their defaults, but for `starved` and `proven_infeasible`.
    """

    planner: str  # as asked for
    maker: str  # the planner that made it: another one only for `auto`
    buffers: int
    load: int  # the most bytes live at one tick
    # No arena can be smaller: the load, knowing of alignment, or more where a planner proved more. Of a constrained
    # problem: no plan that moves as few buffers and costs as little as can be takes less.
    lower_bound: int
    arena_size: int  # of several arenas: the sum
    optimal: bool  # arena_size == lower_bound, and no plan moves fewer or costs less
    seconds: float  # of planning, the clock on the wall
    capacity: int | None
    fits: bool | None  # arena_size <= capacity, and every arena within its own; None without a capacity
    bound_reason: str  # why no arena is smaller than lower_bound; empty where it is the load or the alignment
    interrupted: bool  # by Ctrl-C: the best so far
    plan: Plan  # of the core

    # The deadline ended the search, and other programs had left it less than 0.7 of one processor: more time helps.
    starved: bool = False
    proven_infeasible: bool = False  # no plan keeps to the capacities and the limit of moves
    constrained: bool = False  # the problem says more; only then do the fields below hold anything
    found: bool = (
        True  # False: banks, fixed offsets and so on left a buffer no place; there are no offsets then
    )
    arenas: np.ndarray | None = None  # per buffer, an index into arena_sizes; None: the problem is plain
    arena_sizes: tuple[int, ...] = ()  # bytes
    arena_names: tuple[str, ...] = ()
    cost: int = 0  # the sum over the buffers of weight x cost of the arena
    lower_bound_cost: int = 0
    cost_reason: str = ""  # why it is not less, where capacities raise it
    paid: int | None = None  # the prices of pairs that share bytes, in bytes; None: there are no prices
    least_priced: int | None = (
        None  # no plan's arenas and prices together are less; with a capacity, prices alone
    )
    moves: int | None = None  # of those that the earlier plan knew; None: there was none
    known_before: int | None = None  # buffers that the earlier plan knew
    hints: int | None = None  # how many there are; None without
    hints_followed: int | None = None
    load_low: int | None = None  # the load when every buffer has its smallest size; None without such
    cold_bytes: int = 0  # of all buffers' bytes, those that none had before
    mean_age: float = 0.0  # ticks since the others were freed, on average

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """uint64, one per buffer, in bytes."""
        return self.plan.offsets

    def summary(self) -> dict[str, Any]:
        """All but the offsets, as `memoir plan --json` prints it."""
        names = _PLAIN if not self.constrained else (*_PLAIN, *_CONSTRAINED)
        out = {name: getattr(self, name) for name in names}
        if len(self.arena_names) > 1:
            out["arenas"] = self.arena_rows()
        return out

    def arena_rows(self) -> list[dict[str, Any]]:
        """Of each arena its name, its size and how many buffers lie in it."""
        import numpy as np

        arenas = np.zeros(0, np.uint64) if self.arenas is None else self.arenas
        return [
            {"name": name, "size": size, "buffers": int(np.count_nonzero(arenas == index))}
            for index, (name, size) in enumerate(zip(self.arena_names, self.arena_sizes, strict=True))
        ]


_PLAIN: tuple[str, ...] = (
    "planner",
    "maker",
    "buffers",
    "load",
    "lower_bound",
    "arena_size",
    "optimal",
    "seconds",
    "capacity",
)
_PLAIN += ("fits", "bound_reason", "interrupted", "starved")
_CONSTRAINED: tuple[str, ...] = (
    "found",
    "proven_infeasible",
    "cost",
    "lower_bound_cost",
    "cost_reason",
    "paid",
    "least_priced",
    "moves",
    "known_before",
)
_CONSTRAINED += ("hints", "hints_followed", "load_low", "cold_bytes", "mean_age")
