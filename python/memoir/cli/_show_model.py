# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.model`."""

from __future__ import annotations

import json as json_format
import shlex
from pathlib import Path

import click

from memoir.cli._arguments import console
from memoir.lifetimes import Lifetimes
from memoir.train import read_model
from memoir.train.summary import against, summarize
from memoir.views.model_text import print_comparison, print_model


def show_model(path: str, *, profile: str | None, json: bool) -> None:
    """Prints what a model knows (`json`: as JSON), and how it does on a profile where one is named."""
    model = read_model(path)
    summary = summarize(model, Path(path).stat().st_size, most=20 if json else 4)
    found = None if profile is None else against(model, Lifetimes.open(profile))
    if json:
        content = {"model": path, **summary}
        if found is not None:
            content["against"] = {"lifetimes": profile, **found}
        click.echo(json_format.dumps(content, indent=2))
        return
    print_model(console(120), path, summary)
    if found is not None:
        print_comparison(console(120), str(profile), found)
    else:
        click.echo(f"\nnext: memoir show {shlex.quote(path)} --against x.lifetimes")
