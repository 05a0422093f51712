# SPDX-License-Identifier: Apache-2.0
"""The summary of a trace for a terminal."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.native_text import print_losses, print_native
from memoir.views.screen import Screen
from memoir.views.terminal_plot import area, squeezed
from memoir.views.text_table import Table
from memoir.views.who_text import folded, sentences, tables

_MOST_PASSES = 8
_MOST_OPERATORS = 8


def print_answer(screen: Screen, name: str, summary: dict[str, Any]) -> None:
    """Of a program that was recorded: what the recording lost, three sentences, and tables by who asked."""
    native = summary["native"]
    head = printable(name)
    if command := summary["meta"].get("command"):
        head += f": {printable(command)}"
    threads = _number(summary["threads"], "thread")
    width = screen.columns(80)
    for line in folded(f"{head}, {duration_text(summary['duration_ns'])}, {threads}", width):
        screen.line(line, "bold")
    _print_damage(screen, summary)
    print_losses(screen, native)
    _print_sentences(screen, summary)
    for line in tables(native, width):
        screen.line(line)


def _print_sentences(screen: Screen, summary: dict[str, Any]) -> None:
    for sentence in sentences(summary):
        for number, line in enumerate(folded(sentence, screen.columns(80))):
            head = line.find(":") + 1 if number == 0 else 0
            screen.line(screen.paint(line[:head], "bold") + line[head:])


def print_summary(screen: Screen, name: str, summary: dict[str, Any], *, ascii_only: bool = False) -> None:
    """All that there is to say. Of a program that was recorded its answer comes first."""
    if "native" in summary and summary["allocations"]["count"]:
        _print_sentences(screen, summary)
        screen.line()
    _print_head(screen, name, summary)
    if summary["allocations"]["count"] == 0:
        screen.line("It holds no allocations.")
        return
    _print_curve(screen, summary, ascii_only)
    total = summary["allocations"]["bytes"]
    native = summary.get("native")
    operators = []
    if summary["operators"]:
        operators = [
            _operators("by outermost operator", "operator", summary["outermost_operators"], total),
            _operators("by innermost operator", "operator", summary["operators"], total),
        ]
    if not native:
        operators.append(_operators("by chain of operators", "chain", summary["chains"], total))
    tables = [
        _devices(summary["devices"]) if summary["devices"] else None,
        _passes(summary["passes"]) if summary["passes"] else None,
        _graph(summary["graph"]) if summary["graph"] else None,
        _lifetimes(summary["lifetimes"]),
        *operators,
    ]
    for table in tables:
        if table is not None:
            screen.line()
            screen.table(table)
    if native:
        print_native(screen, native, ascii_only=ascii_only)


def _print_head(screen: Screen, name: str, summary: dict[str, Any]) -> None:
    line = screen.line
    line(printable(name), "bold")
    _print_damage(screen, summary)
    for key, value in summary["meta"].items():
        if not key.startswith("graph_"):
            line(f"  {printable(key)}: {printable(value)}")
    made, freed, kept, peak = (summary[key] for key in ("allocations", "frees", "never_freed", "peak"))
    line(f"  {_count(made, 'allocation')} in {duration_text(summary['duration_ns'])}")
    line(f"  {_count(freed, 'free')}; {_count(kept, 'object')} never freed")
    if peak["event"] is not None:
        line(
            f"  peak: {bytes_text(peak['bytes'])} live in {_number(peak['objects'], 'object')}, after "
            f"{duration_text(peak['time_ns'])} (event {peak['event']:,})"
        )
    crossed = summary["freed_on_another_thread"]
    line(
        f"  {_number(summary['threads'], 'thread')}; "
        f"{_number(crossed['count'], 'object')} freed on another than their own"
    )


def _print_damage(screen: Screen, summary: dict[str, Any]) -> None:
    def line(text: str) -> None:
        screen.line(text, "alarm")

    if not summary["complete"]:
        lost = (
            f"; {summary['lost_bytes']:,} bytes of records are known to be lost"
            if summary["lost_bytes"]
            else ""
        )
        line(f"  incomplete: the recording did not end by itself, or the file was cut{lost}")
    if summary["dropped"]:
        line(f"  {summary['dropped']:,} records were dropped while recording (a full disk?)")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _count(row: dict[str, Any], noun: str) -> str:
    return f"{_number(row['count'], noun)} of {bytes_text(row['bytes'])}"


def _print_curve(screen: Screen, summary: dict[str, Any], ascii_only: bool) -> None:
    curve = summary["load_curve"]
    values = squeezed(curve["bytes"], max(screen.columns(120) - 14, 6))
    screen.line("\nlive bytes against time", "title")
    lines = area(values, ascii_only=ascii_only)
    for row, line in enumerate(lines):
        label = bytes_text(summary["peak"]["bytes"]) if row == 0 else "0 B" if row == len(lines) - 1 else ""
        screen.line(f"{label:>10} |{line}")
    begin = duration_text(curve["begin_ns"])
    end = duration_text(curve["begin_ns"] + curve["step_ns"] * len(curve["bytes"]))
    screen.line(f"{'':11} {begin} {end:>{max(len(values) - len(begin) - 1, 0)}}")


def _devices(devices: list[dict[str, Any]]) -> Table:
    """What each device was asked for, and the requests that failed."""
    columns = (
        "allocations",
        "peak live",
        "peak reserved",
        "segments",
        "map / unmap",
        "streams",
        "out of memory",
    )
    private = any(row["private_pools"] for row in devices)
    cells = []
    for row in devices:
        calls, reserved, failed = row["segments"], row["peak_reserved_bytes"], row["out_of_memory"]
        pools = row["private_pools"]
        held = sum(pool["peak_reserved_bytes"] for pool in pools)
        line = (
            str(row["device"]),
            f"{row['allocations']['count']:,}",
            bytes_text(row["peak_live_bytes"]),
            "" if reserved is None else bytes_text(reserved),
            f"{calls['segment_allocate']:,} got, {calls['segment_free']:,} returned",
            f"{calls['segment_map']:,} / {calls['segment_unmap']:,}",
            f"{len(row['streams']):,}",
            f"{len(failed):,}" + (f", first of {bytes_text(failed[0]['asked_bytes'])}" if failed else ""),
            *[f"{len(pools):,} of {bytes_text(held)}" if pools else ""] * private,
        )
        cells.append(line)
    return Table("devices", ("device", *columns, *["private pools"] * private), tuple(cells), words=())


def _passes(passes: list[dict[str, Any]]) -> Table:
    heads = (
        "pass",
        "thread",
        "time",
        "allocations",
        "bytes",
        "peak live",
        "escaping",
        "by other threads",
    )
    cells = []
    for row in passes[:_MOST_PASSES]:
        escaping = row["escaping"]
        other = row["other_threads"]
        line = (
            f"{row['pass']:,}",
            str(row["thread"]),
            duration_text(row["duration_ns"]) if row["ended"] else "did not end",
            f"{row['allocations']['count']:,}",
            bytes_text(row["allocations"]["bytes"]),
            bytes_text(row["peak_bytes"]),
            f"{escaping['count']:,} ({bytes_text(escaping['bytes'])})" if escaping else "?",
            f"{other['allocations']:,} made, {other['frees']:,} freed",
        )
        cells.append(line)
    left = len(passes) - _MOST_PASSES
    note = f"and {left:,} more: see --json" if left > 0 else ""
    return Table("passes", heads, tuple(cells), note=note, words=())


def _graph(graph: dict[str, Any]) -> Table:
    cells = []
    for name, show in (("allocations", "{:,}".format), ("bytes", bytes_text)):
        row = graph[name]
        ratio = "" if row["ratio"] is None else f"{100 * row['ratio']:.1f} %"
        cells.append((name, show(row["graph"]), show(row["recorded"]), ratio))
    heads = ("", "graph (torch.export)", "recorded", "graph / recorded")
    return Table("what the graph shows, in one pass", heads, tuple(cells), words=(0,))


def _lifetimes(classes: list[dict[str, Any]]) -> Table:
    """Sizes down, lifetimes across; objects in the cells, bytes at the right."""
    # What was never freed has no class of lifetime: its column is the last.
    columns = sorted(
        {(row["lifetime_from_ns"], row["lifetime_to_ns"]) for row in classes},
        key=lambda column: (column[0] is None, column[0]),
    )
    sizes = sorted({(row["size_from"], row["size_to"]) for row in classes}, key=lambda size: size[0])
    cells = {
        (row["size_from"], row["lifetime_from_ns"], row["lifetime_to_ns"]): row["count"] for row in classes
    }
    heads = ("size", *(_lifetime_label(*column) for column in columns), "bytes")
    rows = []
    for size_from, size_to in sizes:
        total = sum(row["bytes"] for row in classes if row["size_from"] == size_from)
        label = (
            f"{_decimal(size_from, 'B')} and more" if size_to is None else f"under {_decimal(size_to, 'B')}"
        )
        counts = [cells.get((size_from, *column), 0) for column in columns]
        rows.append((label, *(f"{count:,}" if count else "" for count in counts), bytes_text(total)))
    return Table("objects by size and lifetime", heads, tuple(rows), words=(0,))


def _lifetime_label(from_ns: int | None, to_ns: int | None) -> str:
    if from_ns is None:
        return "not freed"
    return f">= {_decimal(from_ns, 'ns')}" if to_ns is None else f"< {_decimal(to_ns, 'ns')}"


def _decimal(power_of_ten: int, unit: str) -> str:
    """Decades, in decimal units: 1000 bytes are 1 kB."""
    units = {"B": ("B", "kB", "MB", "GB"), "ns": ("ns", "us", "ms", "s", "ks")}[unit]
    step = 0
    while power_of_ten >= 1000 and step + 1 < len(units):
        power_of_ten //= 1000
        step += 1
    return f"{power_of_ten} {units[step]}"


def _operators(title: str, key: str, rows: list[dict[str, Any]], total: int) -> Table:
    cells = []
    for row in rows[:_MOST_OPERATORS]:
        share = f"{100 * row['bytes'] / total:.1f} %" if total else ""
        cells.append((bytes_text(row["bytes"]), share, f"{row['count']:,}", printable(row[key])))
    return Table(f"bytes {title}", ("bytes", "share", "allocations", key), tuple(cells), words=(3,))
