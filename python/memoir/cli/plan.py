# SPDX-License-Identifier: Apache-2.0
"""`memoir plan`: a trace or a CSV problem in, a plan out."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoir._core import ConstrainedProblem, Error, Problem, aligned_load, busiest_tick, load
from memoir.cli import _constraints
from memoir.cli._arguments import Size, check_output, write_output
from memoir.cli._problems import open_problem
from memoir.planning.planners import PLANNERS
from memoir.sweep import ENGINES

if TYPE_CHECKING:
    from memoir.planning import PlanResult

FITS, HOPELESS, NOT_FOUND = 0, 1, 3  # exit codes; 2 is bad input


@click.command(
    epilog="Exit codes: 0 a plan (that fits), 1 proven that none fits, 2 bad input, 3 none found that fits."
)
@click.argument("inputs", metavar="INPUT...", type=click.Path(dir_okay=False), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Where the plan goes: a .plan or a .csv file."
)
@click.option(
    "--planner",
    type=click.Choice([*PLANNERS, "all"]),
    default="auto",
    show_default=True,
    metavar="NAME|all",
    help=f"One of {', '.join(PLANNERS)}; or all of them, compared.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0),
    help="Seconds for a planner that would search on (auto, exact: 1; mip, cpsat: 10).",
)
@click.option(
    "--threads",
    type=click.IntRange(min=0),
    default=0,
    help="Of auto and exact; 0, the default: one per core.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the restarts of auto and exact.")
@click.option("--seeds", metavar="1-8", help="A sweep: auto and exact with each of these seeds.")
@click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="Of a sweep.")
@click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes of a sweep; the default: one per core."
)
@click.option(
    "--work-limit",
    type=click.IntRange(min=0),
    default=0,
    help="Placements that auto and exact may try, instead of a deadline: the same plan on any machine.",
)
@click.option("--capacity", type=Size(), help="Bytes that the arena must fit into (KiB, MiB, GiB).")
@click.option(
    "--alignment", type=Size(), help="Bytes that every offset shall be a multiple of, beside its own."
)
@click.option("--device", type=click.IntRange(0, 65535), help="Of a trace: plan what was allocated on it.")
@click.option(
    "--stream",
    is_flag=True,
    help="CSV sorted by birth, of any length, in memory for what is live; first fit by windows.",
)
@click.option(
    "--guided",
    is_flag=True,
    help="Of a trace: the whole run on a device, what outlives it too, for the guided pool to follow.",
)
@_constraints.constraint_options
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
def command(
    inputs: tuple[str, ...],
    output: str | None,
    planner: str,
    deadline: float | None,
    threads: int,
    seed: int,
    seeds: str | None,
    engine: str,
    address: str | None,
    workers: int | None,
    work_limit: int,
    capacity: int | None,
    alignment: int | None,
    device: int | None,
    stream: bool,
    guided: bool,
    as_json: bool,
    force: bool,
    **constraints,
) -> None:
    """Give every buffer of INPUT its offset in one arena.

    INPUT is a trace, a memory snapshot of PyTorch or a text trace, whose last complete pass is planned; or CSV
    with the columns id, lower, upper (exclusive; or end, inclusive), size and perhaps alignment, gaps and more
    that a problem can say (docs/constraints.md). Several inputs, or --seeds, make a sweep over all inputs,
    planners and seeds.
    """
    if guided:
        given = _constraints.Options(**constraints).any() or capacity is not None or stream
        if given or planner != "auto" or len(inputs) > 1 or seeds is not None or engine != "local":
            raise Error(
                "--guided takes one trace and plans it in its own way: of the options --device, --alignment, -o, -f "
                "and --json go with it"
            )
        from memoir.cli._plan_guided import plan_guided

        plan_guided(inputs[0], output, device, alignment, as_json, force)
        sys.exit(FITS)
    if stream:
        given = _constraints.Options(**constraints).any() or alignment is not None or device is not None
        if given or planner != "auto" or len(inputs) > 1 or seeds is not None or engine != "local":
            raise Error(
                "--stream takes one CSV and has one planner; of the constraints, alignments in the CSV alone"
            )
        if output is not None:
            check_output(Path(output), (".csv",), force)
        from memoir.cli._stream import plan_stream

        sys.exit(FITS if plan_stream(inputs[0], output, capacity, as_json, force) else NOT_FOUND)
    if len(inputs) > 1 or seeds is not None or engine != "local":
        from memoir.cli._plan_sweep import plan_sweep, seeds_of

        if output is not None:
            raise Error(f"-o {output}: a sweep compares, and writes no plan; plan one input to have it")
        if _constraints.Options(**constraints).any():
            raise Error("arenas, forbidden ranges and the like are of one problem: plan that one alone")
        sys.exit(
            plan_sweep(
                inputs,
                planner,
                seeds_of(seeds) if seeds is not None else [seed],
                alignment=alignment,
                device=device,
                deadline=deadline,
                capacity=capacity,
                threads=threads,
                work_limit=work_limit,
                engine=engine,
                address=address,
                workers=workers,
                as_json=as_json,
            )
        )
    from memoir.planning import plan

    (input,) = inputs
    if output is not None:
        check_output(Path(output), (".plan", ".csv"), force)
    source = open_problem(input, device)
    problem = source.problem
    if alignment is not None:
        problem = problem.aligned_to(alignment)
    said = _constraints.Options(**constraints)
    constrained = said.constrain(source, problem)
    if constrained is not None and output is not None and Path(output).suffix.lower() == ".plan":
        _constraints.refuse_plan_file(constrained)
    for note in source.notes:
        click.echo(note, err=True)
    arenas = said.chosen_arenas()
    if planner == "all":
        results, refusals = plan_with_all(constrained or problem, deadline, capacity, arenas)
    else:
        effort = {"threads": threads, "seed": seed, "work_limit": work_limit, "arenas": arenas}
        results = [plan(constrained or problem, planner, deadline=deadline, capacity=capacity, **effort)]
        refusals = []
    best = min(results, key=_rank)
    floor = max(result.lower_bound for result in results)
    hopeless = any(result.proven_infeasible for result in results)
    code = HOPELESS if hopeless else NOT_FOUND if best.fits is False else FITS

    written = output is not None and not hopeless and len(best.plan) == len(problem)
    if written:
        suffix = Path(output).suffix.lower()
        write_output(Path(output), source.write(suffix, problem, best), force)
    if as_json:
        if planner == "all":
            rows = [result.summary() for result in results]
            rows += [{"planner": name, "error": reason} for name, reason in refusals]
            summary = {"buffers": len(problem), "load": load(problem), "lower_bound": floor}
            summary |= {"arena_size": best.arena_size, "optimal": best.arena_size == floor}
            summary |= {"capacity": capacity, "fits": best.fits, "best": best.planner, "planners": rows}
        else:
            summary = best.summary()
        click.echo(json.dumps({"input": input, **source.meta, **summary}, indent=2))
    else:
        _print(input, problem, constrained, results, refusals, floor, many=planner == "all")
        if constrained is not None:
            _constraints.print_result(best, said.locality)
        elif capacity is not None:
            click.echo(_verdict(problem, best, floor, capacity))
    if written:
        click.echo(f"wrote {output}", err=True)
        if not as_json and (constrained is None or constrained.timed):
            picture = Path(output).with_suffix(".png")
            click.echo(f"\nnext: memoir show {shlex.quote(output)} -o {shlex.quote(str(picture))}")
    elif not as_json and output is None:
        target = Path(input).with_suffix(".plan" if constrained is None else ".planned.csv")
        click.echo(f"\nnext: memoir plan {shlex.quote(input)} -o {shlex.quote(str(target))}")
    if hopeless and constrained is None:
        note = f", so {output} was not written" if output is not None else ""
        click.echo(f"memoir: no plan fits the capacity of {capacity:,} bytes{note}", err=True)
    sys.exit(code)


def _rank(result: PlanResult) -> tuple:
    """The best has the least: it fits, moves few, costs little, is small."""
    moves, cost = getattr(result, "moves", 0) or 0, getattr(result, "cost", 0)
    return not getattr(result, "found", True), result.fits is False, moves, cost, result.arena_size


def plan_with_all(
    problem: Problem | ConstrainedProblem, deadline: float | None, capacity: int | None, arenas: list = ()
) -> tuple[list[PlanResult], list[tuple[str, str]]]:
    """The result of every planner but auto (which is one of them), and why the others made none."""
    from memoir.planning import plan

    results, refusals = [], []
    for name in PLANNERS:
        if name == "auto":
            continue
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{name} ...", err=True, nl=False)
        try:
            results.append(plan(problem, name, deadline=deadline, capacity=capacity, arenas=arenas))
        except Error as error:
            refusals.append((name, str(error)))
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    return results, refusals


def _print(
    input: str,
    problem: Problem,
    constrained: ConstrainedProblem | None,
    results: list[PlanResult],
    refusals: list[tuple[str, str]],
    floor: int,
    many: bool,
) -> None:
    from rich.console import Console

    from memoir.views.plan_table import plan_table

    click.echo(f"{input}: {len(problem):,} buffers, {problem.total_size:,} bytes in all")
    if constrained is None:
        click.echo(f"load: {load(problem):,} bytes, live together at tick {busiest_tick(problem):,}")
        if (aligned := aligned_load(problem)) > load(problem):
            click.echo(f"floor: {aligned:,} bytes with the alignment of the offsets")
    else:
        aligned = floor
        click.echo(f"it says: {', '.join(constrained.says)}")
        click.echo(f"load: {max(result.load for result in results):,} bytes")
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    click.echo()
    console.print(plan_table(results, refusals, aligned if many else floor))
    if not many and results[0].bound_reason:
        click.echo(f"\nno plan is smaller than {floor:,} bytes: {results[0].bound_reason}")


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
        f"\nno plan was found that fits {capacity:,} bytes, though none is excluded; the best is "
        f"{best.arena_size - capacity:,} bytes over. Try --planner all, or a longer --deadline"
    )
