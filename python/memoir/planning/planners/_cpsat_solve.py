# SPDX-License-Identifier: Apache-2.0
"""The process that runs CP-SAT for memoir.planning.planners.cpsat, as solver_process.py has it; numbers in units."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from memoir.planning.planners import solver_process


def _work(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    from ortools.sat.python import cp_model

    size, step, top = task["size"], task["step"], task["top"]
    model = cp_model.CpModel()
    arena = model.new_int_var(task["least"], top, "arena")
    starts, times, heights = [], [], []
    for i, (lower, upper) in enumerate(zip(task["lower"], task["upper"], strict=True)):
        position = model.new_int_var(0, (top - size[i]) // step[i], f"x{i}")
        model.add_hint(position, task["hint"][i] // step[i])
        starts.append(position)
        start = position if step[i] == 1 else step[i] * position
        times.append(model.new_fixed_size_interval_var(lower, upper - lower, f"t{i}"))
        heights.append(model.new_fixed_size_interval_var(start, size[i], f"a{i}"))
        model.add(start + size[i] <= arena)
    model.add_no_overlap_2d(times, heights)
    model.add_cumulative(times, size, arena)
    model.add_hint(arena, top)
    model.minimize(arena)

    def bounded(bound: float) -> None:
        if math.isfinite(bound):
            tell({"bound": math.ceil(bound - 1e-6)})

    class Report(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            tell({"offsets": [self.value(x) * s for x, s in zip(starts, step, strict=True)]})
            if task["enough"] is not None and self.objective_value <= task["enough"]:
                self.stop_search()

    solver = cp_model.CpSolver()
    solver.best_bound_callback = bounded
    solver.parameters.max_time_in_seconds = max(task["until"] - time.monotonic(), 0.01)
    solver.parameters.random_seed = task["seed"]
    solver.parameters.absolute_gap_limit = max(task["gap"], solver.parameters.absolute_gap_limit)
    solver.parameters.relative_gap_limit = max(task["gap_share"], solver.parameters.relative_gap_limit)
    if task["threads"]:
        solver.parameters.num_workers = task["threads"]
    solver.solve(model, Report())
    bounded(solver.best_objective_bound)


if __name__ == "__main__":
    solver_process.serve(_work)
