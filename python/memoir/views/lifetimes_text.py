# SPDX-License-Identifier: Apache-2.0
"""The summary of a lifetime profile for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memoir.base.quantities import bytes_text, duration_text, printable

_MOST_FRAMES = 3


def print_lifetimes(console: Console, name: str, summary: dict[str, Any]) -> None:
    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

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
        line(f"  {summary['lost']:,} samples found no room and are lost", "bold red")
    if summary["missed_frees"]:
        line(f"  {summary['missed_frees']:,} frees were missed", "bold red")
    if summary["cut_stacks"]:
        line(f"  {summary['cut_stacks']:,} stacks are cut: too deep, or code that could not be followed")
    if summary["frames"] and not summary["named_frames"]:
        line("  no names: the frames are module+offset")
    if not summary["contexts"]:
        return
    console.print()
    console.print(_classes(summary["classes"], max(estimated["bytes"], 1)))
    console.print()
    console.print(_programs(summary["programs"]))
    console.print()
    console.print(_largest(summary["largest"], max(estimated["bytes"], 1)))


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for other in others:
        table.add_column(other, justify="right")
    return table


def _classes(rows: list[dict[str, Any]], total: float) -> Table:
    table = _table("by lifetime (estimates)", "lived", "bytes", "share", "objects")
    for row in rows:
        table.add_row(
            row["class"],
            bytes_text(row["bytes"]),
            f"{100 * row['bytes'] / total:.1f} %",
            f"{row['objects']:,}",
        )
    return table


def _programs(rows: list[dict[str, Any]]) -> Table:
    table = _table(
        "runs", "program", "process", "time", "allocated", "peak live", "every", "samples", "threads"
    )
    for row in rows[:10]:
        table.add_row(
            Text(printable(row["program"])),
            str(row["process"]),
            duration_text(row["milliseconds"] * 1e6),
            bytes_text(row["allocated"]),
            bytes_text(row["peak_live"]),
            bytes_text(row["every"]),
            f"{row['samples']:,}",
            f"{row['threads']:,}",
        )
    return table


def _largest(rows: list[dict[str, Any]], total: float) -> Table:
    table = _table(
        "contexts that allocate most (estimates)",
        "stack, innermost first",
        "bytes",
        "share",
        "freed",
        "median",
        "95 %",
    )
    for row in rows:
        frames = row["stack"][:_MOST_FRAMES]
        rest = len(row["stack"]) - len(frames)
        text = "\n".join([*frames, *([f"... {rest} more"] if rest else [])]) or "[unknown]"
        table.add_row(
            Text("\n".join(printable(part) for part in text.split("\n"))),
            bytes_text(row["bytes"]),
            f"{100 * row['bytes'] / total:.1f} %",
            f"{100 * row['share_freed']:.0f} %",
            _lifetime(row["milliseconds"]["median"]),
            _lifetime(row["milliseconds"]["p95"]),
        )
    return table


def _lifetime(milliseconds: float | None) -> str:
    return "longer" if milliseconds is None else f"< {duration_text(milliseconds * 1e6)}"
