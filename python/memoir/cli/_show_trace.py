# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.trace`."""

from __future__ import annotations

import json as json_format
import shlex
import sys
from pathlib import Path

import click

from memoir.base.files import write_output
from memoir.cli._arguments import check_output, console
from memoir.traces.files import open_trace
from memoir.views.load_picture import draw_load
from memoir.views.trace_summary import summarize
from memoir.views.trace_text import print_summary

PICTURES = (".png", ".svg", ".pdf")


def show_trace(path: str, *, output: str | None, json: bool, force: bool) -> None:
    """Prints the summary of a trace (`json`: as JSON); draws its load into `output` when that is named."""
    if output is not None:
        check_output(Path(output), PICTURES, force)
    trace = open_trace(path)
    summary = summarize(trace)
    if output is not None:
        title = f"{Path(path).name}  {trace.meta('model')}".strip()
        picture = draw_load(trace, summary, Path(output).suffix[1:].lower(), title=title)
        write_output(Path(output), picture, force)
        click.echo(f"wrote {output}", err=True)
    if json:
        click.echo(json_format.dumps({"trace": str(path), **summary}, indent=2))
        return
    print_summary(console(120), str(path), summary, ascii_only=not _shows_blocks())
    next_plan = Path(path).with_suffix(".plan")
    if summary["allocations"]["count"]:
        click.echo(f"\nnext: memoir plan {shlex.quote(str(path))} -o {shlex.quote(str(next_plan))}")


def _shows_blocks() -> bool:
    try:
        "▁█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
