# SPDX-License-Identifier: Apache-2.0
"""memoir diff: what changed between two benches, or two traces."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.base.files import write_output
from memoir.base.kinds import promise, wrong_kind
from memoir.base.quantities import printable, quoted
from memoir.bench import reading
from memoir.bench.changes import Change, changes
from memoir.bench.journal import strict
from memoir.bench.results import Result
from memoir.bench.values import quantities
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.bench_arguments import percent
from memoir.cli.parts.work_limit import limited
from memoir.traces.files import is_trace, read_begin


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--relative", metavar="NAME", help="Compare each allocator's ratio to NAME instead of its own numbers."
)
@click.option(
    "--quantity", "chosen", multiple=True, metavar="NAME", help="Only these: wall, cpu, peak_rss, ..."
)
@click.option("--confidence", metavar="PERCENT", default="95%", show_default=True)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CHANGE",
    help="End with 1 if it is shown: 'slower > 2%', 'peak_rss more > 5%', 'ops lower > 3%'.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A page: .html. Of traces with their heap maps, linked.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite the page.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")
@limited
def command(
    before: Path,
    after: Path,
    relative: str | None,
    chosen: tuple[str, ...],
    confidence: str,
    conditions: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Say what changed from BEFORE to AFTER: folders or files of memoir bench, or a study's CSVs, with intervals; or two
    traces, by the names of their stacks (as memoir show --diff).

    Two benches ran at two different times: a change of the machine in between looks like a change of the allocators.
    With --relative system a common change cancels out.
    """
    from memoir.cli.parts import bench_report as report
    from memoir.views import bench_tables

    if _are_traces(before, after):
        if relative or chosen or conditions or confidence != "95%":
            raise Error("two traces are compared without intervals: use only -o, -f and --json with them")
        from memoir.cli.parts.show_trace import show_diff

        target = None if output is None else str(output)
        show_diff(str(before), str(after), output=target, json=as_json, force=force)
        return
    if output is not None:
        check_output(output, (".html",), force)
    level = percent("--confidence", confidence)
    limits = _limits(conditions)
    first, second = reading.read([before]), reading.read([after])
    both = [name for name in quantities(first) if name in quantities(second)]
    for name in chosen:
        if name not in both:
            raise Error(f"--quantity {name}: not in both files; they share {', '.join(both)}")
    if relative is not None and not all(relative in one.allocators for one in (first, second)):
        raise Error(f"--relative {relative}: not in both files")
    for name in limits:
        if name not in both:
            raise Error(f"--fail-if: {name} is not in both files; they share {', '.join(both)}")
    names = list(dict.fromkeys([*chosen, *limits])) if chosen else both
    found = changes(first, second, names, relative, level, lambda name: limits.get(name, 0.0))
    if not any(found.values()):
        raise Error(
            f"{before} and {after} have no cell in common: other programs, allocators, threads or load"
        )
    if as_json:
        click.echo(
            json.dumps(
                strict({name: [_to_dict(change) for change in some] for name, some in found.items()}),
                indent=1,
                allow_nan=False,
            )
        )
    else:
        for name, some in found.items():
            report.show(bench_tables.difference(name, some, level, relative))
    notes = _notes(first, second)
    for note in notes:
        report.say(f"note: {note}")
    if output is not None:
        from memoir.views.page.of_bench import diff_page

        tables = [bench_tables.difference(name, some, level, relative) for name, some in found.items()]
        page = diff_page(str(before), str(after), tables, notes)
        write_output(output, page.render().encode(), force)
        report.say(f"wrote {quoted(output)}")
    report.say(
        f"next: memoir bench --from {quoted(after)} shows all of it"
        if after.is_dir()
        else "next: memoir bench --suite"
    )
    broken = [
        f"{change.cell.allocator} in {bench_tables.label(change.cell.group)}: {name} "
        f"{bench_tables.interval(change.comparison.interval)}"
        for name in limits
        for change in found[name]
        if change.exceeds_p <= 1 - level
    ]
    for line in broken:
        report.say(f"memoir: --fail-if holds: {printable(line)}")
    if broken:
        sys.exit(1)


def _are_traces(before: Path, after: Path) -> bool:
    """Error where one is a trace and the other is none."""
    are = [path.is_file() and is_trace(read_begin(str(path))) for path in (before, after)]
    if any(are) and not all(are):
        other = after if are[0] else before
        if other.is_file():
            raise wrong_kind(other, read_begin(str(other)), "not a trace, and the other is one")
        raise Error(f"{other} is not a trace: memoir diff compares two traces, or two benches")
    for path in (before, after):
        if not any(are) and path.is_file() and promise(path) not in ("", "JSON"):
            raise wrong_kind(path, read_begin(str(path)), "neither a trace nor what memoir bench writes")
    return all(are)


_UP, _DOWN = ("slower", "more", "higher"), ("faster", "less", "fewer", "lower")


def _limits(conditions: tuple[str, ...]) -> dict[str, float]:
    """By quantity, the relative change beyond which a diff fails: 0.02 for 'slower > 2%', -0.05 for 'less > 5%'."""
    found: dict[str, float] = {}
    for text in conditions:
        match = re.fullmatch(r"(?:(\S+)\s+)?([a-z]+)\s*>\s*(.+)", text.strip())
        if match is None or match.group(2) not in (*_UP, *_DOWN):
            words = ", ".join((*_UP, *_DOWN))
            raise Error(
                f"--fail-if {text!r}: write it as 'slower > 2%' or 'peak_rss more > 5%' (words: {words})"
            )
        name, word, limit = match.groups()
        name = name or "wall"
        if name in found:
            raise Error(f"--fail-if {text!r}: names {name} twice; give one condition for each quantity")
        value = percent("--fail-if", limit)
        found[name] = value if word in _UP else -value
    return found


def _to_dict(change: Change) -> dict[str, Any]:
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
