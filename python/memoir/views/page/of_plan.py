# SPDX-License-Identifier: Apache-2.0
"""The page of a plan: its heap map, next to another planner's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memoir._core import Problem
from memoir.base.quantities import bytes_text, printable
from memoir.views.heap_map import MappedPlan
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import Fact, Flame, HeapMaps, Lifetimes, Map, Table
from memoir.views.page.sites import SiteTree
from memoir.views.plan_table import above_floor


def objects_of_plan(problem: Problem, names: Sequence[str] = ()) -> tuple[ObjectSet, np.ndarray]:
    """Buffers in order of birth, and the number of each in the problem. `names`: of buffers, where they have some."""
    order = np.argsort(problem.lower, kind="stable")
    lower, upper = problem.lower[order], problem.upper[order]
    first = lower.min(initial=2**64 - 1) if len(order) else 0
    columns = {"number": order.astype(np.int64)}
    tree = SiteTree()
    if names:
        columns["site"] = np.array([tree.add(names[number]) for number in order.tolist()], np.int64)
    born, died = (lower - np.uint64(first)).astype(np.int64), (upper - np.uint64(first)).astype(np.int64)
    born, died, ticks = _ranked(born, died)
    size = problem.size[order].astype(np.int64)
    objects = ObjectSet(born, died, size, ticks, "tick", tree, columns, open_ended=False)
    return objects, order


def _ranked(born: np.ndarray, died: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Ticks as they are, or their ranks where there are far more of them than buffers: a plan depends on no more."""
    most = int(died.max(initial=0))
    if most <= 8 * len(born) + 1000:
        return born, died, most
    times = np.unique(np.concatenate([born, died]))
    return np.searchsorted(times, born), np.searchsorted(times, died), len(times) - 1


def plan_page(
    title: str,
    problem: Problem,
    plans: Sequence[MappedPlan],
    floor: int,
    *,
    meta: Sequence[tuple[str, str]] = (),
    names: Sequence[str] = (),
    refused: Sequence[tuple[str, str]] = (),
    unplanned: str = "",
) -> Page:
    """The first of `plans` is the file's; it is drawn next to the best of the others. `floor`: no plan takes less."""
    objects, order = objects_of_plan(problem, names)
    own = plans[0]
    hole, tick = _largest_hole(objects, own.offsets[order], own.arena_size)
    peak, _ = objects.peak()
    facts = [
        Fact("Arena", bytes_text(own.arena_size), f"{own.arena_size:,} bytes, {len(problem):,} buffers"),
        Fact(
            "Arena over floor",
            f"{own.arena_size / floor:.4f}" if floor else "1",
            "optimal"
            if own.arena_size == floor
            else f"{above_floor(own.arena_size, floor)}; no plan takes less than the floor, {bytes_text(floor)}",
        ),
        Fact(
            "Largest request that still fits",
            bytes_text(hole),
            f"in the arena at its fullest, {bytes_text(peak)} live at tick {tick:,}",
        ),
    ]
    page = Page(title, subtitle=unplanned, facts=facts)
    if len(problem):
        shown = list(plans[:1])
        others = [plan for plan in plans[1:] if not np.array_equal(plan.offsets, own.offsets)]
        shown += sorted(others, key=lambda plan: plan.arena_size)[:1]
        maps = [
            Map(
                f"{plan.name}: {bytes_text(plan.arena_size)}" if len(shown) > 1 else "",
                plan.offsets[order],
                lines=[("floor", floor)] + ([("arena", plan.arena_size)] if plan.arena_size != floor else []),
            )
            for plan in shown
        ]
        note = "Each rectangle is a buffer: as high as its bytes, as long as its lifetime."
        page.add(HeapMaps("Where does the plan put every buffer?", objects, maps, note, "offset"))
        if len({*names}) < len(names):
            page.add(Flame("Whose buffers are these?", objects))
        page.add(Lifetimes("How long do buffers of each size live?", objects))
    if len(plans) > 1 or refused:
        rows = [(plan.name, f"{plan.arena_size:,}", _over(plan.arena_size, floor)) for plan in plans]
        rows += [(name, "", reason) for name, reason in refused]
        page.add(Table("Which planner takes least?", ("planner", "arena, bytes", "arena / floor"), rows))
    rows_of_meta = [(printable(key), printable(value)) for key, value in meta]
    return page.add(
        Table("What was planned?", ("key", "value"), rows_of_meta, left=2) if rows_of_meta else None
    )


def _over(arena: int, floor: int) -> str:
    return f"{arena / floor:.4f}" if floor else ""


def _largest_hole(objects: ObjectSet, offsets: np.ndarray, arena: int) -> tuple[int, int]:
    """(bytes of the largest free stretch at the peak, the peak's tick)."""
    _, tick = objects.peak()
    live = objects.at(tick)
    low = offsets[live].astype(np.int64)
    order = np.argsort(low, kind="stable")
    low, high = low[order], (low + objects.size[live])[order]
    edges = np.concatenate([low, [arena]]) - np.concatenate([[0], np.maximum.accumulate(high)])
    return int(max(edges.max(initial=0), 0)), tick
