# SPDX-License-Identifier: Apache-2.0
"""What a trace of a native program says, for a terminal."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.screen import Screen
from memoir.views.terminal_plot import area, squeezed
from memoir.views.text_table import Table

_MOST_ROWS = 8
_MOST_FRAMES = 6

_LOSSES = {
    "torn_bytes": "bytes of events are torn: they were being written when the program or the machine stopped",
    "cut_bytes": "bytes are cut off, or cannot be read",
    "blocks": "blocks of events are missing or torn",
    "no_room": "events found no memory or disk",
    "interrupted": "events of signal handlers came while the recorder was at work",
    "other": "events were lost for other reasons",
    "deep_frames": "frames are left out: their stacks are too deep",
    "unread_frames": "frames are left out: their code has no unwind information",
    "unknown_frees": "frees are of objects from before the recording",
    "missed_frees": "objects end without a free: their addresses were allocated again",
    "unknown_unmaps": "mappings were given back that were made before the recording",
}


def print_native(screen: Screen, native: dict[str, Any], *, ascii_only: bool = False) -> None:
    """All tables of a program; who_text.py has the answer that comes before them."""
    _print_end(screen, native)
    _print_rates(screen, native["rates"], ascii_only)
    moment = native["moment"]
    when = "never" if moment["time_ns"] is None else duration_text(moment["time_ns"])
    what = "at the peak" if moment["is_peak"] else "at the chosen moment"
    screen.line(f"\n{what}, after {when}: {bytes_text(moment['bytes'])} live in {moment['count']:,} objects")
    held = native["held_by"]
    _print_stacks(screen, "held then, by stack", held["stacks"], moment["bytes"])
    for title, rows in (
        ("by the function that called an allocator", held["functions"]),
        ("by library", held["libraries"]),
        ("by operator", held["operators"]),
        ("by line of Python", held["lines"]),
        ("by module of the model", held["modules"]),
    ):
        _print_names(screen, f"held then, {title}", rows, moment["bytes"])
    for title, rows in native["who"]["inclusive"].items():
        what = "live then" if title == "held" else "never freed"
        named = [{**row, "name": f"{row['function']}  {row['place']}"} for row in rows]
        total = moment["bytes"] if title == "held" else native["kept"]["bytes"]
        _print_names(screen, f"{what}, by function of the program with all that it called", named, total)
    _print_kept(screen, native["kept"])
    temporary = native["temporary"]
    screen.line(
        f"\ntemporary (freed before their threads allocated again): {temporary['count']:,} objects of "
        f"{bytes_text(temporary['bytes'])}",
    )
    _print_stacks(screen, "temporary, by stack", temporary["stacks"], temporary["bytes"])
    _print_threads(screen, native["threads"])
    if native["resident"] is not None:
        _print_resident(screen, native["resident"])


def print_losses(screen: Screen, native: dict[str, Any]) -> None:
    for name, count in native["losses"].items():
        screen.line(f"  {count:,} {_LOSSES[name]}", "alarm")


def _print_end(screen: Screen, native: dict[str, Any]) -> None:
    end = native["end"]
    if end is not None:
        how = "became another program" if end["by_exec"] else f"ended with status {end['status']}"
        who = "recording ended" if native["attached"] and not end["by_exec"] else f"program {how}"
        screen.line(f"  the {who}, after {duration_text(end['time_ns'])}")
    families = ", ".join(
        f"{row['count']:,} by {row['family']} ({bytes_text(row['bytes'])})" for row in native["families"]
    )
    screen.line(f"  allocations: {families}")


def _print_rates(screen: Screen, rates: dict[str, Any], ascii_only: bool) -> None:
    counts = rates["allocations"]
    if not any(counts):
        return
    seconds = rates["step_ns"] / 1e9
    most = max(counts) / seconds
    values = squeezed(counts, max(screen.columns(120) - 14, 6))
    screen.line(f"\nallocations a second against time (at most {most:,.0f})", "title")
    for line in area(values, height=3, ascii_only=ascii_only):
        screen.line(f"{'':>10} |{line}")


def _print_stacks(screen: Screen, title: str, rows: list[dict[str, Any]], total: int) -> None:
    if not rows:
        return
    cells = tuple(
        (
            bytes_text(row["bytes"]),
            _share(row["bytes"], total),
            f"{row['count']:,}",
            _stack_text(row["stack"]),
        )
        for row in rows[:_MOST_ROWS]
    )
    _print_table(screen, title, ("bytes", "share", "objects", "stack, innermost first"), cells)


def _stack_text(stack: list[str]) -> str:
    frames = [printable(frame) for frame in reversed(stack)]
    if len(frames) > _MOST_FRAMES:
        frames = [*frames[:_MOST_FRAMES], f"... {len(frames) - _MOST_FRAMES} more"]
    return " < ".join(frames)


def _print_names(screen: Screen, title: str, rows: list[dict[str, Any]], total: int) -> None:
    if not rows:
        return
    cells = tuple(
        (bytes_text(row["bytes"]), _share(row["bytes"], total), f"{row['count']:,}", printable(row["name"]))
        for row in rows[:_MOST_ROWS]
    )
    _print_table(screen, title, ("bytes", "share", "objects", ""), cells)


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else ""


def _print_kept(screen: Screen, kept: dict[str, Any]) -> None:
    when = "when the program ended" if kept["program_ended"] else "when the recording ended"
    screen.line(
        f"\nnever freed: {kept['count']:,} objects of {bytes_text(kept['bytes'])} {when} (whether something "
        "still pointed to them is not known)",
    )
    for row in kept["excluded"]:
        screen.line(f"  not counted: {row['count']:,} of {bytes_text(row['bytes'])} by {row['why']}")
    _print_stacks(screen, "never freed, by stack", kept["stacks"], kept["bytes"])


def _print_threads(screen: Screen, rows: list[dict[str, Any]]) -> None:
    if len(rows) < 2:
        return
    heads = (
        "allocated",
        "objects",
        "held then",
        "never freed",
        "temporary",
        "freed elsewhere",
        "thread",
    )
    cells = tuple(
        (
            bytes_text(row["bytes"]),
            f"{row['allocations']:,}",
            bytes_text(row["held_bytes"]),
            bytes_text(row["kept_bytes"]),
            f"{row['temporary']:,}",
            f"{row['freed_elsewhere']:,}",
            f"{row['thread']} {printable(row['name'])}".strip(),
        )
        for row in sorted(rows, key=lambda row: -row["bytes"])[:_MOST_ROWS]
    )
    left = len(rows) - _MOST_ROWS
    _print_table(screen, "threads", heads, cells, f"and {left:,} more: see --json" if left > 0 else "")


def _print_resident(screen: Screen, resident: dict[str, Any]) -> None:
    title = (
        f"why {bytes_text(resident['resident_bytes'])} were resident after "
        f"{duration_text(resident['time_ns'])}, and {bytes_text(resident['live_bytes'])} live"
    )
    cells = tuple(
        (bytes_text(part["bytes"]), _share(part["bytes"], resident["resident_bytes"]), part["what"])
        for part in resident["parts"]
    )
    _print_table(screen, title, ("bytes", "share", ""), cells)
    if resident["mapped_by_program_bytes"]:
        screen.line(
            f"  the program itself had mapped {bytes_text(resident['mapped_by_program_bytes'])}; what of it "
            "was resident counts as the allocator's",
        )
    rows = [
        {**row, "bytes": row["free_bytes"], "count": row["held"]["count"]} for row in resident["pinned_by"]
    ]
    _print_stacks(screen, "free space on pages, by the stacks whose objects pin it", rows, 0)
    _print_names(
        screen,
        "resident libraries and files",
        [{**row, "count": 1} for row in resident["files"]],
        resident["resident_bytes"],
    )


def _print_table(
    screen: Screen, title: str, heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...], note: str = ""
) -> None:
    """Of numbers, with a column of words at the end."""
    screen.line()
    screen.table(Table(title, heads, rows, note=note, words=(len(heads) - 1,)))
