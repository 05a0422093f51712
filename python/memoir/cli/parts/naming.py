# SPDX-License-Identifier: Apache-2.0
"""Names for the stacks of traces, found when a trace has none: people read functions and lines, never addresses."""

from __future__ import annotations

from pathlib import Path

import click

from memoir._core import Error, Trace
from memoir.cli.parts.patience import doing, reading
from memoir.record import symbols
from memoir.traces.files import open_chosen


def open_named(path: str | Path, only: str | None = None) -> tuple[Trace, str]:
    """As open_chosen(), with names: where the trace has none they are found, and stored in it for the next time."""
    with reading(path):
        trace, chosen = open_chosen(path, only)
    if needs_names(trace) and store_names(path):
        trace, chosen = open_chosen(path, only)
    return trace, chosen


def needs_names(trace: Trace) -> bool:
    return bool(trace.modules) and not trace.has_symbols


def store_names(path: str | Path) -> bool:
    """Whether any were found. A trace that cannot be written to, or is still recorded, stays as it is, in words."""
    try:
        with doing("finding the names of functions"):
            named = sum(row.named for row in symbols.symbolize(path))
    except Error as error:
        click.echo(f"memoir: addresses stay without names: {error}", err=True)
        return False
    return named > 0
