# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.trace`."""

from __future__ import annotations

import json as json_format
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from memoir._core import Error, Trace
from memoir.traces.files import open_trace
from memoir.views.load_picture import draw_load
from memoir.views.trace_summary import summarize
from memoir.views.trace_text import print_summary

PICTURES = (".png", ".svg", ".pdf")


def show_trace(path: str, *, output: str | None, json: bool, force: bool) -> None:
    """Prints the summary of a trace (`json`: as JSON); draws its load into `output` when that is named."""
    if output is not None:
        _check_output(Path(output), force)
    trace = open_trace(path)
    summary = summarize(trace)
    if output is not None:
        _draw(trace, summary, path, Path(output))
    if json:
        click.echo(json_format.dumps({"trace": str(path), **summary}, indent=2))
        return
    wide = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    print_summary(wide, str(path), summary, ascii_only=not _shows_blocks())
    next_plan = Path(path).with_suffix(".plan")
    if summary["allocations"]["count"]:
        click.echo(f"\nnext: memoir plan {shlex.quote(str(path))} -o {shlex.quote(str(next_plan))}")


def _check_output(output: Path, force: bool) -> None:
    if output.suffix.lower() not in PICTURES:
        raise Error(
            f"{output}: the picture of a trace is written as {', '.join(PICTURES)}; give it such a name"
        )
    if output.exists() and not force:
        raise Error(f"{output}: exists already; pass -f to overwrite it")


def _draw(trace: Trace, summary: dict[str, Any], path: str, output: Path) -> None:
    unfinished = output.with_name(f".{output.stem}.{os.getpid()}{output.suffix}")
    try:
        draw_load(trace, summary, unfinished, title=f"{Path(path).name}  {trace.meta('model')}".strip())
        unfinished.replace(output)
    except OSError as error:
        raise Error(f"{output}: cannot write: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    click.echo(f"wrote {output}", err=True)


def _shows_blocks() -> bool:
    try:
        "▁█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
