# SPDX-License-Identifier: Apache-2.0
"""What a problem says beyond lifetimes and sizes, for `memoir plan`, and how such a plan is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memoir._core import ConstrainedProblem, Error
from memoir.cli.parts.problems import CsvSource

if TYPE_CHECKING:
    from memoir import _core
    from memoir.cli.parts.problems import TraceSource
    from memoir.planning import PlanResult
    from memoir.planning.constraints import Arena


def arenas_of(source: CsvSource | TraceSource) -> list[Arena]:
    """Those that the problem names."""
    from memoir.planning.constraints import Arena

    return [Arena(*one) for one in source.csv.arena_choices] if isinstance(source, CsvSource) else []


def constrain(source: CsvSource | TraceSource, problem: _core.Problem) -> _core.ConstrainedProblem | None:
    """What the source says; None when that is no more than a plain problem. `problem` is the source's, perhaps with more
    alignment."""
    if not isinstance(source, CsvSource) or not source.csv.has_constraints:
        return None
    if not source.csv.timed and not source.csv.has_conflicts:
        raise Error(
            f"{source.path}: has no columns lower and upper; without times, the column conflicts must say it"
        )
    out = ConstrainedProblem(source.csv)
    out.set_alignments(problem)
    return out


def refuse_plan_file(problem: _core.ConstrainedProblem) -> None:
    """A .plan holds one arena in which no two live allocations overlap."""
    shared = [name for name in problem.says if name in ("gaps", "alias", "in_place", "arenas", "conflicts")]
    if shared:
        raise Error(f"a .plan cannot hold a plan with {', '.join(shared)}: write a .csv")


def print_result(result: PlanResult, locality: bool) -> None:
    """What the table does not show, and how it stands with the limits."""
    from memoir.views.constrained_text import result_lines, verdict

    for line in result_lines(result, locality):
        click.echo(line)
    if (last := verdict(result)) is not None:
        click.echo(last, err=result.proven_infeasible or not result.found)
