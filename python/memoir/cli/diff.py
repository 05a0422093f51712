# SPDX-License-Identifier: Apache-2.0
"""memoir diff: what changed between two benches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.bench import analysis, results
from memoir.bench.results import Result


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--relative", metavar="NAME", help="Compare each allocator's ratio to NAME instead of its own numbers."
)
@click.option(
    "--quantity", "chosen", multiple=True, metavar="NAME", help="Only these: wall, cpu, peak_rss, ..."
)
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")
def command(
    before: Path, after: Path, relative: str | None, chosen: tuple[str, ...], confidence: float, as_json: bool
) -> None:
    """What changed from BEFORE to AFTER (folders or files of memoir bench, or a study's CSVs), with
    intervals.

    Two benches ran at two times: what changed on the machine between them looks like a change of the
    allocators. With --relative system a common change cancels.
    """
    from memoir.cli import _bench_report as report
    from memoir.views import bench_tables

    if not 0 < confidence < 1:
        raise Error(f"--confidence {confidence}: must be between 0 and 1")
    first, second = results.read([before]), results.read([after])
    both = [name for name in analysis.quantities(first) if name in analysis.quantities(second)]
    for name in chosen:
        if name not in both:
            raise Error(f"--quantity {name}: not in both files; they share {', '.join(both)}")
    if relative is not None and not all(relative in one.allocators for one in (first, second)):
        raise Error(f"--relative {relative}: not in both files")
    names = list(chosen) or both
    found = {name: analysis.changes(first, second, name, relative, confidence) for name in names}
    if not any(found.values()):
        raise Error(
            f"{before} and {after} have no cell in common: other programs, allocators, threads or load"
        )
    if as_json:
        click.echo(
            json.dumps(
                {name: [_to_dict(change) for change in changes] for name, changes in found.items()}, indent=1
            )
        )
    else:
        for name, changes in found.items():
            report.show(bench_tables.difference(name, changes, confidence, relative))
    for note in _notes(first, second):
        report.say(f"note: {note}")
    report.say(
        f"next: memoir bench --from {after} shows all of it"
        if after.is_dir()
        else "next: memoir bench --suite"
    )


def _to_dict(change: analysis.Change) -> dict[str, Any]:
    cell, interval = change.cell, change.comparison.interval
    return {
        "program": cell.program,
        "allocator": cell.allocator,
        "threads": cell.threads,
        "load": cell.load,
        "parameters": dict(cell.parameters),
        "before": change.before,
        "after": change.after,
        "ratio": interval.ratio,
        "low": interval.low,
        "high": interval.high if interval.high < float("inf") else None,
        "corrected_p": change.corrected_p,
        "verdict": change.verdict,
    }


def _notes(first: Result, second: Result) -> list[str]:
    """What else differs between the two, and cells that only one of them has."""
    notes = []
    for key in ("processor", "cores", "kernel", "huge_pages", "governor", "overcommit"):
        old, new = (one.header.get("machine", {}).get(key) for one in (first, second))
        if old != new:
            notes.append(f"{key.replace('_', ' ')} was {old}, is {new}")
    for name, old in first.header.get("versions", {}).items():
        new = second.header.get("versions", {}).get(name)
        if new is not None and new != old:
            notes.append(f"{name} was {old}, is {new}")
    for one, other, where in ((first, second, "the first"), (second, first, "the second")):
        alone = [cell for cell in one.cells() if cell not in other.cells()]
        if alone:
            named = ", ".join(dict.fromkeys(f"{cell.allocator} in {cell.program}" for cell in alone[:4]))
            notes.append(
                f"{len(alone)} cells are in {where} only: {named}{', ...' if len(alone) > 4 else ''}"
            )
    return notes
