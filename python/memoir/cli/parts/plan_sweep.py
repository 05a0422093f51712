# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` over many problems, planners and seeds: a sweep."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import click

from memoir._core import Error
from memoir.base.quantities import printable_error
from memoir.cli.parts.constraints import Constraints
from memoir.cli.parts.plan_options import PlanOptions
from memoir.cli.parts.problems import open_problem
from memoir.planning import plan
from memoir.planning.planners import SETS
from memoir.planning.planners.planner import Effort
from memoir.sweep import sweep
from memoir.views.screen import Screen

_NO_OPTIONS = Constraints(
    arenas=(), forbid=(), banks=None, conflicts=None, replan=None, moves=None, locality=False
)
_MOST_SEEDS = 100_000
_SEARCHING = ("auto", "exact")  # the planners that a seed changes anything for


def seeds_of(text: str) -> list[int]:
    """`3`, `1-8`, `1,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,40})(?:-(\d{1,40}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise Error(f"--seeds {text}: give numbers and ranges, such as 1-8 or 1,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= 2**63 or last - first >= _MOST_SEEDS - len(seeds):
            raise Error(f"--seeds {text}: give at most {_MOST_SEEDS:,} numbers, each below 2^63")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


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
    constrained = _NO_OPTIONS.constrain(
        source, problem
    )  # by what its columns say in addition to lifetimes and sizes
    result = plan(constrained or problem, planner, deadline=deadline, seed=seed, **effort)
    return {"input": path, "seed": seed, **result.summary()}


def plan_sweep(options: PlanOptions) -> int:
    """Plans everything, prints it, and gives the exit code. Each plan is made on one thread unless told otherwise: the
    sweep has the cores."""
    seeds = seeds_of(options.seeds) if options.seeds is not None else [options.seed]
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
        for seed in (seeds if name in _SEARCHING else seeds[:1])
    ]
    given = Effort(options.deadline, threads=options.threads or 1, work_limit=options.work_limit)
    given.allow(len(tasks))
    swept = sweep(
        plan_task,
        tasks,
        engine=options.engine,
        address=options.address,
        workers=options.workers,
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
