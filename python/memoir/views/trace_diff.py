# SPDX-License-Identifier: Apache-2.0
"""What changed from one trace to another: by who asked, and by the names of whole stacks, since builds and runs differ in
addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from memoir._core import Trace, Usage
from memoir.base.quantities import bytes_text, printable
from memoir.views import text_table
from memoir.views.native_summary import is_native, who_of
from memoir.views.screen import Screen
from memoir.views.stack_tree import StackTree
from memoir.views.text_table import Table
from memoir.views.who_text import folded, name_of

_QUANTITIES = {
    "held": ("held", "held_bytes"),
    "allocated": ("allocations", "bytes"),
    "kept": ("kept", "kept_bytes"),
    "temporary": ("temporary", "temporary_bytes"),
}
_MOST_ROWS = 20
_ROWS_BY_WHOM = 8
# What a change by who asked is of: the quantity of views/who.py, and how it is said.
_BY_WHOM = {"kept": "never freed", "held": "live at the peak", "churn": "freed again"}


def diff_traces(before: Trace, after: Trace) -> dict[str, Any]:
    """Totals of both, who asked in both and the stacks of both; `held` at the peak of each; the largest changes of what was
    held first."""
    sides = [Usage(trace, None, 1) for trace in (before, after)]
    tree = StackTree()
    stacks: dict[int, list[dict[str, tuple[int, int]]]] = {}
    for side, (trace, usage) in enumerate(zip((before, after), sides, strict=True)):
        for node, figures in _by_stack(tree, trace, usage.sites).items():
            stacks.setdefault(node, [{}, {}])[side] = figures
    rows: list[dict[str, Any]] = [
        {
            "stack": " > ".join(tree.labels(node)) or "(unknown)",
            **{name: _pair(old.get(name), new.get(name)) for name in _QUANTITIES},
        }
        for node, (old, new) in stacks.items()
    ]
    rows.sort(key=lambda row: [-abs(row[name]["change_bytes"]) for name in _QUANTITIES])
    totals = {
        "held": [usage.held_at_peak for usage in sides],
        "allocated": [usage.allocated for usage in sides],
        "kept": [usage.kept for usage in sides],
        "temporary": [usage.temporary for usage in sides],
    }
    return {
        "totals": {
            name: _pair(*((row["count"], row["bytes"]) for row in pair)) for name, pair in totals.items()
        },
        "who": _by_whom((before, after), sides),
        "native": all(is_native(trace) for trace in (before, after)),
        "stacks": rows,
    }


def _by_whom(traces: tuple[Trace, Trace], sides: list[Usage]) -> dict[str, list[dict[str, Any]]]:
    """By quantity the functions whose bytes changed, the most growth first; one that has another line now is the same."""
    found: dict[str, list[dict[str, Any]]] = {}
    named = [who_of(trace, usage) for trace, usage in zip(traces, sides, strict=True)]
    for quantity in _BY_WHOM:
        rows: dict[tuple[str, str, str], list[dict[str, Any] | None]] = {}
        for side, who in enumerate(named):
            for row in who.rows(quantity, len(who.sites)):
                file = row["place"].partition(":")[0]
                key = (row["function"], row["through"], file)
                known = rows.setdefault(key, [None, None])[side]
                if known is not None:  # two files of one short name
                    row = row | {name: row[name] + known[name] for name in ("count", "bytes")}
                rows[key][side] = row
        found[quantity] = [
            {
                **{
                    name: (new or old or {})[name]
                    for name in ("function", "through", "place", "own", "callers")
                },
                **_pair(*((row["count"], row["bytes"]) if row else None for row in (old, new))),
            }
            for old, new in rows.values()
        ]
        found[quantity] = [row for row in found[quantity] if row["change_bytes"]]
        found[quantity].sort(key=lambda row: -row["change_bytes"])
    return found


def _by_stack(tree: StackTree, trace: Trace, sites: np.ndarray) -> dict[int, dict[str, tuple[int, int]]]:
    node_of = tree.of(trace, lambda site: filter(None, [trace.site_name(site)]))
    stacks: dict[int, dict[str, tuple[int, int]]] = {}
    for values in sites.tolist():
        row = dict(zip(sites.dtype.names or (), values, strict=True))
        figures = stacks.setdefault(node_of(row["site"]), {})
        for name, (count, size) in _QUANTITIES.items():
            known = figures.get(name, (0, 0))
            figures[name] = (known[0] + row[count], known[1] + row[size])
    return stacks


def _pair(old: tuple[int, int] | None, new: tuple[int, int] | None) -> dict[str, int]:
    (count, size), (new_count, new_size) = old or (0, 0), new or (0, 0)
    return {
        "before_count": count,
        "before_bytes": size,
        "after_count": new_count,
        "after_bytes": new_size,
        "change_bytes": new_size - size,
    }


def print_diff(screen: Screen, names: tuple[str, str], diff: dict[str, Any]) -> None:
    """What grew, in two sentences, then tables."""
    width = screen.columns(80)
    screen.line(f"from {printable(names[0])} to {printable(names[1])}", "bold")
    for sentence in what_grew(diff):
        for line in folded(sentence, width):
            screen.line(line)
    screen.line()
    rows = []
    what = {
        "held": "live at the peak",
        "allocated": "allocated",
        "kept": "never freed",
        "temporary": "temporary",
    }
    for name, title in what.items():
        row = diff["totals"][name]
        cells = (
            title,
            f"{bytes_text(row['before_bytes'])} in {row['before_count']:,}",
            f"{bytes_text(row['after_bytes'])} in {row['after_count']:,}",
            _change(row["change_bytes"]),
        )
        rows.append(cells)
    screen.table(Table("", ("", "before", "after", "change"), tuple(rows)))
    if diff["native"]:
        for name, title in _BY_WHOM.items():
            for line in _table_by_whom(title, diff["who"][name], width):
                screen.line(line)
        return
    for name, title in what.items():
        _print_changes(screen, name, title, diff["stacks"])


def what_grew(diff: dict[str, Any]) -> list[str]:
    """A sentence for what is never freed and one for the peak: by how much, and who asked for the most of it."""
    found = []
    for quantity, title in (("kept", "Never freed"), ("held", "Live at the peak")):
        total = diff["totals"][quantity]
        change = total["change_bytes"]
        text = f"{title}: {_change(change)}" if change else f"{title}: no change"
        rows = [row for row in diff["who"][quantity] if (row["change_bytes"] > 0) == (change > 0)]
        rows.sort(key=lambda row: (not row["own"], -abs(row["change_bytes"])))
        if change and rows:
            first = rows[0]
            place = f" ({printable(first['place'])})" if first["place"] else ""
            text += f", {_change(first['change_bytes'])} of it asked for by {name_of(first)}{place}"
        found.append(f"{text}.")
    if note := unmatched(diff):
        found.append(note)
    return found


def unmatched(diff: dict[str, Any]) -> str:
    """A warning where no stack of one trace is in the other; "" where some are. Names are compared: code that is named in
    one trace alone, or was built from other files, looks like other code."""
    sides = [
        {row["stack"] for row in diff["stacks"] if any(row[name][f"{side}_count"] for name in _QUANTITIES)}
        for side in ("before", "after")
    ]
    if not all(sides) or sides[0] & sides[1]:
        return ""
    return (
        "No stack of one is in the other, so each of them looks new or gone. If they are of one program, one may lack names: "
        "memoir symbolize finds them."
    )


def _table_by_whom(title: str, rows: list[dict[str, Any]], width: int) -> list[str]:
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: -abs(row["change_bytes"]))
    left = len(rows) - _ROWS_BY_WHOM
    cells = tuple(
        (
            _change(row["change_bytes"]),
            bytes_text(row["before_bytes"]),
            bytes_text(row["after_bytes"]),
            name_of(row, max(width - 58, 24)),
            printable(row["place"]),
        )
        for row in rows[:_ROWS_BY_WHOM]
    )
    note = f"and {left:,} more: see --json" if left > 0 else ""
    heads = ("change", "before", "after", "function", "line")
    return ["", *text_table.lines(Table(f"{title}, by who asked", heads, cells, note=note), width)]


def _print_changes(screen: Screen, quantity: str, title: str, stacks: list[dict[str, Any]]) -> None:
    rows = sorted(stacks, key=lambda row: -abs(row[quantity]["change_bytes"]))
    rows = [row for row in rows if row[quantity]["change_bytes"]]
    if not rows:
        return
    cells = tuple(
        (
            _change(row[quantity]["change_bytes"]),
            bytes_text(row[quantity]["before_bytes"]),
            bytes_text(row[quantity]["after_bytes"]),
            printable(row["stack"]),
        )
        for row in rows[:_MOST_ROWS]
    )
    left = len(rows) - _MOST_ROWS
    note = f"and {left:,} more: see --json" if left > 0 else ""
    screen.line()
    screen.table(
        Table(f"{title}, by stack", ("change", "before", "after", "stack"), cells, note=note, words=(3,))
    )


def _change(size: int) -> str:
    return f"{'+' if size > 0 else '-' if size < 0 else ''}{bytes_text(abs(size))}"
