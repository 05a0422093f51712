# SPDX-License-Identifier: Apache-2.0
"""`memoir merge`: lifetime profiles of several runs, processes or machines as one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import Whole, check_output
from memoir.cli.parts.work_limit import limited
from memoir.sweep import ENGINES


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The .lifetimes file.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@click.option("--json", "as_json", is_flag=True, help="The totals as JSON on stdout.")
@click.option(
    "--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="What merges many files."
)
@click.option("--workers", type=Whole(1), help="Processes; else one per core.")
@click.option("--address", help="Address of a Ray cluster.")
@limited
def command(
    files: tuple[str, ...],
    output: str,
    force: bool,
    as_json: bool,
    engine: str,
    workers: int | None,
    address: str | None,
) -> None:
    """Merge the lifetime profiles FILES into one.

    \b
      memoir merge monday.lifetimes tuesday.lifetimes -o week.lifetimes

    Contexts are the same when their stacks are: the same build id and offset at each depth. The order of the files
    changes nothing. A run that is in two of the files is refused, since it would count twice.
    """
    from memoir.lifetimes.merging import merge_files

    check_output(Path(output), (".lifetimes",), force)
    merged = merge_files(files, engine=engine, workers=workers, address=address, title="merge")
    merged.write(output, force=force)
    totals = merged.totals
    if as_json:
        click.echo(json.dumps({"output": output, "contexts": len(merged), **totals}, indent=2))
    else:
        click.echo(f"{totals['runs']:,} runs, {totals['samples']:,} samples in {len(merged):,} contexts")
    click.echo(f"wrote {quoted(output)}", err=True)
    if not as_json:
        click.echo(f"\nnext: memoir show {quoted(output)}")
