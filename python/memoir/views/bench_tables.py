# SPDX-License-Identifier: Apache-2.0
"""Tables of a bench: analyses in, rows of text out; what prints them decides how they look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.bench import analysis, statistics
from memoir.bench.analysis import Analysis, Line
from memoir.bench.grid import Group
from memoir.bench.journal import Record
from memoir.bench.results import Result

_TITLES = {"wall": "Time", "cpu": "CPU time", "peak_rss": "Peak memory", "minor_faults": "Minor faults"}


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows; `breaks` are the rows before which a new group begins."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    breaks: tuple[int, ...] = ()
    note: str = ""


def cells(a: Analysis) -> Table:
    """One quantity of every allocator in every group, against the baseline."""
    name = _TITLES.get(a.quantity, a.quantity)
    percent = f"{a.confidence:.0%}".replace("%", " %")
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    for group, lines in a.groups.items():
        breaks.append(len(rows))
        for index, line in enumerate(lines):
            failed = f" ({line.failed} failed)" if line.failed else ""
            row = (
                label(group) if index == 0 else "",
                line.cell.allocator,
                f"{line.n}{failed}",
                quantity(line.mean, a.unit),
                _ratio(line),
                line.verdict,
                str(len(line.outliers)) if line.outliers else "",
            )
            rows.append(row)
    columns = ("program", "allocator", "n", "mean", f"/ {a.baseline} [{percent}]", "is", "far out")
    note = ""
    if any(line.verdict == analysis.UNCLEAR for line in a.lines()):
        count = sum(line.comparison is not None for line in a.lines())
        note = f"{analysis.UNCLEAR}: the interval excludes 1, but not once corrected for {count} comparisons"
    return Table(name, columns, tuple(rows), tuple(breaks), note)


def overall(analyses: dict[str, Analysis]) -> Table:
    """One row per allocator: the geometric mean of its ratios over all groups, for every quantity."""
    wall = analyses["wall"]
    names = list(dict.fromkeys(name for a in analyses.values() for name in a.overall))
    rows = []
    for name in names:
        row = [name, f"{wall.overall_groups.get(name, 0)} of {len(wall.groups)}"]
        for a in analyses.values():
            comparison = a.overall.get(name)
            row.append(interval(comparison.interval) if comparison else "-")
        rows.append(tuple(row))
    note = "geometric mean of ratios [low, high] over the groups that an allocator finished"
    return Table(
        f"Overall, against {wall.baseline}", ("allocator", "groups", *analyses), tuple(rows), note=note
    )


def winners(analyses: dict[str, Analysis]) -> Table:
    """Who beats everyone else in each group; nobody when two cannot be told apart."""
    columns = ("program", *(a.quantity for a in analyses.values()))
    groups = next(iter(analyses.values())).groups
    rows = tuple(
        (label(group), *(a.winners.get(group) or "-" for a in analyses.values())) for group in groups
    )
    return Table("Best beyond its interval", columns, rows, note="- : no allocator differs from all others")


def scaling(result: Result) -> Table | None:
    """Serial-normalised time and throughput; None when only one thread count was run."""
    cells = result.cells()
    if len({cell.threads for cell in cells}) < 2:
        return None
    normalised, throughputs = analysis.serial_normalised(result), analysis.throughputs(result)
    rows = []
    for cell in sorted(cells, key=lambda c: (c.program, c.parameters, c.load, c.allocator, c.threads)):
        if cell not in throughputs:
            continue
        aggregate, marginal = throughputs[cell]
        serial = "-"
        if cell in normalised:
            serial = "1" if cell.threads == 1 else interval(statistics.Interval(*normalised[cell][1]))
        rows.append(
            (
                label((cell.program, None, cell.load, cell.parameters)),
                cell.allocator,
                str(cell.threads),
                serial,
                f"{aggregate[0]:.4g}",
                f"{marginal[0]:.4g}",
            )
        )
    columns = ("program", "allocator", "threads", "serial-normalised time", "aggregate /s", "marginal /s")
    note = "time / mean time of one thread; aggregate = work / time, marginal = load / time"
    return Table("Scaling", columns, tuple(rows), note=note)


def failures(result: Result) -> Table | None:
    """Runs that do not count, with how they ended and their last line."""
    if not result.failures:
        return None
    seen: dict[tuple[Group, str, str], list[Record]] = {}
    for row in result.failures:
        key = (row["program"], row["threads"], row["load"], tuple(row["parameters"].items()))
        seen.setdefault((key, row["allocator"], row["status"]), []).append(row)
    rows = tuple(
        (label(key), name, status, str(len(found)), printable((found[-1].get("tail") or [""])[-1])[:120])
        for (key, name, status), found in seen.items()
    )
    return Table("Failures", ("program", "allocator", "how", "runs", "last words"), rows)


def difference(
    name: str, changes: Sequence[analysis.Change], confidence: float, relative: str | None = None
) -> Table:
    """What changed between two benches in one quantity."""
    unit = "" if relative else analysis.QUANTITIES.get(name, ("",))[0]
    percent = f"{confidence:.0%}".replace("%", " %")
    rows = tuple(
        (
            label(change.cell.group),
            change.cell.allocator,
            quantity(change.before, unit),
            quantity(change.after, unit),
            interval(change.comparison.interval),
            change.verdict,
        )
        for change in changes
    )
    columns = ("program", "allocator", "before", "after", f"after / before [{percent}]", "now")
    return Table(name + (f" / {relative}" if relative else ""), columns, rows)


def markdown(table: Table) -> str:
    """The table for a page of text, right-aligned but for its first two columns."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n" + markdown_grid(table.columns, table.rows, left=2) + "\n" + note


def markdown_grid(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int | None = None) -> str:
    """Rows as Markdown, in step; columns after the first `left` ones are right-aligned (None: no column is)."""
    escaped = [[text.replace("|", "\\|") for text in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in escaped
    ]
    rights = [left is not None and index >= left for index in range(len(widths))]
    rules = ["-" * (width - right) + ":" * right for width, right in zip(widths, rights, strict=True)]
    lines.insert(1, "| " + " | ".join(rules) + " |")
    return "\n".join(lines)


def label(group: tuple[str, int | None, int, tuple[tuple[str, str], ...]]) -> str:
    """A group in words: program, threads, load, further axes; threads None and load 1 are not mentioned."""
    program, threads, load, parameters = group
    parts = [program]
    if threads is not None:
        parts.append(f"{threads} thread" + "s" * (threads != 1))
    if load != 1:
        parts.append(f"load {load}")
    return ", ".join(parts + [f"{name}={value}" for name, value in parameters])


def interval(value: statistics.Interval) -> str:
    """1.234 [1.200, 1.270]; an unknown end is written as such."""
    if not math.isfinite(value.high):
        return f"{value.ratio:.3f} [?]"
    low = f"{value.low:.3f}" if value.low >= 0.001 else "<0.001"
    high = f"{value.high:.3f}" if value.high < 1000 else ">1000"
    return f"{value.ratio:.3f} [{low}, {high}]"


def quantity(value: float, unit: str) -> str:
    """A measured value with its unit: s, B, or none."""
    if math.isnan(value):
        return "-"
    if unit == "s":
        return duration_text(value * 1e9)
    return bytes_text(value) if unit == "B" else f"{value:.4g}"


def _ratio(line: Line) -> str:
    return (
        "1"
        if line.comparison is None and line.n
        else interval(line.comparison.interval)
        if line.comparison
        else "-"
    )
