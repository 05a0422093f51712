# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` over many problems, planners and seeds: a sweep."""

from __future__ import annotations

import itertools
import json
from typing import Any

import click

from memoir.base.quantities import printable_error
from memoir.cli.parts.constraints import arenas_of, constrain
from memoir.cli.parts.plan_options import PlanOptions
from memoir.cli.parts.problems import open_problem
from memoir.planning import plan
from memoir.planning.planners import SETS
from memoir.planning.planners.planner import Effort
from memoir.sweep import sweep
from memoir.views.screen import Screen

_SEARCHING = ("auto", "exact")  # the planners that a seed changes anything for


def plan_task(
    path: str,
    planner: str,
    seed: int,
    device: int | None,
    alignment: int | None,
    deadline: float | None,
    effort: dict[str, Any],
    dims: dict[str, int],
    only: str | None = None,
) -> dict[str, Any]:
    """One problem, planner and seed: the summary of its plan."""
    source = open_problem(path, device, dims, only)
    problem = source.problem
    if alignment is not None:
        problem = problem.aligned_to(alignment)
    constrained = constrain(source, problem)  # by what it says in addition to lifetimes and sizes
    arenas = arenas_of(source)
    result = plan(constrained or problem, planner, deadline=deadline, seed=seed, arenas=arenas, **effort)
    return {"input": path, "seed": seed, **result.summary()}


def plan_sweep(options: PlanOptions) -> int:
    """Plans everything, prints it, and gives the exit code. Each plan is made on one thread unless told otherwise: the
    sweep has the cores."""
    for path in options.inputs:
        # what cannot be read is told before anything runs
        open_problem(path, options.device, options.dims, options.only)
    names = SETS.get(options.planner, (options.planner,))
    effort = {
        "capacity": options.capacity,
        "threads": options.threads or 1,
        "work_limit": options.work_limit,
        "tolerance": options.tolerance,
    }
    tasks = [
        (
            path,
            name,
            seed,
            options.device,
            options.alignment,
            options.deadline,
            effort,
            options.dims,
            options.only,
        )
        for path, name in itertools.product(options.inputs, names)
        for seed in (options.seeds if name in _SEARCHING else options.seeds[:1])
    ]
    given = Effort(options.deadline, threads=options.threads or 1, work_limit=options.work_limit)
    given.allow(len(tasks))
    swept = sweep(
        plan_task,
        tasks,
        **options.workers._asdict(),
        title="planning",
    )
    failed = [
        {"input": path, "planner": name, "seed": seed, "error": outcome.error}
        for outcome in swept.failed
        for path, name, seed, *_ in [outcome.arguments]
    ]
    if options.as_json:
        summary = {"results": swept.values, "failed": failed, "interrupted": swept.interrupted}
        click.echo(json.dumps(summary, indent=2))
    elif swept.values:
        from memoir.views.plan_table import sweep_table

        Screen.of_output().table(sweep_table(swept.values))
    for row in failed if not swept.interrupted else ():
        error = printable_error(row["error"])
        click.echo(f"memoir: {row['input']} {row['planner']} seed {row['seed']}: {error}", err=True)
    if swept.interrupted:
        raise KeyboardInterrupt
    return 0 if swept.values else 2
