# SPDX-License-Identifier: Apache-2.0
"""The page of what changed from one trace to another: two linked maps, and the changes by site."""

from __future__ import annotations

from typing import Any

from memoir import _core
from memoir._core import Trace
from memoir.base.quantities import bytes_text
from memoir.views.page.document import Page
from memoir.views.page.objects import objects_of
from memoir.views.page.of_trace import device_map
from memoir.views.page.panels import Fact, HeapMaps, Table
from memoir.views.page.sites import short_frame
from memoir.views.trace_diff import what_grew
from memoir.views.who_text import name_of

_QUANTITIES = {
    "held": ("Live at the peak", "What changed at the peak, by site?"),
    "allocated": ("Allocated", "What changed in what is allocated, by site?"),
    "kept": ("Never freed", "What changed in what is never freed, by site?"),
    "temporary": ("Temporary", "What changed in what is freed at once, by site?"),
}
_WHO = {
    "kept": "Who never frees more, or less?",
    "held": "Who holds more at the peak, or less?",
}
_MOST_ROWS = 100
_MOST_DEVICES = 4


def trace_diff_page(
    names: tuple[str, str], traces: tuple[Trace, Trace], diff: dict[str, Any], devices: tuple[int, ...] = ()
) -> Page:
    """`diff`: of diff_traces(). `devices`: these alone."""
    facts = []
    for name, (title, _) in _QUANTITIES.items():
        row = diff["totals"][name]
        before, after = bytes_text(row["before_bytes"]), bytes_text(row["after_bytes"])
        counts = f"{row['before_count']:,} to {row['after_count']:,} objects"
        facts.append(Fact(title, change_text(row["change_bytes"]), f"{before} to {after}; {counts}"))
    notes = what_grew(diff)
    page = Page("What changed?", subtitle=f"{names[0]} → {names[1]}", facts=facts, notes=notes)
    for name, question in _WHO.items():
        page.add(_by_whom(question, diff["who"][name]))
    there = [set(_core.devices_of(trace)) for trace in traces]
    for device in sorted(there[0] | there[1])[:_MOST_DEVICES]:
        page.add(_maps(names, traces, device, len(there[0] | there[1]) > 1))
    for name, (_, question) in _QUANTITIES.items():
        page.add(_changes(question, name, diff["stacks"]))
    return page


def _maps(names: tuple[str, str], traces: tuple[Trace, Trace], device: int, several: bool) -> HeapMaps | None:
    where = f" on device {device}" if several else ""
    maps, sets, laid = [], [], []
    for label, name, trace in zip(("before", "after"), names, traces, strict=True):
        objects = objects_of(trace, device)
        if not len(objects):
            continue
        made = device_map(trace, objects, device)
        one = made.maps[0]
        one.name, one.objects = f"{label}: {name}", objects
        laid.append(made.question.startswith("Where would"))
        maps.append(one)
        sets.append(objects)
    if not maps:
        return None
    how = "Their times are linked, each as shares of its own. A site has the same colour in both."
    if any(laid):
        how += " A recording without addresses is laid out by memoir's plain heap."
    return HeapMaps(f"Where did every object lie, before and after{where}?", sets[0], maps, how)


def _by_whom(question: str, rows: list[dict[str, Any]]) -> Table | None:
    rows = sorted(rows, key=lambda row: -abs(row["change_bytes"]))[:_MOST_ROWS]
    if not rows:
        return None
    most = abs(rows[0]["change_bytes"])
    cells = [
        (
            f"{name_of(row, 100)}  {row['place']}".strip(),
            change_text(row["change_bytes"]),
            bytes_text(row["before_bytes"]),
            bytes_text(row["after_bytes"]),
            f"{row['before_count']:,} to {row['after_count']:,}",
        )
        for row in rows
    ]
    shades = [(0, abs(row["change_bytes"]) / most, 0, 0, 0) for row in rows]
    return Table(question, ("who asked", "change", "before", "after", "objects"), cells, shades=shades)


def _changes(question: str, quantity: str, stacks: list[dict[str, Any]]) -> Table | None:
    changed = [row for row in stacks if row[quantity]["change_bytes"]]
    if not changed:
        return None
    changed.sort(key=lambda row: -abs(row[quantity]["change_bytes"]))
    most = abs(changed[0][quantity]["change_bytes"])
    rows, shades = [], []
    for row in changed[:_MOST_ROWS]:
        pair = row[quantity]
        counts = f"{pair['before_count']:,} to {pair['after_count']:,}"
        rows.append(
            (
                " < ".join(map(short_frame, row["stack"].split(" > ")[::-1])),
                change_text(pair["change_bytes"]),
                bytes_text(pair["before_bytes"]),
                bytes_text(pair["after_bytes"]),
                counts,
            )
        )
        shades.append((0, abs(pair["change_bytes"]) / most, 0, 0, 0))
    left = len(changed) - len(rows)
    note = f"The largest changes; {left:,} smaller ones are left out: see --json." if left else ""
    heads = ("site, innermost first", "change", "before", "after", "objects")
    return Table(question, heads, rows, note, shades=shades)


def change_text(size: int) -> str:
    return f"{'+' if size > 0 else '-' if size < 0 else ''}{bytes_text(abs(size))}"
