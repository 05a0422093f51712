# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.plan`, and `memoir show x.csv` for a CSV with offsets."""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from memoir import _core
from memoir._core import Error, Problem
from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.planning import PlanResult, plan
from memoir.planning.planners import SETS
from memoir.views.screen import Screen

PICTURES = (".html", ".png", ".svg", ".pdf")
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
    memories: tuple[_core.PlannedMemory, ...] = ()  # of a .plan; drawn one above the other
    names: tuple[str, ...] = ()  # of the buffers, where the file has some

    @property
    def load(self) -> int:
        """Bytes: no plan takes less."""
        return sum(memory.load for memory in self.memories) or _core.load(self.problem)


def open_shown(path: str, is_plan: bool) -> ShownPlan:
    """Error for a file that is bad, a CSV without offsets, or one whose offsets are not a plan."""
    if is_plan:
        program = _core.open_plan(path)
        planned = program.offsets != _NOT_PLANNED
        columns = (program.lower, program.upper, program.sizes, program.alignments)
        problem = Problem(*(column[planned] for column in columns))
        left_out = program.sizes[~planned]
        sizes = [memory.size for memory in program.memories]
        bases = np.cumsum([0, *sizes]).astype(np.uint64)
        return ShownPlan(
            problem,
            program.offsets[planned] + bases[program.places[planned].astype(np.int64)],
            sum(sizes),
            program.planner,
            len(left_out),
            sum(left_out.tolist()),
            tuple(program.meta),
            tuple(program.memories),
        )
    csv = _core.read_csv(path)
    offsets = csv.offsets
    if offsets is None:
        raise Error(f"{path}: not every buffer has an offset; make a plan with memoir plan {path} -o x.plan")
    tops = [offset + size for offset, size in zip(offsets.tolist(), csv.problem.size.tolist(), strict=True)]
    arena_size = max(tops, default=0)
    if arena_size >= 2**64:
        raise Error(f"{path}: the offsets are not a plan: an offset is beyond 64 bits")
    if csv.has_constraints or csv.arenas:
        return _open_constrained(path, csv, offsets)
    _refuse(path, csv, _core.check(csv.problem, _core.Plan(offsets, arena_size)))
    return ShownPlan(csv.problem, offsets, arena_size, "of the file", names=tuple(csv.ids))


def _refuse(path: str, csv: _core.CsvProblem, violation: tuple[int, int, str] | None) -> None:
    if violation is None:
        return
    first, second, reason = violation
    names = [csv.ids[index] for index in {first, second}]
    raise Error(f"{path}: the offsets are not a plan: {' and '.join(names)}: {reason}")


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
    placed = offsets + bases[places.astype(np.int64)]
    return ShownPlan(csv.problem, placed, sum(sizes), "of the file", names=tuple(csv.ids))


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
    """Prints what a plan is worth; draws its heap map into `output`, next to those of `planner` (or of "all")."""
    if output is not None:
        check_output(Path(output), PICTURES, force)
    shown = open_shown(path, is_plan)
    if len(shown.memories) > 1 and planner is not None:
        raise Error(
            f"{path} has {len(shown.memories)} memories, and a planner fills one: leave --planner out"
        )
    results, refusals = _others(shown.problem, planner, deadline)
    floor = max([shown.load, *(result.lower_bound for result in results)])
    if len(shown.memories) < 2:
        floor = max(floor, _core.aligned_load(shown.problem))
    if output is not None:
        _draw(path, shown, results, refusals, floor, Path(output), force)
    if json:
        click.echo(json_format.dumps(_summary(path, shown, results, refusals, floor), indent=2))
        return
    _print(path, shown, results, refusals, floor)
    if output is None:
        target = quoted(Path(path).with_suffix(".html").name)
        click.echo(f"\nnext: memoir show {quoted(path)} -o {target}")
    elif planner is None and len(shown.memories) < 2:
        target = quoted(Path(output).with_stem(Path(output).stem + "-planners"))
        click.echo(f"\nnext: memoir show {quoted(path)} --planner all -o {target}")


def _others(
    problem: Problem, planner: str | None, deadline: float | None
) -> tuple[list[PlanResult], list[tuple[str, str]]]:
    if planner is None:
        return [], []
    if planner in SETS:
        from memoir.cli.parts.plan_one import plan_with_each

        return plan_with_each(SETS[planner], problem, deadline, None)
    return [plan(problem, planner, deadline=deadline)], []


def _draw(
    path: str,
    shown: ShownPlan,
    results: list[PlanResult],
    refusals: list[tuple[str, str]],
    floor: int,
    output: Path,
    force: bool,
) -> None:
    from memoir.views.heap_map import MappedPlan, draw_heap_maps

    maps = [MappedPlan(f"{Path(path).name} ({shown.planner})", shown.offsets, shown.arena_size)]
    others = sorted(results, key=lambda result: result.arena_size)
    maps += [MappedPlan(result.planner, result.offsets, result.arena_size) for result in others]
    title = " ".join(filter(None, [Path(path).name, dict(shown.meta).get("model", "")]))
    if output.suffix.lower() == ".html":
        from memoir.views.page.of_plan import plan_page

        left_out = f"not planned: {shown.unplanned:,} escaping or empty, {shown.unplanned_bytes:,} bytes"
        page = plan_page(
            title,
            shown.problem,
            maps,
            floor,
            meta=shown.meta,
            names=shown.names,
            refused=refusals,
            unplanned=left_out if shown.unplanned else "",
        )
        write_output(output, page.render().encode(), force)
        click.echo(f"wrote {quoted(output)}", err=True)
        return
    picture = draw_heap_maps(shown.problem, maps, floor, output.suffix.lower()[1:], title=title)
    write_output(output, picture, force)
    click.echo(f"wrote {quoted(output)}", err=True)


def _summary(
    path: str, shown: ShownPlan, results: list[PlanResult], refusals: list[tuple[str, str]], floor: int
) -> dict[str, object]:
    summary: dict[str, object] = {
        "input": path,
        "planner": shown.planner,
        "buffers": len(shown.problem),
        "load": shown.load,
        "lower_bound": floor,
        "arena_size": shown.arena_size,
        "optimal": shown.arena_size == floor,
        "unplanned": {"count": shown.unplanned, "bytes": shown.unplanned_bytes},
        "meta": dict(shown.meta),
    }
    if _are_told(shown):
        summary["memories"] = [
            {
                "name": memory.name,
                "size": memory.size,
                "load": memory.load,
                "alignment": memory.alignment,
                "capacity": memory.capacity,
            }
            for memory in shown.memories
        ]
    if results or refusals:
        rows = [result.summary() for result in results]
        summary["planners"] = rows + [{"planner": name, "error": reason} for name, reason in refusals]
    return summary


def _are_told(shown: ShownPlan) -> bool:
    """Of the one memory of a pass on a CPU there is nothing to tell but its size."""
    return any(memory.name for memory in shown.memories)


def _print(
    path: str, shown: ShownPlan, results: list[PlanResult], refusals: list[tuple[str, str]], floor: int
) -> None:
    from memoir.base.quantities import bytes_text, printable
    from memoir.views.plan_table import above_floor, plan_table

    total = shown.problem.total_size
    load = shown.load
    optimal = (
        "optimal" if shown.arena_size == floor else f"{above_floor(shown.arena_size, floor)} above the floor"
    )
    when = f"live together at tick {_core.busiest_tick(shown.problem):,}"
    if len(shown.memories) > 1:
        when = "the loads of the memories together"
    lines = [
        ("buffers", f"{len(shown.problem):,}, {total:,} bytes ({bytes_text(total)}) in all"),
        ("load", f"{load:,} bytes ({bytes_text(load)}), {when}"),
        ("arena", f"{shown.arena_size:,} bytes ({bytes_text(shown.arena_size)}), {optimal}"),
        ("planner", shown.planner),
    ]
    if _are_told(shown):
        for memory in shown.memories:
            limit = "" if memory.capacity is None else f", capacity {memory.capacity:,}"
            lines.append((memory.name, f"{memory.size:,} bytes ({bytes_text(memory.size)}){limit}"))
    if shown.unplanned:
        left_out = f"{shown.unplanned:,} allocations, {shown.unplanned_bytes:,} bytes: escaping or empty"
        lines.append(("not planned", left_out))
    lines += [(printable(key), printable(value)) for key, value in shown.meta if len(value) <= 200]
    click.echo(printable(path))
    for name, text in lines:
        click.echo(f"  {name:<12} {text}")
    if results or refusals:
        click.echo()
        Screen.of_output().table(plan_table(results, refusals, floor))
