# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.model`."""

from __future__ import annotations

import json as json_format
from pathlib import Path

import click

from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.lifetimes import Lifetimes
from memoir.train import read_model
from memoir.train.summary import against, summarize
from memoir.views.model_text import print_comparison, print_model
from memoir.views.screen import Screen

_MOST_SITES = 40  # of a class, on a page and in --json


def show_model(
    path: str, *, profile: str | None, output: str | None = None, json: bool = False, force: bool = False
) -> None:
    """Prints what a model knows (`json`: as JSON), and how it does on a profile where one is named; writes its page into
    `output` where that is named."""
    if output is not None:
        check_output(Path(output), (".html",), force)
    model = read_model(path)
    summary = summarize(model, Path(path).stat().st_size, most=_MOST_SITES if json else 4)
    found = None if profile is None else against(model, Lifetimes.open(profile), _MOST_SITES)
    if output is not None:
        write_model_page(path, Path(output), profile, force)
        click.echo(f"wrote {quoted(output)}", err=True)
    if json:
        content = {"model": path, **summary}
        if found is not None:
            content["against"] = {"lifetimes": profile, **found}
        click.echo(json_format.dumps(content, indent=2))
        return
    print_model(Screen.of_output(), path, summary)
    if found is not None:
        print_comparison(Screen.of_output(), str(profile), found)
    else:
        click.echo(f"\nnext: memoir show {quoted(path)} --against x.lifetimes")


def write_model_page(path: str, output: Path, profile: str | None, force: bool) -> None:
    """The page of a model, and of how it does on a profile where one is named."""
    from memoir.views.page.of_model import model_page

    model = read_model(path)
    summary = summarize(model, Path(path).stat().st_size, most=_MOST_SITES)
    found = (
        None
        if profile is None
        else (Path(profile).name, against(model, Lifetimes.open(profile), _MOST_SITES))
    )
    write_output(output, model_page(Path(path).name, summary, found).render().encode(), force)
