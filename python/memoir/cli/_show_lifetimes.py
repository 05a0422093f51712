# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.lifetimes`."""

from __future__ import annotations

import json as json_format
import shlex

import click

from memoir.cli._arguments import console
from memoir.lifetimes import Lifetimes
from memoir.lifetimes.summary import summarize
from memoir.views.lifetimes_text import print_lifetimes


def show_lifetimes(path: str, *, json: bool) -> None:
    """Prints the summary of a lifetime profile (`json`: as JSON)."""
    summary = summarize(Lifetimes.open(path))
    if json:
        click.echo(json_format.dumps({"lifetimes": path, **summary}, indent=2))
        return
    print_lifetimes(console(120), path, summary)
    if summary["contexts"]:
        click.echo(f"\nnext: memoir export {shlex.quote(path)} --to pprof")
