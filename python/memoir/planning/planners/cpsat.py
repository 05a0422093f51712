# SPDX-License-Identifier: Apache-2.0
"""The plan as rectangles that must not overlap, solved by OR-tools' CP-SAT within a deadline.

    minimise    H
    subject to  NoOverlap2D of [lower_i, upper_i) x [x_i, x_i + w_i)
                Cumulative of the same, of height H           (redundant; prunes)
                x_i + w_i <= H,   load <= H <= best heuristic

Everything is in units of the greatest common divisor of all sizes and alignments. The search starts from the
best cheap plan, and reports the bound it proved. It is there as a check of the others, by a solver that shares
nothing with them, and as an improver of a few hundred buffers. It runs in a process of its own: OR-tools and
highspy each bring a HiGHS, and the second of them to be loaded into one process fails.
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
BUFFER_LIMIT = 20_000  # beyond it the model alone takes longer than any deadline one would give
LARGEST = 2**50  # units: CP-SAT adds in 64 bits
_SOLVER = "memoir.planning.planners._cpsat_solve"


def run(problem: _core.Problem, effort: Effort) -> Outcome:
    """Stops early when the bound is reached (or the tolerance above it), or once the plan fits the capacity; Ctrl-C
    keeps the best. Raises Error without ortools, for more than BUFFER_LIMIT buffers, and when the process fails."""
    capacity, tolerance = effort.capacity, effort.tolerance
    until = time.monotonic() + (DEADLINE if effort.deadline is None else effort.deadline)
    plan, _ = _core.plan_quickly(problem)
    floor = _core.aligned_load(problem)
    if plan.arena_size <= effort.enough(floor):
        return Outcome(plan, floor)
    if importlib.util.find_spec("ortools") is None:
        raise _core.Error("the cpsat planner needs OR-tools: pip install 'memoir-alloc[cpsat]'")
    if effort.deadline is not None and effort.deadline <= 0:
        return Outcome(plan, floor)
    if len(problem) > BUFFER_LIMIT:
        raise _core.Error(
            f"cpsat takes at most {BUFFER_LIMIT:,} buffers, not {len(problem):,}: use another planner"
        )
    unit = math.gcd(*np.unique(problem.size).tolist(), *np.unique(problem.alignment).tolist())
    top = plan.arena_size // unit
    if top > LARGEST:
        raise _core.Error(
            f"cpsat counts to {LARGEST:,}, and this arena is {top:,} times {unit:,} bytes, the "
            "greatest common divisor of all sizes and alignments: use another planner"
        )
    # Only the order of the ticks matters.
    _, ticks = np.unique(np.concatenate([problem.lower, problem.upper]), return_inverse=True)
    task = {
        "lower": ticks[: len(problem)].tolist(),
        "upper": ticks[len(problem) :].tolist(),
        "size": (problem.size // unit).tolist(),
        "step": (problem.alignment // unit).tolist(),
        "hint": (plan.offsets // unit).tolist(),
        "top": top,
        "least": -(-floor // unit),
        "enough": None if capacity is None else capacity // unit,
        "gap": 0 if capacity is not None else tolerance.bytes // unit,
        # of the arena, not of the bound
        "gap_share": 0.0 if capacity is not None else tolerance.share / (1 + tolerance.share),
        "threads": effort.threads,
        "seed": effort.seed % 2**31,
    }
    found = solve("cpsat: CP-SAT", _SOLVER, task, until)
    if found.offsets is not None:
        # Let every buffer fall, in the order of the solution.
        order = np.argsort(np.array(found.offsets), kind="stable").astype(np.uint64)
        plan = min(plan, _core.place_in_order(problem, order), key=lambda plan: plan.arena_size)
    bound = min(max(floor, found.bound * unit), plan.arena_size)
    reason = "" if bound == floor else f"CP-SAT proved that no plan is smaller than {bound:,} bytes"
    return Outcome(plan, bound, bound_reason=reason, interrupted=found.interrupted)
