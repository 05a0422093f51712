# SPDX-License-Identifier: Apache-2.0
"""The plan as a mixed-integer program, solved by HiGHS within a deadline.

    minimise    H
    subject to  x_i + w_i <= H                             for every buffer
                x_i + w_i <= x_j + M (1 - z_ij)            for every pair that lives together,
                x_j + w_j <= x_i + M z_ij                  i below j (z = 1) or j below i (z = 0)
                load <= H <= best heuristic = M

Only pairs that live together are constrained. Everything is in units of the greatest common divisor of all
sizes and alignments, so that the numbers stay small. The search starts from the best cheap plan and reports
the bound it proved. Offsets are made exact again by letting every buffer fall, in the order of the solution.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from memoir import _core
from memoir.planning.planners.planner import Effort, Outcome

DEADLINE = 10.0  # seconds, when none is given
PAIR_LIMIT = 200_000  # beyond it the model does not even leave presolve in minutes


def run(problem: _core.Problem, effort: Effort) -> Outcome:
    """Stops early when the bound is reached (or the tolerance above it), or once the plan fits the capacity. Raises
    Error without highspy and for more than PAIR_LIMIT pairs."""
    until = time.monotonic() + (DEADLINE if effort.deadline is None else effort.deadline)
    plan, _ = _core.plan_quickly(problem)
    floor = _core.aligned_load(problem)
    if plan.arena_size <= effort.enough(floor):
        return Outcome(plan, floor)
    if effort.deadline == 0:
        return Outcome(plan, floor)
    model = _Model(problem, plan, floor)
    order, bound = model.solve(until, effort)
    if order is not None:
        plan = min(plan, _core.place_in_order(problem, order), key=lambda plan: plan.arena_size)
    return Outcome(plan, min(max(floor, bound), plan.arena_size))


def live_pairs(problem: _core.Problem, limit: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The pairs (i, j) that live together, each once; None when there are more than `limit`."""
    lower, upper = problem.lower, problem.upper
    order = np.argsort(lower, kind="stable")
    # A pair is found at the later birth: those born from it on, before it dies.
    last = np.searchsorted(lower[order], upper[order], side="left")
    counts = last - np.arange(1, len(order) + 1)
    total = int(counts.sum())
    if total > limit:
        return None
    first = np.repeat(np.arange(len(order)), counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[first], order[first + 1 + within]


@contextlib.contextmanager
def _said_aside() -> Iterator[None]:
    """What C writes to stdout goes to stderr meanwhile: HiGHS 1.16 says its name there before anybody can silence it, and
    our stdout may be JSON."""
    flush = ctypes.CDLL(None).fflush
    try:
        flush(None)
        kept = os.dup(1)
    except OSError:  # there is no stdout
        yield
        return
    try:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)


class _Model:
    def __init__(self, problem: _core.Problem, plan: _core.Plan, floor: int):
        try:
            import highspy
        except ImportError:
            raise _core.Error("the mip planner needs highspy: pip install 'memoir-alloc[mip]'") from None
        self._highspy = highspy
        pairs = live_pairs(problem, PAIR_LIMIT)
        if pairs is None:
            raise _core.Error(
                f"mip takes at most {PAIR_LIMIT:,} pairs of buffers that live together; "
                f"these {len(problem):,} buffers have more: use another planner"
            )
        self._i, self._j = pairs
        self._buffers = len(problem)
        self._unit = math.gcd(*np.unique(problem.size).tolist(), *np.unique(problem.alignment).tolist())
        self._size = problem.size / self._unit
        self._step = (problem.alignment // self._unit).astype(float)
        self._offset = plan.offsets / self._unit
        self._top = plan.arena_size / self._unit
        self._floor = -(-floor // self._unit)
        with _said_aside():
            self._highs = highspy.Highs()
        self._highs.silent()
        if self._highs.passModel(self._lp()) == highspy.HighsStatus.kError:
            raise _core.Error("HiGHS refused the model of this problem; use another planner")

    def solve(self, until: float, effort: Effort) -> tuple[np.ndarray | None, int]:
        """The buffers by offset in the best solution (or None), and the bound in bytes (0: none). `until` is of the
        clock time.monotonic()."""
        highs, highspy = self._highs, self._highspy
        highs.setOptionValue("threads", 1)  # the same answer on every machine that is fast enough
        share, slack = 0.0, 0.999  # the optimum is whole
        if effort.capacity is not None:
            highs.setOptionValue("objective_target", effort.capacity / self._unit + 1e-6)
        else:
            share = effort.tolerance.share / (1 + effort.tolerance.share)  # of the arena, not of the bound
            slack = max(slack, effort.tolerance.bytes / self._unit)
        highs.setOptionValue("mip_rel_gap", share)
        highs.setOptionValue("mip_abs_gap", slack)
        start = highspy.HighsSolution()
        below = (self._offset[self._i] < self._offset[self._j]).astype(float)
        start.col_value = np.concatenate([self._offset / self._step, below, [self._top]]).tolist()
        highs.setSolution(start)
        left = until - time.monotonic()
        if left <= 0:  # the model alone took that long
            return None, 0
        highs.setOptionValue("time_limit", left)
        highs.run()
        information = highs.getInfo()
        bound = information.mip_dual_bound
        # The arena is a whole number of units, so the bound is rounded up, less what HiGHS itself may be off.
        proven = math.ceil(bound * (1 - 1e-8) - 1e-6) * self._unit if math.isfinite(bound) else 0
        if information.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None, proven
        found = np.array(highs.getSolution().col_value[: self._buffers]) * self._step
        return np.argsort(found, kind="stable").astype(np.uint64), proven

    def _lp(self) -> Any:
        """Columns: an offset per buffer (in steps of its alignment), a choice per pair, the arena's size."""
        highspy, buffers, pairs = self._highspy, self._buffers, len(self._i)
        size, step, most = self._size, self._step, self._top
        arena = buffers + pairs
        lp = highspy.HighsLp()
        lp.num_col_ = arena + 1
        lp.num_row_ = buffers + 2 * pairs
        lp.col_cost_ = np.concatenate([np.zeros(arena), [1.0]])
        lp.col_lower_ = np.concatenate([np.zeros(arena), [self._floor]])
        lp.col_upper_ = np.concatenate([(most - size) / step, np.ones(pairs), [most]])
        # Without an alignment an offset need not be declared whole: for any choice of who is below whom the
        # lowest offsets are sums of sizes.
        kinds = [highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger]
        whole = np.concatenate([step > 1, np.ones(pairs, bool), [False]])
        lp.integrality_ = [kinds[int(flag)] for flag in whole]
        # Rows of [x_i step_i - H <= -w_i], then [x_i - x_j + M z <= M - w_i], then [x_j - x_i - M z <= -w_j].
        choice = buffers + np.arange(pairs)
        big, one = np.full(pairs, float(most)), np.ones(buffers)
        i, j = self._i, self._j
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.index_ = np.concatenate(
            [
                np.stack([np.arange(buffers), np.full(buffers, arena)], axis=1).ravel(),
                np.stack([i, j, choice], axis=1).ravel(),
                np.stack([j, i, choice], axis=1).ravel(),
            ]
        ).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate(
            [
                np.stack([step, -one], axis=1).ravel(),
                np.stack([step[i], -step[j], big], axis=1).ravel(),
                np.stack([step[j], -step[i], -big], axis=1).ravel(),
            ]
        )
        widths = np.concatenate([np.full(buffers, 2), np.full(2 * pairs, 3)])
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
        lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
        lp.row_upper_ = np.concatenate([-size, most - size[i], -size[j]])
        return lp
