# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` of one problem: by one planner, or by all of them compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from memoir._core import ConstrainedProblem, Error, Problem, aligned_load, busiest_tick, load
from memoir.base.files import write_output
from memoir.base.quantities import duration_text, printable_error, quoted
from memoir.cli.parts import constraints
from memoir.cli.parts.patience import Lines, doing, reading
from memoir.cli.parts.plan_budget import chooses, plan_budget
from memoir.cli.parts.plan_options import FITS, INFEASIBLE, NOT_FOUND, PlanOptions
from memoir.cli.parts.problems import CsvSource, ImportedSource, TraceSource, open_problem
from memoir.planning import PlanResult, plan
from memoir.planning.constraints import Arena
from memoir.planning.planners import SETS
from memoir.planning.planners.planner import NO_TOLERANCE, Tolerance
from memoir.views.screen import Screen


@dataclass(frozen=True)
class _Planned:
    """A problem and the plans that were made of it."""

    problem: Problem
    constrained: ConstrainedProblem | None  # where it says more than `problem`
    results: list[PlanResult]
    refusals: list[tuple[str, str]]  # planners that made none, and why
    all_planners: bool

    @property
    def best(self) -> PlanResult:
        return min(self.results, key=_rank)

    @property
    def floor(self) -> int:
        """The most that any planner proved, bytes."""
        return max(result.lower_bound for result in self.results)

    @property
    def infeasible(self) -> bool:
        return any(result.proven_infeasible for result in self.results)

    @property
    def exit_code(self) -> int:
        return INFEASIBLE if self.infeasible else NOT_FOUND if self.best.fits is False else FITS


def plan_one(options: PlanOptions) -> int:
    """Plans the one input, writes the output, prints what it is worth, and gives the exit code."""
    (path,) = options.inputs
    with reading(path):
        source = open_problem(path, options.device, options.dims, options.only)
    problem = source.problem
    if options.alignment is not None:
        problem = problem.aligned_to(options.alignment)
    if isinstance(source, CsvSource) and chooses(options, source):
        return plan_budget(options, source)
    constrained = constraints.constrain(source, problem)
    if options.output is not None and options.output.lower().endswith(".tflite"):
        if not (isinstance(source, ImportedSource) and source.imported.suffix == ".tflite"):
            raise Error(f"-o {options.output}: only a .tflite model can take its plan, and {path} is not one")
        if Path(options.output).exists() and Path(options.output).samefile(path):
            raise Error(f"-o {options.output}: is the input; give the planned model another name")
    output = Path(options.output) if options.output is not None else None
    if constrained is not None and output is not None and output.suffix.lower() == ".plan":
        constraints.refuse_plan_file(constrained)
    for note in source.notes:
        click.echo(note, err=True)
    planned = _plan(options, source, problem, constrained)
    written = output is not None and not planned.infeasible and len(planned.best.plan) == len(problem)
    if output is not None and written:
        write_output(output, source.write(output.suffix.lower(), problem, planned.best), options.force)
    why = None
    if planned.infeasible and constrained is None and options.capacity is not None:
        from memoir.planning.why import explain  # which needs numpy

        why = explain(problem, options.capacity)
    if options.as_json:
        summary = _summary(options, source, planned)
        if why is not None:
            summary["why"] = why.summary(source.ids())
        click.echo(json.dumps(summary, indent=2))
    else:
        _print(options, source, planned)
        if why is not None:
            from memoir.cli.parts.plan_why import why_lines

            click.echo("\n" + "\n".join(why_lines(why, problem, source.ids())))
    if output is not None and written:
        click.echo(f"wrote {options.output}", err=True)
    if not options.as_json:
        _print_next(path, options.output, written, constrained)
    if planned.best.starved and not options.as_json:
        click.echo(
            "memoir: other programs left this search less than 0.7 of a processor: a longer --deadline may find a smaller plan",
            err=True,
        )
    if planned.infeasible and constrained is None:
        note = f", so {options.output} was not written" if output is not None else ""
        click.echo(f"memoir: no plan fits the capacity of {options.capacity:,} bytes{note}", err=True)
    return planned.exit_code


def plan_with_each(
    planners: Sequence[str],
    problem: Problem | ConstrainedProblem,
    deadline: float | None,
    capacity: int | None,
    arenas: Sequence[Arena] = (),
    tolerance: Tolerance = NO_TOLERANCE,
) -> tuple[list[PlanResult], list[tuple[str, str]]]:
    """The result of each planner, and why the others made none."""
    results, refusals = [], []
    say = Lines()
    for number, name in enumerate(planners):
        try:
            with doing(f"planning with {name} ({number + 1} of {len(planners)})"):
                made = plan(
                    problem, name, deadline=deadline, capacity=capacity, arenas=arenas, tolerance=tolerance
                )
        except Error as error:
            refusals.append((name, str(error)))
            say(f"{name}: {printable_error(error)}")
        else:
            results.append(made)
            say(f"{name}: {made.arena_size:,} bytes, {duration_text(made.seconds * 1e9)}")
    return results, refusals


def _plan(
    options: PlanOptions,
    source: CsvSource | TraceSource,
    problem: Problem,
    constrained: ConstrainedProblem | None,
) -> _Planned:
    arenas = constraints.arenas_of(source)
    if options.planner in SETS:
        results, refusals = plan_with_each(
            SETS[options.planner],
            constrained or problem,
            options.deadline,
            options.capacity,
            arenas,
            options.tolerance,
        )
        return _Planned(problem, constrained, results, refusals, all_planners=True)
    with doing(f"planning with {options.planner}"):
        result = _plan_with_one(options, problem, constrained, arenas)
    return _Planned(problem, constrained, [result], [], all_planners=False)


def _plan_with_one(
    options: PlanOptions,
    problem: Problem,
    constrained: ConstrainedProblem | None,
    arenas: Sequence[Arena],
) -> PlanResult:
    return plan(
        constrained or problem,
        options.planner,
        deadline=options.deadline,
        capacity=options.capacity,
        threads=options.threads,
        seed=options.seeds[0],
        work_limit=options.work_limit,
        tolerance=options.tolerance,
        arenas=arenas,
    )


def _rank(result: PlanResult) -> tuple[bool, bool, int, int, int]:
    """The best is the smallest: it fits, moves few, costs little, is small."""
    return not result.found, result.fits is False, result.moves or 0, result.cost, result.arena_size


def _summary(options: PlanOptions, source: CsvSource | TraceSource, planned: _Planned) -> dict[str, Any]:
    best, floor = planned.best, planned.floor
    summary = best.summary()
    if planned.all_planners:
        rows = [result.summary() for result in planned.results]
        rows += [{"planner": name, "error": reason} for name, reason in planned.refusals]
        summary = {"buffers": len(planned.problem), "load": load(planned.problem), "lower_bound": floor}
        summary |= {"arena_size": best.arena_size, "optimal": best.arena_size == floor}
        summary |= {"capacity": options.capacity, "fits": best.fits, "best": best.planner, "planners": rows}
    return {"input": source.path, **source.meta, **summary}


def _print(options: PlanOptions, source: CsvSource | TraceSource, planned: _Planned) -> None:
    from memoir.views.plan_table import plan_table

    problem, constrained, floor = planned.problem, planned.constrained, planned.floor
    click.echo(f"{quoted(options.inputs[0])}: {len(problem):,} buffers, {problem.total_size:,} bytes in all")
    table_floor = floor
    if constrained is None:
        aligned = aligned_load(problem)
        click.echo(f"load: {load(problem):,} bytes, live together at tick {busiest_tick(problem):,}")
        if aligned > load(problem):
            click.echo(f"floor: {aligned:,} bytes with the alignment of the offsets")
        if planned.all_planners:
            table_floor = aligned
    else:
        click.echo(f"it says: {', '.join(constrained.says)}")
        click.echo(f"load: {max(result.load for result in planned.results):,} bytes")
    click.echo()
    Screen.of_output().table(plan_table(planned.results, planned.refusals, table_floor))
    if not planned.all_planners and planned.best.bound_reason:
        click.echo(f"\nno plan is smaller than {floor:,} bytes: {planned.best.bound_reason}")
    if constrained is not None:
        locality = isinstance(source, CsvSource) and source.csv.locality
        constraints.print_result(planned.best, locality)
    elif options.capacity is not None:
        click.echo(_verdict(problem, planned.best, floor, options.capacity))


def _print_next(path: str, output: str | None, written: bool, constrained: ConstrainedProblem | None) -> None:
    """The next command to type."""
    if output is None:
        target = Path(path).with_suffix(".plan" if constrained is None else ".planned.csv").name
        click.echo(f"\nnext: memoir plan {quoted(path)} -o {quoted(target)}")
    elif written and (constrained is None or constrained.timed):
        page = Path(output).with_suffix(".html")
        click.echo(f"\nnext: memoir show {quoted(output)} -o {quoted(page)}")


def _verdict(problem: Problem, best: PlanResult, floor: int, capacity: int) -> str:
    if best.fits:
        return f"\nfits the capacity of {capacity:,} bytes, {capacity - best.arena_size:,} to spare"
    if capacity < load(problem):
        return (
            f"\nno plan fits {capacity:,} bytes: {load(problem):,} are live at tick {busiest_tick(problem):,}"
        )
    if capacity < floor and best.bound_reason:
        return f"\nno plan fits {capacity:,} bytes: it takes {floor:,} ({best.bound_reason})"
    if capacity < floor:
        reason = "the alignments need" if capacity < aligned_load(problem) else "mip proved that it takes"
        return f"\nno plan fits {capacity:,} bytes: {reason} {floor:,}"
    return (
        f"\nno plan was found that fits {capacity:,} bytes, but there may be one; the best is "
        f"{best.arena_size - capacity:,} bytes over. Try --planner all, or a longer --deadline"
    )
