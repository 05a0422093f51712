# SPDX-License-Identifier: Apache-2.0
"""`memoir record --lifetimes`."""

from __future__ import annotations

from pathlib import Path

import click

from memoir._core import Error
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.program import run_program
from memoir.lifetimes.names import name_frames
from memoir.lifetimes.sampling import DEFAULT_EVERY, Collector, limited_files


def record_lifetimes(
    output: str | None, *, every: int | None, page: str | None, force: bool, program: tuple[str, ...]
) -> int:
    """Runs the program and writes the profile of it and of all that it started. Gives its exit status."""
    path = Path(output or "memoir.lifetimes")
    check_output(path, (".lifetimes",), force)
    if every == 0:
        raise Error("--every 0: give the bytes between samples, such as 512KiB")
    with Collector(DEFAULT_EVERY if every is None else every) as collector:
        status = run_program(program, collector.environment)
    for problem in collector.unreadable:
        click.echo(f"memoir: {problem}", err=True)
    lifetimes = name_frames(collector.lifetimes())
    totals = lifetimes.totals
    if not totals["runs"]:
        why = limited_files() or (
            "the program did not load the recorder (is it static, or setuid?), or limits its files (ulimit -f)"
        )
        click.echo(f"memoir: nothing was sampled: {why}", err=True)
        return status
    lifetimes.write(path, force=force)
    running = (
        f"; {collector.running:,} processes still run, and are sampled until now" if collector.running else ""
    )
    click.echo(
        f"memoir: {totals['samples']:,} samples of {totals['runs']:,} processes in {quoted(path)}{running}; "
        f"next: memoir show {quoted(path)}",
        err=True,
    )
    if page is not None:
        from memoir.cli.parts.show_lifetimes import write_lifetimes_page

        write_lifetimes_page(path, Path(page), force)
    return status
