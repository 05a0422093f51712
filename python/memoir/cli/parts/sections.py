# SPDX-License-Identifier: Apache-2.0
"""Sections of --help, for verbs with many options. An option names its section where it is written:

searching = section("Search")

@click.command(cls=SectionedCommand)
@searching("--seed", type=int)
@click.option("--json", is_flag=True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


class _SectionedOption(click.Option):
    def __init__(self, *arguments: Any, section: str, **settings: Any):
        super().__init__(*arguments, **settings)
        self.section = section


def section(title: str) -> Callable[..., Callable[[Any], Any]]:
    """click.option() for the options of one section."""
    return functools.partial(click.option, cls=_SectionedOption, section=title)


class SectionedCommand(click.Command):
    """Lists the options without a section first, then each section, all in the order in which they are written."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = parameter.section if isinstance(parameter, _SectionedOption) else "Options"
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
