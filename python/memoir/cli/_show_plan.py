# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.plan`, and `memoir show x.csv` for a CSV with offsets."""

from __future__ import annotations

import io
import json as json_format
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from memoir import _core
from memoir._core import Error, Problem
from memoir.cli._arguments import check_output, write_output
from memoir.planning import PlanResult, plan

PICTURES = (".png", ".svg", ".pdf")
_NOT_PLANNED = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class ShownPlan:
    """What a .plan or a .csv holds: the planned buffers with their offsets, and what was left out."""

    problem: Problem
    offsets: np.ndarray
    arena_size: int
    planner: str
    unplanned: int = 0
    unplanned_bytes: int = 0
    meta: tuple[tuple[str, str], ...] = ()


def open_shown(path: str, is_plan: bool) -> ShownPlan:
    """Error for a file that is bad, a CSV without offsets, or one whose offsets are no plan."""
    if is_plan:
        recorded = _core.open_plan(path)
        planned = recorded.offsets != _NOT_PLANNED
        columns = (recorded.lower, recorded.upper, recorded.sizes, recorded.alignments)
        problem = Problem(*(column[planned] for column in columns))
        left_out = recorded.sizes[~planned]
        return ShownPlan(
            problem,
            recorded.offsets[planned],
            recorded.arena_size,
            recorded.planner,
            len(left_out),
            sum(left_out.tolist()),
            tuple(recorded.meta),
        )
    csv = _core.read_csv(path)
    offsets = csv.offsets
    if offsets is None:
        raise Error(f"{path}: not every buffer has an offset; make a plan with memoir plan {path} -o x.plan")
    tops = [offset + size for offset, size in zip(offsets.tolist(), csv.problem.size.tolist(), strict=True)]
    arena_size = max(tops, default=0)
    violation = ("", "", "an offset is beyond 64 bits") if arena_size >= 2**64 else None
    if violation is None and (csv.has_constraints or csv.arenas):
        return _open_constrained(path, csv, offsets)
    violation = violation or _core.check(csv.problem, _core.Plan(offsets, arena_size))
    _refuse(path, csv, violation)
    return ShownPlan(csv.problem, offsets, arena_size, "of the file")


def _refuse(path: str, csv: _core.CsvProblem, violation: tuple | None) -> None:
    if violation is None:
        return
    first, second, reason = violation
    names = [csv.ids[index] for index in {first, second} if index != ""]
    raise Error(f"{path}: the offsets are no plan: {' and '.join(names)}: {reason}")


def _open_constrained(path: str, csv: _core.CsvProblem, offsets: np.ndarray) -> ShownPlan:
    """Several arenas are drawn one above the other, in the order in which the file names them."""
    from memoir.planning.constraints import Arena, start

    if not csv.timed:
        raise Error(f"{path}: has no columns lower and upper: there is no time to draw it over")
    names = list(dict.fromkeys(csv.arenas)) or [""]
    places = np.array([names.index(name) for name in csv.arenas] or [0] * len(offsets), np.uint64)
    problem = start(csv.problem, csv, [Arena(name) for name in names])
    _refuse(path, csv, _core.check_constrained(problem, offsets, places))
    sizes = [int((offsets + csv.problem.size)[places == k].max(initial=0)) for k in range(len(names))]
    bases = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
    return ShownPlan(csv.problem, offsets + bases[places.astype(np.int64)], sum(sizes), "of the file")


def show_plan(
    path: str,
    *,
    is_plan: bool,
    output: str | None,
    planner: str | None,
    deadline: float | None,
    json: bool,
    force: bool,
) -> None:
    """Prints what a plan is worth; draws its heap map into `output`, beside those of `planner` (or "all")."""
    if output is not None:
        check_output(Path(output), PICTURES, force)
    shown = open_shown(path, is_plan)
    results, refusals = _others(shown.problem, planner, deadline)
    floor = max([_core.aligned_load(shown.problem), *(result.lower_bound for result in results)])
    if output is not None:
        _draw(path, shown, results, floor, Path(output), force)
    if json:
        click.echo(json_format.dumps(_summary(path, shown, results, refusals, floor), indent=2))
        return
    _print(path, shown, results, refusals, floor)
    if output is None:
        target = shlex.quote(str(Path(path).with_suffix(".png")))
        click.echo(f"\nnext: memoir show {shlex.quote(path)} -o {target}")
    elif planner is None:
        target = shlex.quote(str(Path(output).with_stem(Path(output).stem + "-planners")))
        click.echo(f"\nnext: memoir show {shlex.quote(path)} --planner all -o {target}")


def _others(
    problem: Problem, planner: str | None, deadline: float | None
) -> tuple[list[PlanResult], list[tuple[str, str]]]:
    if planner is None:
        return [], []
    if planner == "all":
        from memoir.cli.plan import plan_with_all

        return plan_with_all(problem, deadline, None)
    return [plan(problem, planner, deadline=deadline)], []


def _draw(
    path: str, shown: ShownPlan, results: list[PlanResult], floor: int, output: Path, force: bool
) -> None:
    from memoir.views.heap_map import MappedPlan, draw_heap_maps

    maps = [MappedPlan(f"{Path(path).name} ({shown.planner})", shown.offsets, shown.arena_size)]
    others = sorted(results, key=lambda result: result.arena_size)
    maps += [MappedPlan(result.planner, result.offsets, result.arena_size) for result in others]
    title = " ".join(filter(None, [Path(path).name, dict(shown.meta).get("model", "")]))
    picture = io.BytesIO()
    draw_heap_maps(shown.problem, maps, floor, picture, title=title, file_format=output.suffix.lower()[1:])
    write_output(output, picture.getvalue(), force)
    click.echo(f"wrote {output}", err=True)


def _summary(
    path: str, shown: ShownPlan, results: list[PlanResult], refusals: list[tuple[str, str]], floor: int
) -> dict[str, object]:
    summary: dict[str, object] = {
        "input": path,
        "planner": shown.planner,
        "buffers": len(shown.problem),
        "load": _core.load(shown.problem),
        "lower_bound": floor,
        "arena_size": shown.arena_size,
        "optimal": shown.arena_size == floor,
        "unplanned": {"count": shown.unplanned, "bytes": shown.unplanned_bytes},
        "meta": dict(shown.meta),
    }
    if results or refusals:
        summary["planners"] = [result.summary() for result in results]
        summary["planners"] += [{"planner": name, "error": reason} for name, reason in refusals]
    return summary


def _print(
    path: str, shown: ShownPlan, results: list[PlanResult], refusals: list[tuple[str, str]], floor: int
) -> None:
    from rich.console import Console

    from memoir.views.plan_table import above_floor, plan_table
    from memoir.views.quantities import bytes_text, printable

    total = shown.problem.total_size
    load = _core.load(shown.problem)
    optimal = (
        "optimal" if shown.arena_size == floor else f"{above_floor(shown.arena_size, floor)} above the floor"
    )
    lines = [
        ("buffers", f"{len(shown.problem):,}, {total:,} bytes ({bytes_text(total)}) in all"),
        (
            "load",
            f"{load:,} bytes ({bytes_text(load)}), live together at tick {_core.busiest_tick(shown.problem):,}",
        ),
        ("arena", f"{shown.arena_size:,} bytes ({bytes_text(shown.arena_size)}), {optimal}"),
        ("planner", shown.planner),
    ]
    if shown.unplanned:
        left_out = f"{shown.unplanned:,} allocations, {shown.unplanned_bytes:,} bytes: escaping or empty"
        lines.append(("not planned", left_out))
    lines += [(printable(key), printable(value)) for key, value in shown.meta if len(value) <= 200]
    click.echo(path)
    for name, text in lines:
        click.echo(f"  {name:<12} {text}")
    if results or refusals:
        click.echo()
        console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
        console.print(plan_table(results, refusals, floor))
