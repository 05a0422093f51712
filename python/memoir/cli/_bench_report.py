# SPDX-License-Identifier: Apache-2.0
"""What `memoir bench` shows: progress while it runs, tables and files when it is done."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
import rich.box
from rich.console import Console
from rich.table import Table as RichTable

from memoir._core import Error
from memoir.bench import analysis
from memoir.bench.experiment import Experiment
from memoir.bench.journal import Record
from memoir.bench.results import Result, write_whole
from memoir.views import bench_tables

_COLOURS = {"faster": "green", "less": "green", "fewer": "green", "slower": "red", "more": "red"}


def say(line: str) -> None:
    """A note: to stderr, so that standard output is data."""
    click.echo(line, err=True)


class Progress:
    """A bar with estimate and time left on a terminal; a line per replicate elsewhere."""

    def __init__(self, experiment: Experiment, header: Record, done: int, judge: Record) -> None:
        cells, options = len(experiment.grid.cells()), experiment.options
        self._cells, self._replicates = cells, options.replicates
        self._total = cells * (options.warmup + options.replicates) - done
        self._header, self._judge = header, judge
        self._rows: list[Record] = []
        self._done, self._began = 0, time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, TextColumn("{task.fields[estimate]}"), console=Console(stderr=True))

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("warming up", total=self._total, estimate="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def on_run(self, phase: str, row: Record) -> None:
        self._done += 1
        if phase == "replicate":
            self._rows.append(row)
        ended = phase == "replicate" and len(self._rows) % self._cells == 0
        if self._bar:
            number = row["replicate"] + 1 if phase == "replicate" else 0
            text = f"replicate {number}/{self._replicates}" if number else "warming up"
            self._bar.update(self._task, advance=1, description=text, total=max(self._total, self._done))
            if ended:
                self._bar.update(self._task, estimate=self._estimate())
        elif ended:
            left = (time.monotonic() - self._began) / self._done * max(self._total - self._done, 0)
            number = f"{row['replicate'] + 1}/{self._replicates}"
            say(f"replicate {number} done, about {_time(left)} left  {self._estimate()}")

    def _estimate(self) -> str:
        found = analysis.analyse(Result(self._header, self._rows), **self._judge).overall
        parts = []
        for name, comparison in found.items():
            half = comparison.interval.half_width
            parts.append(f"{name} {comparison.interval.ratio:.2f}" + (f"±{half:.0%}" if half < 10 else ""))
        return "  ".join(parts)


def present(result: Result, judge: Record, folder: Path | None, pictures: bool, as_json: bool) -> None:
    """Prints the tables (or JSON), and writes everything into the folder."""
    analyses = {name: analysis.analyse(result, name, **judge) for name in analysis.quantities(result)}
    if "wall" not in analyses:  # nothing succeeded
        analyses["wall"] = analysis.analyse(result, "wall", **judge)
    warnings = [warning for a in analyses.values() for warning in a.warnings]
    remarks = list(dict.fromkeys([*result.notes, *warnings]))
    tables = all_tables(result, analyses)
    written: list[str] = []
    if folder is not None:
        result.save(folder)
        write_whole(folder / "tables.md", "\n".join(map(bench_tables.markdown, tables)))
        written = ["results.json", "results.csv", "tables.md"]
        if pictures:
            written += _pictures(result, analyses, tables, remarks, folder)
    if as_json:
        content = result.to_json()
        content["memoir"]["analysis"] = {name: to_dict(a) for name, a in analyses.items()}
        click.echo(json.dumps(content, indent=1))
    else:
        for table in tables:
            show(table)
    for remark in remarks:
        say(f"note: {remark}")
    if folder is not None:
        say(f"wrote {folder}: {', '.join(written)}")
        page = folder / "report.html"
        say(f"next: memoir diff {folder} ANOTHER" + (f", or open {page}" if page.exists() else ""))


def all_tables(result: Result, analyses: dict[str, analysis.Analysis]) -> list[bench_tables.Table]:
    """Every table that there is data for, the summary last, where a terminal shows it."""
    shown = {name: a for name, a in analyses.items() if name in ("wall", "cpu", "peak_rss", "minor_faults")}
    shown |= {name: a for name, a in analyses.items() if name not in shown}
    in_full = [a for name, a in shown.items() if name not in ("cpu", "minor_faults")]
    tables = [*map(bench_tables.cells, in_full), bench_tables.scaling(result), bench_tables.failures(result)]
    if len(result.allocators) > 1:
        tables += [bench_tables.winners(shown), bench_tables.overall(shown)]
    return [table for table in tables if table is not None]


def to_dict(a: analysis.Analysis) -> Record:
    """An analysis as plain data for JSON; what is not finite becomes null."""
    lines = []
    for line in a.lines():
        found = {"program": line.cell.program, "allocator": line.cell.allocator, "threads": line.cell.threads}
        found |= {"load": line.cell.load, "parameters": dict(line.cell.parameters), "n": line.n}
        found |= {"failed": line.failed, "mean": _number(line.mean), "low": _number(line.low)}
        found |= {"high": _number(line.high), "median": _number(line.median), "outliers": list(line.outliers)}
        if line.comparison:
            ratio = dict(
                zip(("ratio", "ratio_low", "ratio_high"), map(_number, line.comparison.interval), strict=True)
            )
            found |= ratio | {"p_value": line.comparison.p_value, "corrected_p": line.corrected_p}
        lines.append(found | {"verdict": line.verdict})
    overall = {name: [_number(x) for x in comparison.interval] for name, comparison in a.overall.items()}
    return {
        "baseline": a.baseline,
        "method": a.method,
        "confidence": a.confidence,
        "unit": a.unit,
        "cells": lines,
        "overall": overall,
    }


def _pictures(
    result: Result,
    analyses: dict[str, analysis.Analysis],
    tables: list[bench_tables.Table],
    remarks: list[str],
    folder: Path,
) -> list[str]:
    from memoir.views import bench_figures, bench_html

    try:
        figures = bench_figures.all_figures(result, analyses["wall"], analyses.get("peak_rss"))
        vector = {name: bench_figures.to_bytes(figure, "svg") for name, figure in figures.items()}
    except Error as error:  # no matplotlib: numbers are still worth having
        say(f"note: {error}")
        return []
    for name, figure in figures.items():
        write_whole(folder / f"{name}.svg", vector[name])
        write_whole(folder / f"{name}.png", bench_figures.to_bytes(figure, "png"))
    write_whole(folder / "report.html", bench_html.page(result, tables, vector, remarks))
    return ["report.html", f"{len(figures)} pictures"]


def show(table: bench_tables.Table) -> None:
    """Prints a table to standard output; where that is no terminal, one row per line whatever its width."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)
    shown = RichTable(title=table.title, box=rich.box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for index, column in enumerate(table.columns):
        shown.add_column(column, no_wrap=True, justify="left" if index < 2 else "right")
    for index, row in enumerate(table.rows):
        if index in table.breaks and index > 0:
            shown.add_section()
        shown.add_row(*(f"[{_COLOURS[text]}]{text}[/]" if text in _COLOURS else _plain(text) for text in row))
    console.print(shown)
    if table.note:
        console.print(f"  {table.note}", style="dim", markup=False, highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _number(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
