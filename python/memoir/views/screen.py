# SPDX-License-Identifier: Apache-2.0
"""Where text goes: standard output, as wide as its terminal. Elsewhere no line is folded, so that each row is a line."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any

import click

from memoir.views import text_table
from memoir.views.text_table import Table

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "bold": {"bold": True},
    "head": {"dim": True},
    "group": {"dim": True},
    "note": {"dim": True},
    "dim": {"dim": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "alarm": {"fg": "red", "bold": True},
}
_NARROWEST = 20  # columns; a terminal that says less does not know


@dataclass(frozen=True)
class Screen:
    """`width`: columns of the terminal, or None where there is none. `colours`: whether it shows them."""

    width: int | None
    colours: bool

    @staticmethod
    def of_output() -> Screen:
        """Standard output as it is. https://no-color.org and TERM=dumb are heeded."""
        terminal = sys.stdout is not None and sys.stdout.isatty()
        width = max(shutil.get_terminal_size().columns, _NARROWEST) if terminal else None
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return Screen(width, terminal and wanted)

    def columns(self, elsewhere: int) -> int:
        """Of the terminal, or so many where there is none: for pictures and sentences."""
        return elsewhere if self.width is None else self.width

    def line(self, text: str = "", style: str = "") -> None:
        """One line as it is: a terminal may wrap it, and it can be copied whole."""
        click.echo(self.paint(text, style), color=self.colours)

    def sentence(self, text: str, style: str = "") -> None:
        """As many lines as the terminal needs, without breaking words."""
        for line in text_table.folded(text, self.width):
            self.line(line, style)

    def table(self, table: Table) -> None:
        for line in text_table.lines(table, self.width, self.paint):
            click.echo(line, color=self.colours)

    def paint(self, text: str, style: str) -> str:
        return click.style(text, **_STYLES[style]) if style and self.colours and text.strip() else text
