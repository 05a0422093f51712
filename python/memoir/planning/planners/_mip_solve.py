# SPDX-License-Identifier: Apache-2.0
"""The process that runs HiGHS for memoir.planning.planners.mip, as solver_process.py has it; numbers in units."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from memoir.planning.planners import solver_process

# 1.14 calls plans optimal that are not (HiGHS #2961), and before 1.11 callbacks hand no solutions out.
_OLDEST = (1, 15)


def _work(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    i, j, size, offset = (np.array(task[key]) for key in ("i", "j", "size", "hint"))
    step = np.array(task["step"], float)
    highs = highspy.Highs()
    highs.silent()
    if (highs.versionMajor(), highs.versionMinor()) < _OLDEST:
        tell({"error": f"mip needs HiGHS 1.15 or newer, not {highs.version()}: pip install -U highspy"})
        return
    if highs.passModel(_model(i, j, size, step, task["least"], task["top"])) == highspy.HighsStatus.kError:
        tell({"error": "HiGHS refused the model of this problem; use another planner"})
        return
    highs.setOptionValue("threads", 1)  # the same answer on every machine that is fast enough
    if task["enough"] is not None:
        highs.setOptionValue("objective_target", task["enough"])
    highs.setOptionValue("mip_rel_gap", task["gap_share"])
    highs.setOptionValue("mip_abs_gap", task["gap"])
    start = highspy.HighsSolution()
    below = (offset[i] < offset[j]).astype(float)
    start.col_value = np.concatenate([offset / step, below, [task["top"]]]).tolist()
    highs.setSolution(start)
    best = 0

    def bounded(bound: float) -> None:
        # The arena is a whole number of units, so the bound is rounded up, less what HiGHS itself may be off.
        nonlocal best
        whole = math.ceil(bound * (1 - 1e-8) - 1e-6) if math.isfinite(bound) else 0
        if whole > best:
            best = whole
            tell({"bound": whole})

    def called(kind: Any, message: str, out: Any, into: Any, data: Any) -> None:
        if kind == highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution:
            tell({"offsets": (np.array(out.mip_solution)[: len(size)] * step).tolist()})
        bounded(out.mip_dual_bound)

    highs.setCallback(called, None)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    left = task["until"] - time.monotonic()
    if left <= 0:  # the model alone took that long
        return
    highs.setOptionValue("time_limit", left)
    highs.run()
    information = highs.getInfo()
    bounded(information.mip_dual_bound)
    if information.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        tell({"offsets": (np.array(highs.getSolution().col_value[: len(size)]) * step).tolist()})


def _model(i: Any, j: Any, size: Any, step: Any, floor: int, most: int) -> Any:
    """Columns: an offset per buffer (in steps of its alignment), a choice per pair, the arena's size."""
    buffers, pairs = len(size), len(i)
    arena = buffers + pairs
    lp = highspy.HighsLp()
    lp.num_col_ = arena + 1
    lp.num_row_ = buffers + 2 * pairs
    lp.col_cost_ = np.concatenate([np.zeros(arena), [1.0]])
    lp.col_lower_ = np.concatenate([np.zeros(arena), [floor]])
    lp.col_upper_ = np.concatenate([(most - size) / step, np.ones(pairs), [most]])
    # Without an alignment an offset need not be declared whole: for any choice of who is below whom the
    # lowest offsets are sums of sizes.
    kinds = [highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger]
    whole = np.concatenate([step > 1, np.ones(pairs, bool), [False]])
    lp.integrality_ = [kinds[int(flag)] for flag in whole]
    # Rows of [x_i step_i - H <= -w_i], then [x_i - x_j + M z <= M - w_i], then [x_j - x_i - M z <= -w_j].
    choice = buffers + np.arange(pairs)
    big, one = np.full(pairs, float(most)), np.ones(buffers)
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


if __name__ == "__main__":
    solver_process.serve(_work)
