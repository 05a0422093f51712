# SPDX-License-Identifier: Apache-2.0
"""`memoir plan --capacity` of a problem with a column `idle`: what to recompute or offload so that it fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoir._core import write_column
from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.base.work_budget import allow
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.plan_options import FITS, INFEASIBLE, NOT_FOUND, PlanOptions
from memoir.cli.parts.problems import CsvSource

if TYPE_CHECKING:
    from memoir.planning.budget import BudgetResult

_SHOWN = 30  # of what is chosen


def chooses(options: PlanOptions, source: CsvSource) -> bool:
    """Whether the problem says what may be let go for a while, and there is a capacity to fit into."""
    if options.capacity is None or options.planner != "auto":
        return False
    csv = source.csv
    if not csv.idle or (not csv.recompute and csv.bandwidth is None):
        return False
    if csv.has_constraints:
        if not csv.has_gaps:  # else it is what was chosen before
            click.echo(
                "nothing is chosen of what is idle: that goes only with lifetimes, sizes and alignments",
                err=True,
            )
        return False
    return True


def plan_budget(options: PlanOptions, source: CsvSource) -> int:
    """Chooses, plans, writes the output with its gaps, prints, and gives the exit code."""
    from memoir.planning.budget import fit_options, options_of

    (path,) = options.inputs
    if options.output is not None:
        check_output(Path(options.output), (".csv",), options.force)
    csv, budget = source.csv, options.capacity
    assert budget is not None
    problem = source.problem
    if options.alignment is not None:
        problem = problem.aligned_to(options.alignment)
    choices = options_of(problem, csv.idle, csv.recompute, csv.bandwidth)
    deadline = 2.0 if options.deadline is None else options.deadline
    allow(deadline)
    found = fit_options(problem, budget, choices, deadline)
    ids = csv.ids
    written = options.output is not None and found.fits
    if options.output is not None and written:
        gaps: list[list[str]] = [[] for _ in ids]
        for option in sorted(found.chosen, key=lambda one: one.lower):
            gaps[option.buffer].append(f"{option.lower}-{option.upper - csv.inclusive}")
        text = source.write(".csv", problem, found.result)
        text = write_column(text, "gaps", [" ".join(one) for one in gaps])
        write_output(Path(options.output), text, options.force)
    if options.as_json:
        click.echo(json.dumps({"input": path, "buffers": len(problem), **found.summary(ids)}, indent=2))
    else:
        _print(found, len(problem), path, ids)
    if written:
        click.echo(f"wrote {options.output}", err=True)
    return INFEASIBLE if found.proven_infeasible else FITS if found.fits else NOT_FOUND


def _print(found: BudgetResult, buffers: int, path: str, ids: list[str]) -> None:
    click.echo(f"{quoted(path)}: {buffers:,} buffers, a capacity of {found.budget:,} bytes")
    if found.proven_infeasible:
        click.echo(
            f"\nnothing fits: with every option chosen {found.result.load:,} bytes are still live at once",
            err=True,
        )
        return
    for option in found.chosen[:_SHOWN]:
        size = f"[{option.lower:,}, {option.upper:,})"
        click.echo(f"  {option.how} {ids[option.buffer]} in {size}, cost {option.cost:,.6g}")
    if len(found.chosen) > _SHOWN:
        click.echo(f"  and {len(found.chosen) - _SHOWN:,} more (--json has all)")
    proof = (
        "the smallest possible"
        if found.optimal
        else f"at least {found.lower_bound_cost:,.6g} by what is proven"
    )
    click.echo(f"cost {found.cost:,.6g}, {proof}")
    verdict = "fits" if found.fits else "does not fit"
    click.echo(
        f"arena {found.result.arena_size:,} bytes, which {verdict}; {found.result.load:,} live at once"
    )
