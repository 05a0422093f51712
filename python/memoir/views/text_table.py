# SPDX-License-Identifier: Apache-2.0
"""Tables of a bench as lines of text that fit a terminal: nothing is cut, what is too long goes on below."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from memoir.views.bench_tables import Table

_GAP = 2
_NARROWEST = 8  # what a column of words may shrink to


def lines(
    table: Table, width: int | None, paint: Callable[[str, str], str] = lambda text, what: text
) -> list[str]:
    """width: of the terminal; None: as wide as it comes. paint(text, what) may colour: what is "title", "head", "group",
    "note" or a cell's own words.

    Groups (the first column, where a table has breaks) stand on lines of their own, so that rows stay narrow.
    """
    grouped = bool(table.breaks)
    columns = table.columns[1:] if grouped else table.columns
    rows = [row[1:] for row in table.rows] if grouped else list(table.rows)
    widths = _widths(columns, rows, None if width is None else width - 2 * grouped)
    words = [_is_words(rows, index) for index in range(len(columns))]
    indent = "  " if grouped else ""
    out = [paint(part, "title") for part in _folded(table.title, width)]
    out += [paint(line, "head") for line in _row(columns, widths, words, indent)]
    for index, row in enumerate(rows):
        if grouped and table.rows[index][0]:
            out += [paint(part, "group") for part in _folded(table.rows[index][0], width)]
        out += _row(row, widths, words, indent, paint)
    if table.note:
        out += [paint(part, "note") for part in _folded(table.note, width)]
    return [line.rstrip() for line in out]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Each column as wide as it needs; where that is too much, the widest column of words gives way."""
    needed = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if width is None:
        return needed
    shrinkable = [index for index in range(len(columns)) if _is_words(rows, index)]
    least = [max((len(part) for part in columns[index].split()), default=1) for index in range(len(columns))]
    while sum(needed) + _GAP * (len(needed) - 1) > width:
        able = [i for i in range(len(columns)) if needed[i] > max(_NARROWEST, least[i]) and i in shrinkable]
        if not able:
            break
        needed[max(able, key=lambda i: needed[i])] -= 1
    return needed


def _is_words(rows: Sequence[Sequence[str]], index: int) -> bool:
    """True for a column that holds no numbers: it is left-aligned, and may be folded."""
    return not any(re.match(r"[-<>]?\d", row[index]) for row in rows)


def _row(
    row: Sequence[str],
    widths: Sequence[int],
    words: Sequence[bool],
    indent: str,
    paint: Callable[[str, str], str] = lambda text, what: text,
) -> list[str]:
    pieces = [_folded(text, width) for text, width in zip(row, widths, strict=True)]
    out = []
    for at in range(max(map(len, pieces))):
        cells = []
        for piece, text, width, left in zip(pieces, row, widths, words, strict=True):
            part = piece[at] if at < len(piece) else ""
            cells.append(paint(part.ljust(width) if left else part.rjust(width), text))
        out.append(indent + (" " * _GAP).join(cells))
    return out


def _folded(text: str, width: int | None) -> list[str]:
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]
