# SPDX-License-Identifier: Apache-2.0
"""Tables of a bench: analyses in, rows of text out; what prints them decides how they look."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from memoir.base.files import Record
from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.bench import scaling as scale
from memoir.bench import statistics, verdicts
from memoir.bench.changes import Change
from memoir.bench.grid import Group
from memoir.bench.results import Result
from memoir.bench.values import unit_of
from memoir.bench.verdicts import Analysis, Line
from memoir.views.text_table import Table

_TITLES = {"wall": "Time", "cpu": "CPU time", "peak_rss": "Peak memory", "minor_faults": "Minor faults"}


def cells(a: Analysis) -> Table:
    """One quantity of every allocator in every group, against the baseline."""
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    far = 0
    for group, lines in a.groups.items():
        breaks.append(len(rows))
        for index, line in enumerate(lines):
            far += len(line.outliers)
            row: tuple[str, ...] = (
                label(group) if index == 0 else "",
                printable(line.cell.allocator),
                f"{line.n} of {line.n + line.failed}" if line.failed else f"{line.n}",
                quantity(line.mean, a.unit),
                _ratio(line),
                line.verdict,
                str(len(line.outliers)) if line.outliers else "",
            )
            rows.append(row)
    columns: tuple[str, ...] = ("program", "allocator", "n", "mean")
    columns += (f"/ {printable(a.baseline)} [{percent(a.confidence)}]", "is", "far")
    notes = []
    if far:
        notes.append("far: runs far from the others; they count")
    if any(line.verdict == verdicts.UNCLEAR for line in a.lines()):
        notes.append(
            f"{verdicts.UNCLEAR}: the interval excludes 1, but not once corrected for the {a.claims} claims of this report"
        )
    if not far:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(title(a.quantity), columns, tuple(rows), tuple(breaks), "; ".join(notes))


def overall(analyses: dict[str, Analysis]) -> Table:
    """One row per quantity and allocator: the geometric mean of its ratios over all groups, and the verdict."""
    rows: list[tuple[str, ...]] = []
    breaks = []
    baseline = next(iter(analyses.values())).baseline
    for a in analyses.values():
        if not a.overall:
            continue
        breaks.append(len(rows))
        for index, (name, one) in enumerate(a.overall.items()):
            verdict = (
                f"same within {percent(a.margin)}"
                if one.same and one.verdict == verdicts.NO_DIFFERENCE
                else one.verdict
            )
            if a.best == name:
                verdict += ", best"
            row = (printable(name), f"{one.groups} of {len(a.groups)}", interval(one.interval), verdict)
            rows.append((title(a.quantity) if index == 0 else "", *row))
    claims = next(iter(analyses.values())).claims
    note = (
        "geometric mean of ratios [low, high] over the groups that both finished; verdicts are corrected for the "
        f"{claims} claims of this report"
    )
    won = [title(a.quantity) for a in analyses.values() if a.best == baseline]
    if won:
        note += f"; {printable(baseline)} is best in: {', '.join(won)}"
    columns = ("quantity", "allocator", "groups", f"/ {printable(baseline)}", "is")
    return Table(f"Overall, against {printable(baseline)}", columns, tuple(rows), tuple(breaks), note)


def winners(analyses: dict[str, Analysis]) -> Table:
    """Who beats everyone else in each group; nobody when two cannot be told apart."""
    groups = next(iter(analyses.values())).groups
    rows = []
    for group in groups:
        found = [(title(a.quantity), a.winners.get(group)) for a in analyses.values()]
        named = ", ".join(f"{name}: {printable(winner)}" for name, winner in found if winner)
        rows.append((label(group), named or "-"))
    return Table(
        "Best beyond doubt", ("program", "best"), tuple(rows), note="- : no allocator differs from all others"
    )


def growth(wall: Analysis) -> Table | None:
    """Who scales better than the baseline, per doubling of threads and of load."""
    if not wall.growths:
        return None
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    last = ""
    for one in wall.growths:
        program, parameters = one.series
        name = f"{label((program, None, 1, parameters))}, per doubling of {one.axis}"
        if name != last:
            breaks.append(len(rows))
        verdict = verdicts.verdict_of(one.comparison, one.corrected_p, "scales better", "scales worse")
        rows.append(
            (
                name if name != last else "",
                printable(one.allocator),
                interval(one.comparison.interval),
                verdict,
            )
        )
        last = name
    columns = ("program", "allocator", f"growth / {printable(wall.baseline)}'s", "it")
    note = (
        "growth: the factor of time for twice the threads or load, by a line through each block's logarithms"
    )
    return Table("Who scales better", columns, tuple(rows), tuple(breaks), note)


def scaling(result: Result) -> Table | None:
    """Serial-normalised time and throughput; None when only one thread count was run."""
    cells = result.cells()
    if len({cell.threads for cell in cells}) < 2:
        return None
    normalised, throughputs = scale.serial_normalised(result), scale.throughputs(result)
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    last = ""
    for cell in sorted(cells, key=lambda c: (c.program, c.parameters, c.load, c.allocator, c.threads)):
        if cell not in throughputs:
            continue
        aggregate, marginal = throughputs[cell]
        serial = "-"
        if cell in normalised:
            serial = "1" if cell.threads == 1 else interval(statistics.Interval(*normalised[cell][1]))
        name = label((cell.program, None, cell.load, cell.parameters))
        if name != last:
            breaks.append(len(rows))
        row = (
            printable(cell.allocator),
            str(cell.threads),
            serial,
            f"{aggregate[0]:.4g}",
            f"{marginal[0]:.4g}",
        )
        rows.append((name if name != last else "", *row))
        last = name
    columns = ("program", "allocator", "threads", "serial-normalised", "aggregate /s", "marginal /s")
    note = (
        "serial-normalised: time / mean time of one thread; aggregate = work / time, marginal = load / time"
    )
    return Table("Scaling", columns, tuple(rows), tuple(breaks), note)


def failures(result: Result) -> Table | None:
    """Runs that do not count, with how they ended and their last line."""
    if not result.failures:
        return None
    groups: dict[Group, dict[tuple[str, str], list[Record]]] = {}
    for row in result.failures:
        key = (row["program"], row["threads"], row["load"], tuple(row["parameters"].items()))
        groups.setdefault(key, {}).setdefault((row["allocator"], row["status"]), []).append(row)
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    for key, ways in groups.items():
        breaks.append(len(rows))
        for index, ((name, status), found) in enumerate(ways.items()):
            last = printable((found[-1].get("tail") or [""])[-1])[:200]
            where = label(key) if index == 0 else ""
            rows.append((where, printable(name), printable(status), str(len(found)), last))
    columns = ("program", "allocator", "how", "runs", "last words")
    return Table("Failures", columns, tuple(rows), tuple(breaks))


def proofs(result: Result) -> Table | None:
    """What each allocator was proved to serve, in a run that was not measured."""
    kept = result.header.get("proofs", [])
    if not kept:
        return None
    rows: list[tuple[str, ...]] = []
    breaks: list[int] = []
    last = None
    for one in kept:
        if one["program"] != last:
            breaks.append(len(rows))
        share = one.get("share")
        row = (
            printable(one["allocator"]),
            f"{one['requests']:,}",
            "-" if share is None else f"{100 * share:.0f} %",
            bytes_text(one.get("anonymous", 0)),
            printable(one["provider"]),
        )
        rows.append((printable(one["program"]) if one["program"] != last else "", *row))
        last = one["program"]
    columns = ("program", "allocator", "requests", "served", "of", "by")
    note = "in one run that was not measured: requests, and the share of the program's anonymous bytes that was served"
    return Table("Proof", columns, tuple(rows), tuple(breaks), note)


def difference(name: str, changes: Sequence[Change], confidence: float, relative: str | None = None) -> Table:
    """What changed between two benches in one quantity."""
    unit = "" if relative else unit_of(name)
    rows = tuple(
        (
            label(change.cell.group),
            printable(change.cell.allocator),
            quantity(change.before, unit),
            quantity(change.after, unit),
            interval(change.comparison.interval),
            change.verdict,
        )
        for change in changes
    )
    columns = ("program", "allocator", "before", "after", f"after / before [{percent(confidence)}]", "now")
    breaks = tuple(i for i in range(len(rows)) if i == 0 or rows[i][0] != rows[i - 1][0])
    shown = tuple((row[0] if i in breaks else "", *row[1:]) for i, row in enumerate(rows))
    return Table(title(name) + (f" / {relative}" if relative else ""), columns, shown, breaks)


def markdown(table: Table) -> str:
    """The table for a page of text, right-aligned but for its first two columns."""
    note = f"\n{markdown_text(table.note)}\n" if table.note else ""
    rows = [
        [_code(text, _MARKUP if column < 2 else _HTML) for column, text in enumerate(row)]
        for row in table.rows
    ]
    heads = [_code(text, _HEADS) for text in table.columns]
    return f"### {_code(table.title)}\n\n" + markdown_grid(heads, rows, left=2) + "\n" + note


_MARKUP = re.compile(r"[\\`*_<>\[\]&!#~]")


_HEADS = re.compile(r"[\\`*_<>&!#~]|\](?!$)")  # which end with an interval's "[95 %]"
_HTML = re.compile(r"[`<]|\]\(")  # of figures, which have brackets


def _code(text: str, markup: re.Pattern[str] = _MARKUP) -> str:
    """A name as it is: one that Markdown would take for markup becomes a code span."""
    if not markup.search(text):
        return text
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def markdown_text(text: str) -> str:
    """A line in which names may stand, without markup and control characters."""
    return _MARKUP.sub(lambda found: "\\" + found[0], printable(text))


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
    return printable(", ".join(parts + [f"{name}={value}" for name, value in parameters]))


def title(quantity: str) -> str:
    """A quantity's name in a table."""
    return _TITLES.get(quantity, printable(quantity))


def percent(part: float) -> str:
    return f"{100 * part:.4g} %"


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
