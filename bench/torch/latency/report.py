# SPDX-License-Identifier: Apache-2.0
"""The report: goals, misses, and tables cell by cell, in Markdown, with the pictures next to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memoir.bench.process.machine import line as machine_line
from memoir.bench.results import write_whole
from memoir.views.bench_tables import markdown_grid

from latency.goals import Goal, goals, slab_ratio, tails
from latency.summary import CellSummary, Summary, VariantSummary
from latency.variants import CANDIDATE, REFERENCE, VARIANTS

MIB = 1 << 20
CellTable = Callable[[Summary, list[CellSummary]], str]  # a table with a row for each cell
_BRIEF_CELLS = 12  # a terminal shows the cells one by one up to here
_PICTURES = {  # what figures.py draws, for readers who do not see it
    "figure_4_1": "Latency over the reference's, by network, input and threads, with 95 % intervals; lower is better",
    "memory_by_size": "Peak memory of each allocator over the smallest of the others', by input; lower is better",
    "callers": "Median latency of each allocator over the candidate's, by concurrent callers; lower is better",
    "both_ends": "Latency over the fastest against memory over the smallest, by allocator; the lower left is best",
}


def write_report(summary: Summary, header: dict[str, Any], folder: Path) -> list[Path]:
    """Writes report.md, summary.json and the pictures into `folder`; each file is replaced as a whole."""
    from latency.figures import figures

    folder.mkdir(parents=True, exist_ok=True)
    pictures = figures(summary, folder)
    texts = {"report.md": full(summary, header, pictures), "summary.json": summary.to_json() + "\n"}
    written = []
    for name, text in texts.items():
        write_whole(folder / name, text)
        written.append(folder / name)
    return written + pictures


def brief(summary: Summary) -> str:
    """What the terminal shows: the geometric means, the goals, and the cells when they are few."""
    parts = [_means_table(summary), _goals_table([goal for goal in goals(summary) if goal.met is not None])]
    if len(summary.cells) <= _BRIEF_CELLS:
        parts += [_latency_table(summary, summary.cells), _memory_table(summary, summary.cells)]
    return "\n\n".join(part for part in parts if part)


def full(summary: Summary, header: dict[str, Any], pictures: Iterable[Path]) -> str:
    """The whole report as Markdown."""
    parts = ["# PyTorch under allocators: results", _conditions(summary, header), _variants_table(header)]
    return "\n\n".join([*parts, findings(summary, pictures)]) + "\n"


def findings(summary: Summary, pictures: Iterable[Path]) -> str:
    """The report without its head: all that follows from the summary alone."""
    verdicts = goals(summary)
    parts = ["## Over all cells", _means_table(summary), _goals_table(verdicts), _misses(verdicts)]
    parts += [f"![{_PICTURES[path.stem]}]({path.name})" for path in pictures]
    for title, note, table in _SECTIONS:
        parts += [f"## {title}", note]
        for net in dict.fromkeys(cell.key.net for cell in summary.cells):
            parts += [f"### {net}", table(summary, [cell for cell in summary.cells if cell.key.net == net])]
    return "\n\n".join(part for part in parts if part)


# --- the head ---


def _conditions(summary: Summary, header: dict[str, Any]) -> str:
    design, versions = header["options"], header["libraries"]
    replicates = [one.n for cell in summary.cells for one in cell.comparisons.values()]
    fewest = f", at least {min(replicates)} were made on every cell" if replicates else ""
    lines = [
        f"{header['date']}; {machine_line(header['machine'])}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
        f"{len(summary.cells)} cells; up to {design['replicates']} replicates per cell and allocator"
        f"{fewest}; {design['warmup']} warm-up passes, {design['settle']} untimed in every turn, "
        f"seed {design['seed']}, fresh processes {design['rounds']} x per cell. Made by:",
        "```\n" + "\n".join(header["commands"]) + "\n```",
    ]
    lines += [f"Skipped: {name}: {reason}." for name, reason in header["skipped"].items()]
    return "\n\n".join(lines)


def _variants_table(header: dict[str, Any]) -> str:
    rows = [[name, one["says"], one["version"]] for name, one in header["variants"].items()]
    return _table(["allocator", "what it is", "version"], rows)


def _means_table(summary: Summary) -> str:
    tail = tails(summary.cells)
    over = f" (geometric mean, 95 % over {len(summary.cells)} cells)" if len(summary.cells) > 1 else " (95 %)"
    rows = [[name, _interval(mean), f"{tail[name]:.2f}"] for name, mean in summary.means.items()]
    rows.append([summary.candidate, "", f"{tail[summary.candidate]:.2f}"])
    return _table(["allocator", f"{summary.candidate}'s latency / its{over}", "its p99.9 / median"], rows)


def _goals_table(verdicts: list[Goal]) -> str:
    words = {True: "met", False: "missed", None: "unknown"}
    return _table(["goal", "measured", ""], [[one.text, one.measured, words[one.met]] for one in verdicts])


def _misses(verdicts: list[Goal]) -> str:
    missed = [one for one in verdicts if one.misses]
    if not missed:
        return ""
    lists = [f"**Not: {one.text}**\n\n" + "\n".join(f"* {line}" for line in one.misses) for one in missed]
    return "\n\n".join(["### Misses, cell by cell", *lists])


# --- the tables, one row per cell ---


def _names(summary: Summary, cells: list[CellSummary]) -> list[str]:
    """The variants in the order of variants.py, the candidate last."""
    present = {name for cell in cells for name in cell.variants}
    return [name for name in VARIANTS if name in present and name != summary.candidate] + [summary.candidate]


def _cell_names(cells: list[CellSummary]) -> list[str]:
    """What tells the cells apart: the network only when there are several."""
    one_net = len({cell.key.net for cell in cells}) == 1
    return [cell.key.label.removeprefix(cell.key.net + " ") if one_net else cell.key.label for cell in cells]


def _latency_table(summary: Summary, cells: list[CellSummary]) -> str:
    names = _names(summary, cells)
    measured = any(REFERENCE in cell.comparisons for cell in cells)
    versus = f"{summary.candidate} / {REFERENCE}" if measured else ""
    rows = []
    for cell, label in zip(cells, _cell_names(cells), strict=True):
        best = cell.best_other
        ratios = [_interval(cell.ratio(REFERENCE))] if versus else []
        ratios += [f"{_interval(cell.ratio(best))} {best}" if best else "-"]
        rows.append([label, *_each(cell, names, lambda one: f"{one.median_ms:.2f}"), *ratios])
    head = ["median ms", *names, *([versus] if versus else []), f"{summary.candidate} / best other"]
    return _table(head, rows)


def _plain_table(head: str, show: Callable[[VariantSummary], str]) -> CellTable:
    """A table of one number, or two, of every variant."""

    def table(summary: Summary, cells: list[CellSummary]) -> str:
        names = _names(summary, cells)
        labelled = zip(cells, _cell_names(cells), strict=True)
        return _table([head, *names], [[label, *_each(cell, names, show)] for cell, label in labelled])

    return table


def _tail_table(summary: Summary, cells: list[CellSummary]) -> str:
    names = _names(summary, cells)
    rows = []
    for cell, label in zip(cells, _cell_names(cells), strict=True):
        passes = max(one.passes for one in cell.variants.values())
        rows.append([label, str(passes), *_each(cell, names, lambda one: f"{one.tail:.2f}")])
    return _table(["p99.9 / median", "passes", *names], rows)


_faults_table = _plain_table("minor faults per pass", lambda one: f"{one.minor:,.0f}")
_cpu_table = _plain_table("user + system ms per pass", lambda one: f"{one.user_ms:.1f} + {one.system_ms:.1f}")


def _memory_table(summary: Summary, cells: list[CellSummary]) -> str:
    names = _names(summary, cells)
    slabs = summary.candidate == CANDIDATE
    rows = []
    for cell, label in zip(cells, _cell_names(cells), strict=True):
        row = [label, *_each(cell, names, _peak)]
        if slabs:
            ratio = slab_ratio(cell)
            stats = (cell.variants[CANDIDATE].memoir or {}) if CANDIDATE in cell.variants else {}
            row.append(f"{stats['slab_bytes'] / MIB:.1f} = {ratio:.3f} x" if ratio else "-")
        rows.append(row)
    return _table(["peak MiB (intermediates)", *names, *(["slab MiB, of peak live"] if slabs else [])], rows)


def _peak(one: VariantSummary) -> str:
    if one.peak_anonymous is None:
        return "-"
    return f"{one.peak_anonymous / MIB:.1f} ({one.intermediates / MIB:.1f})"


_SECTIONS: tuple[tuple[str, str, CellTable], ...] = (
    (
        "Latency",
        "Median over the replicates, each the median pass of one turn. Ratios with their 95 % interval; "
        "*best other* is the fastest allocator of that cell.",
        _latency_table,
    ),
    (
        "Tail",
        "99.9th percentile over the median of all timed passes; under 1,000 passes that is the slowest one.",
        _tail_table,
    ),
    ("Page faults", "Minor faults per pass in steady state.", _faults_table),
    ("CPU time", "Of the whole process, all its threads, per pass.", _cpu_table),
    (
        "Memory",
        "Peak anonymous memory of the process from the first pass to the last, the recording pass included; "
        "in brackets less what was there before the first pass. Weights are mapped from a file and are in "
        "neither.",
        _memory_table,
    ),
)


# --- Markdown ---


def _each(cell: CellSummary, names: list[str], show: Callable[[VariantSummary], str]) -> list[str]:
    return [
        show(cell.variants[name]) if name in cell.variants else ("failed" if name in cell.failures else "-")
        for name in names
    ]


def _interval(interval: Any) -> str:
    if interval is None:
        return "-"
    if math.isinf(interval.high):  # one replicate, or one cell, has no spread
        return f"{interval.ratio:.3f}"
    return f"{interval.ratio:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return markdown_grid(head, rows) if rows else ""
