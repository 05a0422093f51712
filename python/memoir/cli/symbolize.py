# SPDX-License-Identifier: Apache-2.0
"""memoir symbolize: names for the addresses of native traces."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memoir._core import Error
from memoir.base.kinds import check_begins_like
from memoir.base.quantities import printable, quoted
from memoir.cli.parts.work_limit import limited
from memoir.record import debuginfod, symbols
from memoir.traces.files import read_begin


@click.command(name="symbolize")
@click.argument(
    "traces", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--debuginfod",
    "ask",
    is_flag=True,
    help="Ask the servers that DEBUGINFOD_URLS names for debug files that are not here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@limited
def command(traces: tuple[Path, ...], ask: bool, as_json: bool) -> None:
    """Find the names of functions, files and lines for the stacks of TRACES, and store them there.

    \b
      memoir symbolize x.trace

    The names come from the programs and libraries that the trace lists by their build ids, and from separate debug
    files; with --debuginfod from servers as well. Run this where these files are. After that the trace shows the
    same names on any machine, and can be compared by names with a trace of another build. TRACES may be lifetime
    profiles, too.
    """
    servers = debuginfod.servers() if ask else []
    if ask and not servers:
        raise Error("--debuginfod: DEBUGINFOD_URLS names no server; set it to http:// or https:// addresses")
    for trace in traces:
        begin = read_begin(trace)
        if begin.startswith(b"\x89memoirL"):
            _name_profile(trace, servers, as_json)
            continue
        check_begins_like(trace, begin, "a trace")
        rows = symbols.symbolize(trace, servers)
        if as_json:
            click.echo(json.dumps({"trace": str(trace), "modules": [asdict(row) for row in rows]}))
            continue
        for row in rows:
            missing = f"; {row.why}" if row.why else ""
            where = printable(f"{row.path}{missing}")
            click.echo(f"{row.named:>7,} of {row.addresses:>7,} addresses of {where}")
        click.echo(f"memoir: next: memoir show {quoted(trace)}", err=True)


def _name_profile(path: Path, servers: list[str], as_json: bool) -> None:
    from memoir.lifetimes import Lifetimes
    from memoir.lifetimes.names import name_frames

    named = name_frames(Lifetimes.open(path), servers)
    named.write(path, force=True)
    frames = named.frames["name"][:, 1]
    count, total = int((frames > 0).sum()), len(frames)
    if as_json:
        click.echo(json.dumps({"lifetimes": str(path), "addresses": total, "named": count}))
        return
    click.echo(f"{count:>7,} of {total:>7,} addresses")
    click.echo(f"memoir: next: memoir show {quoted(path)}", err=True)
