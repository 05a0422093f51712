# SPDX-License-Identifier: Apache-2.0
"""What `memoir bench` shows: progress while it runs, tables and files when it is done."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from memoir._core import Error
from memoir.base.files import Record
from memoir.base.quantities import printable, quoted
from memoir.bench import analysis, answer, disturbance, verdicts
from memoir.bench.experiment import Experiment
from memoir.bench.journal import strict
from memoir.bench.process import proof
from memoir.bench.results import Result, write_whole
from memoir.bench.values import QUANTITIES
from memoir.views import bench_tables
from memoir.views.screen import Screen
from memoir.views.text_table import Table

_STYLES = {"faster": "good", "less": "good", "fewer": "good", "slower": "bad", "more": "bad"}


def say(line: str) -> None:
    """A note: to stderr, so that standard output is data."""
    click.echo(line, err=True)


class Progress:
    """A bar with estimate and time left on a terminal; a line per replicate elsewhere."""

    def __init__(self, experiment: Experiment, result: Result, judge: Record) -> None:
        options = experiment.options
        self._cells, self._until = len(experiment.grid.cells()), options.until
        self._sessions, self._warmup, self._replicates = options.sessions, options.warmup, options.replicates
        self._budget = options.budget
        self._before = len(result.rows)
        self._result, self._judge = result, judge
        self._done, self._new, self._began = 0, 0, time.monotonic()
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
        self._began = time.monotonic()
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("warming up", total=self.total(), estimate="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def total(self) -> int:
        """Runs of this process, as far as one knows."""
        return self._cells * self._sessions * (self._warmup + self._replicates) - self._before

    def on_run(self, phase: str, row: Record) -> None:
        self._done += 1
        self._new += phase == "replicate"
        ended = phase == "replicate" and (self._before + self._new) % self._cells == 0
        if ended and self._until is not None:
            self._replicates = self._needed(row["replicate"] + 1)
        if self._bar:
            number = row["replicate"] + 1 if phase == "replicate" else 0
            text = f"replicate {number}/{self._goal()}" if number else "warming up"
            self._bar.update(self._task, advance=1, description=text, total=max(self.total(), self._done))
            if ended:
                self._bar.update(self._task, estimate=self._estimate())
        elif ended:
            left = (time.monotonic() - self._began) / self._done * max(self.total() - self._done, 0)
            number = f"{row['replicate'] + 1}/{self._goal()}"
            if self._sessions > 1:
                number = f"{number} of session {row.get('session', 0) + 1}/{self._sessions}"
            say(f"replicate {number} done, about {_time(left)} left  {self._estimate()}")

    def _goal(self) -> str:
        return f"about {self._replicates}" if self._until is not None else str(self._replicates)

    def _needed(self, have: int) -> int:
        """How many replicates --until will take, within what the budget allows."""
        assert self._until is not None
        spent = time.monotonic() - self._began
        each = spent / max(self._done / self._cells, 1)
        affordable = have + max(0, int((self._budget - spent) / each)) if each else have
        needed = analysis.replicates_needed(self._result, self._until, **self._judge)
        return max(have, min(needed, affordable))

    def _estimate(self) -> str:
        found = analysis.analyse(self._result, "wall", **self._judge).overall
        parts = []
        for name, one in found.items():
            half = one.interval.half_width
            parts.append(
                f"{printable(name)} {one.interval.ratio:.2f}" + (f"±{half:.0%}" if half < 10 else "")
            )
        return "  ".join(parts)


def present(result: Result, judge: Record, folder: Path | None, pictures: bool, as_json: bool) -> None:
    """Prints the answer and the tables (or JSON), and writes everything into the folder."""
    analyses = analysis.analyse_all(result, **judge)
    if "wall" not in analyses:  # nothing succeeded
        analyses["wall"] = analysis.analyse(result, "wall", **judge)
    answers = answer.sentences(result, analyses)
    warnings = list(analyses["wall"].warnings)  # other quantities may lack runs that were too short for them
    proofs = result.header.get("proofs", [])
    warnings += [line for one in proofs for line in proof.warnings(one["allocator"], one)]
    remarks = [
        printable(line) for line in dict.fromkeys([*result.notes, *warnings, *disturbance.warnings(result)])
    ]
    tables = all_tables(result, analyses)
    written: list[str] = []
    if folder is not None:
        result.save(folder)
        text = "".join(f"{bench_tables.markdown_text(line)}\n\n" for line in answers) + "\n".join(
            map(bench_tables.markdown, tables)
        )
        write_whole(folder / "tables.md", text)
        written = ["results.json", "results.csv", "tables.md"]
        if pictures:
            written += _pictures(result, analyses, tables, answers, remarks, folder)
    if as_json:
        content = result.to_json()
        content["memoir"]["answer"] = answers
        content["memoir"]["asserts"] = verdicts.differences(analyses)
        content["memoir"]["analysis"] = {name: to_dict(a) for name, a in analyses.items()}
        click.echo(json.dumps(strict(content), indent=1, allow_nan=False))
    else:
        screen = Screen.of_output()
        for line in answers:
            screen.sentence(printable(line))
        for table in tables:
            show(table)
    for remark in remarks:
        say(f"note: {remark}")
    if folder is not None:
        name = quoted(folder)
        say(f"wrote {name}: {', '.join(written)}")
        page = folder / "report.html"
        say(f"next: memoir diff {name} ANOTHER" + (f", or open {name}/report.html" if page.exists() else ""))


def all_tables(result: Result, analyses: dict[str, verdicts.Analysis]) -> list[Table]:
    """Every table that there is data for, the summary last, where a terminal shows it."""
    shown = {name: a for name, a in analyses.items() if name in QUANTITIES}
    shown |= {name: a for name, a in analyses.items() if name not in shown}
    in_full = [
        a for name, a in shown.items() if name not in ("cpu", "minor_faults") and not name.endswith("_mean")
    ]
    tables = [*map(bench_tables.cells, in_full), bench_tables.scaling(result), bench_tables.failures(result)]
    tables.append(bench_tables.proofs(result))
    if len(result.allocators) > 1:
        tables += [
            bench_tables.growth(shown["wall"]),
            bench_tables.winners(shown),
            bench_tables.overall(shown),
        ]
    return [table for table in tables if table is not None]


def to_dict(a: verdicts.Analysis) -> Record:
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
    overall = {name: [_number(x) for x in one.interval] for name, one in a.overall.items()}
    said = {
        name: {"verdict": one.verdict, "corrected_p": one.corrected_p, "same": one.same, "groups": one.groups}
        for name, one in a.overall.items()
    }
    growths = [
        {
            "program": one.series[0],
            "parameters": dict(one.series[1]),
            "axis": one.axis,
            "allocator": one.allocator,
            "ratio": [_number(x) for x in one.comparison.interval],
            "corrected_p": one.corrected_p,
        }
        for one in a.growths
    ]
    return {
        "baseline": a.baseline,
        "method": a.method,
        "confidence": a.confidence,
        "unit": a.unit,
        "cells": lines,
        "overall": overall,
        "overall_verdicts": said,
        "best": a.best,
        "scaling": growths,
        "claims": a.claims,
        "margin": a.margin,
    }


def _pictures(
    result: Result,
    analyses: dict[str, verdicts.Analysis],
    tables: list[Table],
    answers: list[str],
    remarks: list[str],
    folder: Path,
) -> list[str]:
    from memoir.views import bench_drawing, bench_figures
    from memoir.views.page.of_bench import bench_page

    try:
        figures = bench_figures.all_figures(result, analyses["wall"], analyses.get("peak_rss"))
        vector = {name: bench_drawing.to_bytes(figure, "svg") for name, figure in figures.items()}
    except Error as error:  # no matplotlib: numbers are still worth having
        say(f"note: {error}")
        return []
    for name, figure in figures.items():
        write_whole(folder / f"{name}.svg", vector[name])
        write_whole(folder / f"{name}.png", bench_drawing.to_bytes(figure, "png"))
    write_whole(folder / "report.html", bench_page(result, tables, vector, remarks, answers).render())
    return ["report.html", f"{len(figures)} pictures"]


def show(table: Table) -> None:
    """Prints a table to standard output: within a terminal's width with nothing cut; elsewhere one row per line."""
    verdicts_of = {
        (number, column): style
        for number, row in enumerate(table.rows)
        for column, cell in enumerate(row)
        if (style := _STYLES.get(cell.split(",")[0]))
    }
    screen = Screen.of_output()
    screen.line()
    screen.table(replace(table, styles=verdicts_of))


def _number(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
