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

import importlib.util
import math
import time

import numpy as np

from memoir import _core
from memoir.planning.planners.planner import Effort, Outcome
from memoir.planning.planners.solver_process import solve

DEADLINE = 10.0  # seconds, when none is given
PAIR_LIMIT = 200_000  # beyond it the model does not even leave presolve in minutes
_SOLVER = "memoir.planning.planners._mip_solve"


def run(problem: _core.Problem, effort: Effort) -> Outcome:
    """Stops early when the bound is reached (or the tolerance above it), or once the plan fits the capacity. Raises
    Error without highspy and for more than PAIR_LIMIT pairs."""
    capacity, tolerance = effort.capacity, effort.tolerance
    until = time.monotonic() + (DEADLINE if effort.deadline is None else effort.deadline)
    plan, _ = _core.plan_quickly(problem)
    floor = _core.aligned_load(problem)
    if plan.arena_size <= effort.enough(floor) or effort.deadline == 0:
        return Outcome(plan, floor)
    if importlib.util.find_spec("highspy") is None:
        raise _core.Error("the mip planner needs highspy: pip install 'memoir-alloc[mip]'")
    pairs = live_pairs(problem, PAIR_LIMIT)
    if pairs is None:
        raise _core.Error(
            f"mip takes at most {PAIR_LIMIT:,} pairs of buffers that live together; "
            f"these {len(problem):,} buffers have more: use another planner"
        )
    unit = math.gcd(*np.unique(problem.size).tolist(), *np.unique(problem.alignment).tolist())
    slack = 0.999  # the optimum is whole
    task = {
        "i": pairs[0].tolist(),
        "j": pairs[1].tolist(),
        "size": (problem.size // unit).tolist(),
        "step": (problem.alignment // unit).tolist(),
        "hint": (plan.offsets // unit).tolist(),
        "top": plan.arena_size // unit,
        "least": -(-floor // unit),
        "enough": None if capacity is None else capacity / unit + 1e-6,
        "gap": slack if capacity is not None else max(slack, tolerance.bytes / unit),
        # of the arena, not of the bound
        "gap_share": 0.0 if capacity is not None else tolerance.share / (1 + tolerance.share),
    }
    found = solve("mip: HiGHS", _SOLVER, task, until)
    if found.offsets is not None:
        order = np.argsort(np.array(found.offsets), kind="stable").astype(np.uint64)
        plan = min(plan, _core.place_in_order(problem, order), key=lambda plan: plan.arena_size)
    return Outcome(plan, min(max(floor, found.bound * unit), plan.arena_size), interrupted=found.interrupted)


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
