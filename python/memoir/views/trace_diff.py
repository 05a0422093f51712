# SPDX-License-Identifier: Apache-2.0
"""What changed from one trace to another, by the names of their stacks: builds and runs differ in addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memoir._core import Trace, Usage
from memoir.base.quantities import bytes_text, printable

_QUANTITIES = {
    "held": ("held", "held_bytes"),
    "allocated": ("allocations", "bytes"),
    "kept": ("kept", "kept_bytes"),
    "temporary": ("temporary", "temporary_bytes"),
}
_MOST_ROWS = 20


def diff_traces(before: Trace, after: Trace) -> dict[str, Any]:
    """Totals and stacks of both, `held` at the peak of each; the largest changes of what was held first."""
    sides = [Usage(trace, None, 1) for trace in (before, after)]
    stacks: dict[str, list[dict[str, tuple[int, int]]]] = {}
    for side, (trace, usage) in enumerate(zip((before, after), sides, strict=True)):
        for chain, figures in _by_chain(trace, usage.sites).items():
            stacks.setdefault(chain, [{}, {}])[side] = figures
    rows: list[dict[str, Any]] = [
        {"stack": chain, **{name: _pair(old.get(name), new.get(name)) for name in _QUANTITIES}}
        for chain, (old, new) in stacks.items()
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
        "stacks": rows,
    }


def _by_chain(trace: Trace, sites: np.ndarray) -> dict[str, dict[str, tuple[int, int]]]:
    chains: dict[str, dict[str, tuple[int, int]]] = {}
    for values in sites.tolist():
        row = dict(zip(sites.dtype.names or (), values, strict=True))
        figures = chains.setdefault(trace.site_chain(row["site"]) or "(unknown)", {})
        for name, (count, size) in _QUANTITIES.items():
            known = figures.get(name, (0, 0))
            figures[name] = (known[0] + row[count], known[1] + row[size])
    return chains


def _pair(old: tuple[int, int] | None, new: tuple[int, int] | None) -> dict[str, int]:
    (count, size), (new_count, new_size) = old or (0, 0), new or (0, 0)
    return {
        "before_count": count,
        "before_bytes": size,
        "after_count": new_count,
        "after_bytes": new_size,
        "change_bytes": new_size - size,
    }


def print_diff(console: Console, names: tuple[str, str], diff: dict[str, Any]) -> None:
    console.print(Text(f"from {printable(names[0])} to {printable(names[1])}", style="bold"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("", "before", "after", "change"):
        table.add_column(name, justify="left" if not name else "right", header_style="dim")
    what = {
        "held": "live at the peak",
        "allocated": "allocated",
        "kept": "never freed",
        "temporary": "temporary",
    }
    for name, title in what.items():
        row = diff["totals"][name]
        table.add_row(
            title,
            f"{bytes_text(row['before_bytes'])} in {row['before_count']:,}",
            f"{bytes_text(row['after_bytes'])} in {row['after_count']:,}",
            _change(row["change_bytes"]),
        )
    console.print(table)
    for name, title in what.items():
        _print_changes(console, name, title, diff["stacks"])


def _print_changes(console: Console, quantity: str, title: str, stacks: list[dict[str, Any]]) -> None:
    rows = sorted(stacks, key=lambda row: -abs(row[quantity]["change_bytes"]))
    rows = [row for row in rows if row[quantity]["change_bytes"]]
    if not rows:
        return
    table = Table(
        title=f"{title}, by stack", title_justify="left", title_style="italic", box=None, pad_edge=False
    )
    for name in ("change", "before", "after"):
        table.add_column(name, justify="right", header_style="dim", no_wrap=True)
    table.add_column("stack", header_style="dim", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        pair = row[quantity]
        table.add_row(
            _change(pair["change_bytes"]),
            bytes_text(pair["before_bytes"]),
            bytes_text(pair["after_bytes"]),
            Text(printable(row["stack"])),
        )
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS:,} more: see --json"
    console.print()
    console.print(table)


def _change(size: int) -> str:
    return f"{'+' if size > 0 else '-' if size < 0 else ''}{bytes_text(abs(size))}"
