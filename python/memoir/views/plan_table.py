# SPDX-License-Identifier: Apache-2.0
"""Plans as a table: every planner next to the floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memoir.base.quantities import bytes_text, duration_text
from memoir.planning import PlanResult
from memoir.views.text_table import Table


def above_floor(arena_size: int, floor: int) -> str:
    """'+3.1 %'; '+0' only when it is exactly the floor."""
    if arena_size == floor:
        return "+0"
    if floor == 0:
        return "-"
    percent = 100 * (arena_size - floor) / floor
    return (
        f"+{percent:,.0f} %" if percent >= 100 else f"+{percent:.3g} %" if percent >= 0.001 else "+<0.001 %"
    )


def plan_table(
    results: Sequence[PlanResult], refusals: Sequence[tuple[str, str]], floor: int, timed: bool = True
) -> Table:
    """Smallest arena first; then the planners that made no plan, and why. `timed`: with the seconds."""
    heads = ("planner", "arena bytes", "", "above floor", *["time"] * timed, "")
    blank = [""] * timed
    rows: list[tuple[str, ...]] = [("floor", f"{floor:,}", bytes_text(floor), "", *blank, "")]
    for result in sorted(results, key=lambda result: result.arena_size):
        notes = []
        if result.optimal:
            notes.append("optimal")
        if result.lower_bound > floor:
            notes.append(f"proved that {result.lower_bound:,} is the smallest possible")
        if result.fits is False:
            notes.append("does not fit")
        row = (
            result.planner if result.maker == result.planner else f"{result.planner} ({result.maker})",
            f"{result.arena_size:,}",
            bytes_text(result.arena_size),
            above_floor(result.arena_size, floor),
            *([duration_text(result.seconds * 1e9)] if timed else []),
            ", ".join(notes),
        )
        rows.append(row)
    rows += [(name, "-", "", "", *blank, reason) for name, reason in refusals]
    dim = [*((0, column) for column in range(3)), *((number, len(heads) - 1) for number in range(len(rows)))]
    return Table("", heads, tuple(rows), styles=dict.fromkeys(dim, "dim"), words=(0, len(heads) - 1))


def sweep_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Of many problems and planners; several seeds become one row: the best arena, the worst, the mean time."""
    heads = ("input", "planner", "seeds", "best arena", "above floor", "worst", "time", "")
    made: list[tuple[str, ...]] = []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["input"], row["planner"]), []).append(row)
    last = None
    for (path, planner), group in groups.items():
        floor = max(row["lower_bound"] for row in rows if row["input"] == path)
        best = min(group, key=lambda row: row["arena_size"])
        worst = max(row["arena_size"] for row in group)
        notes = ["optimal"] * (best["arena_size"] == floor) + ["does not fit"] * (best["fits"] is False)
        cells = (
            path if path != last else "",
            planner,
            f"{len(group):,}",
            f"{best['arena_size']:,}",
            above_floor(best["arena_size"], floor),
            above_floor(worst, floor) if len(group) > 1 else "",
            duration_text(1e9 * sum(row["seconds"] for row in group) / len(group)),
            ", ".join(notes),
        )
        made.append(cells)
        last = path
    return Table("", heads, tuple(made), words=(0, 1, len(heads) - 1))
