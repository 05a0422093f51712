# SPDX-License-Identifier: Apache-2.0
"""`memoir merge`: lifetime profiles of several runs, processes or machines as one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import Workers, check_output, workers_option
from memoir.cli.parts.work_limit import limited


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The .lifetimes file.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@click.option("--json", "as_json", is_flag=True, help="The totals as JSON on stdout.")
@workers_option()
@limited
def command(
    files: tuple[str, ...],
    output: str,
    force: bool,
    as_json: bool,
    workers: Workers,
) -> None:
    """Merge the lifetime profiles FILES into one.

    \b
      memoir merge monday.lifetimes tuesday.lifetimes -o week.lifetimes

    Contexts are the same when their stacks are: the same build id and offset at each depth. The order of the files
    changes nothing. A run that is in two of the files is refused, since it would count twice.
    """
    from memoir.lifetimes.merging import merge_files

    check_output(Path(output), (".lifetimes",), force)
    merged = merge_files(files, **workers._asdict(), title="merge")
    merged.write(output, force=force)
    totals = merged.totals
    if as_json:
        click.echo(json.dumps({"output": output, "contexts": len(merged), **totals}, indent=2))
    else:
        click.echo(f"{totals['runs']:,} runs, {totals['samples']:,} samples in {len(merged):,} contexts")
    click.echo(f"wrote {quoted(output)}", err=True)
    if not as_json:
        click.echo(f"\nnext: memoir show {quoted(output)}")
