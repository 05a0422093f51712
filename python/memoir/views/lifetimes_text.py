# SPDX-License-Identifier: Apache-2.0
"""The summary of a lifetime profile for a terminal."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.screen import Screen
from memoir.views.text_table import Table

_MOST_FRAMES = 3
_MOST_RUNS = 10


def print_lifetimes(screen: Screen, name: str, summary: dict[str, Any]) -> None:
    """What there is to say of a profile, and tables of it."""
    line = screen.line
    estimated = summary["estimated"]
    line(printable(name), "bold")
    line(
        f"  {_number(summary['runs'], 'run')}, {duration_text(summary['milliseconds'] * 1e6)} in all; "
        f"{bytes_text(summary['allocated'])} allocated"
    )
    line(
        f"  {_number(summary['samples'], 'sample')} in {_number(summary['contexts'], 'context')}: they stand for about "
        f"{estimated['objects']:,} objects of {bytes_text(estimated['bytes'])}"
    )
    line(
        f"  never freed: about {estimated['censored_objects']:,} of {bytes_text(estimated['censored_bytes'])}; "
        f"{summary['freed_on_another_thread']:,} samples were freed on another than their own thread"
    )
    if summary["lost"]:
        line(f"  {summary['lost']:,} samples found no room and are lost", "alarm")
    if summary["missed_frees"]:
        line(f"  {summary['missed_frees']:,} frees were missed", "alarm")
    if summary["cut_stacks"]:
        line(f"  {summary['cut_stacks']:,} stacks are cut: too deep, or code that could not be followed")
    if summary["frames"] and not summary["named_frames"]:
        line("  no names: the frames are module+offset")
    if not summary["contexts"]:
        return
    total = max(estimated["bytes"], 1)
    tables = (
        _classes(summary["classes"], total),
        _programs(summary["programs"]),
        _largest(summary["largest"], total),
    )
    for table in tables:
        screen.line()
        screen.table(table)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _classes(rows: list[dict[str, Any]], total: float) -> Table:
    cells = tuple(
        (
            row["class"],
            bytes_text(row["bytes"]),
            f"{100 * row['bytes'] / total:.1f} %",
            f"{row['objects']:,}",
        )
        for row in rows
    )
    return Table("by lifetime (estimates)", ("lived", "bytes", "share", "objects"), cells, words=(0,))


def _programs(rows: list[dict[str, Any]]) -> Table:
    heads = ("program", "process", "time", "allocated", "peak live", "every", "samples", "threads")
    cells = tuple(
        (
            printable(row["program"]),
            str(row["process"]),
            duration_text(row["milliseconds"] * 1e6),
            bytes_text(row["allocated"]),
            bytes_text(row["peak_live"]),
            bytes_text(row["every"]),
            f"{row['samples']:,}",
            f"{row['threads']:,}",
        )
        for row in rows[:_MOST_RUNS]
    )
    left = len(rows) - _MOST_RUNS
    return Table("runs", heads, cells, note=f"and {left:,} more: see --json" if left > 0 else "", words=(0,))


def _largest(rows: list[dict[str, Any]], total: float) -> Table:
    heads = ("stack, innermost first", "bytes", "share", "freed", "median", "95 %")
    cells = []
    for row in rows:
        frames = row["stack"][:_MOST_FRAMES]
        rest = len(row["stack"]) - len(frames)
        text = "\n".join([*frames, *([f"... {rest} more"] if rest else [])]) or "[unknown]"
        line = (
            "\n".join(printable(part) for part in text.split("\n")),
            bytes_text(row["bytes"]),
            f"{100 * row['bytes'] / total:.1f} %",
            f"{100 * row['share_freed']:.0f} %",
            _lifetime(row["milliseconds"]["median"]),
            _lifetime(row["milliseconds"]["p95"]),
        )
        cells.append(line)
    return Table("contexts that allocate most (estimates)", heads, tuple(cells), words=(0,))


def _lifetime(milliseconds: float | None) -> str:
    return "longer" if milliseconds is None else f"< {duration_text(milliseconds * 1e6)}"
