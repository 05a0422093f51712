# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.lifetimes`."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Any

import click

from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.lifetimes import Lifetimes
from memoir.lifetimes.summary import summarize
from memoir.views.lifetimes_text import print_lifetimes
from memoir.views.screen import Screen


def show_lifetimes(path: str, *, output: str | None, json: bool, force: bool) -> None:
    """Prints the summary of a lifetime profile (`json`: as JSON); writes its page into `output` when that is named."""
    if output is not None:
        check_output(Path(output), (".html",), force)
    profile = Lifetimes.open(path)
    summary = summarize(profile)
    if output is not None:
        _write(path, profile, summary, Path(output), force)
    if json:
        click.echo(json_format.dumps({"lifetimes": path, **summary}, indent=2))
        return
    print_lifetimes(Screen.of_output(), path, summary)
    if summary["contexts"]:
        click.echo(f"\nnext: memoir export {quoted(path)} --to pprof")


def write_lifetimes_page(path: Path, output: Path, force: bool) -> None:
    profile = Lifetimes.open(path)
    _write(str(path), profile, summarize(profile), output, force)


def _write(path: str, profile: Lifetimes, summary: dict[str, Any], output: Path, force: bool) -> None:
    from memoir.views.page.of_lifetimes import lifetimes_page

    write_output(output, lifetimes_page(Path(path).name, profile, summary).render().encode(), force)
    click.echo(f"wrote {quoted(output)}", err=True)
