# SPDX-License-Identifier: Apache-2.0
"""Tables as lines of text. They fit a terminal of any width, and nothing is cut: first heads go on below, then words, then
a column of words gets lines of its own, and at last the figures are in several blocks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_GAP = 2
_NARROWEST = 12  # what a column of words may shrink to
_INDENT = 2  # of figures under the name that they are of
_BELOW = "    "  # before words that stand under their figures
_JOINED = "\x1f"
_NO_BREAK = re.compile(
    r"(?<=\d) (?=(?:[%kMGT]|[a-zA-Z]{1,3})(?:\b|\s|$))|(?<=^/) "
)  # before a unit, after a head's "/"

Paint = Callable[[str, str], str]  # (text, style) -> the text with its colours


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows; `breaks` are the rows before which a new group begins, whose name is the first column.
    `styles`: of cells by (row, column), for whoever paints. `words`: the columns that are no numbers, where they are not
    told by their cells. A line end in a cell stays one."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    breaks: tuple[int, ...] = ()
    note: str = ""
    styles: Mapping[tuple[int, int], str] = field(default_factory=dict)
    words: tuple[int, ...] | None = None


def lines(table: Table, width: int | None, paint: Paint = lambda text, style: text) -> list[str]:
    """width: of the terminal; None: as wide as it comes. paint(text, style) may colour: a style is "title", "head", "group",
    "note", one of the table's own, or "".

    Groups (the first column, where a table has breaks) stand on lines of their own, so that rows stay narrow.
    """
    grouped = bool(table.breaks)
    body = _Body(table, 1 if grouped else 0, width, paint)
    out = [paint(part, "title") for part in folded(table.title, width)] if table.title else []
    shown = list(range(body.first, len(table.columns)))
    hung: list[int] = []
    while width is not None and len(shown) > 1 and not body.fits(shown, hung):
        if not (able := body.to_hang(shown)):
            break
        widest = max(able, key=body.natural)
        shown.remove(widest)
        hung.append(widest)
    for number, block in enumerate(body.blocks(shown, hung)):
        out += [""] * (number > 0) + body.lines(block, sorted(hung), whole=number == 0)
    if table.note:
        out += [paint(part, "note") for part in folded(table.note, width)]
    return [line.rstrip() for line in out]


def folded(text: str, width: int | None, indent: str = "") -> list[str]:
    """As lines of at most `width` columns, all set in by `indent`. Words are never broken, nor a number from its unit: one
    that is longer than a line has a line to itself."""
    out = []
    for part in text.split("\n"):
        if width is None or columns_of(indent + part) <= width:
            out.append(indent + part)
            continue
        line = ""
        begin = part[: len(part) - len(part.lstrip(" "))]
        for word in _NO_BREAK.sub(_JOINED, part.strip(" ")).split(" "):
            more = f"{line} {word}" if line else indent + begin + word
            if line and columns_of(more) > width:
                out.append(line)
                more = indent + begin + word
            line = more
        out.append(line)
    return [line.replace(_JOINED, " ") for line in out]


def columns_of(text: str) -> int:
    """How many columns of a terminal it takes: letters of East Asia take two, marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


class _Body:
    """Heads and rows without the groups' column."""

    def __init__(self, table: Table, first: int, width: int | None, paint: Paint):
        self.first = first
        self._table, self._width, self._paint = table, width, paint
        self._cells = [[row[k] for row in table.rows] for k in range(len(table.columns))]
        self._is_words = [self._holds_words(k) for k in range(len(table.columns))]

    def _holds_words(self, column: int) -> bool:
        """No numbers: it is left-aligned, and may be folded."""
        if self._table.words is not None:
            return column in self._table.words
        return not any(re.match(r"[-+<>]{0,2}\d", cell) for cell in self._cells[column])

    def to_hang(self, shown: Sequence[int]) -> list[int]:
        """Columns of words that may get lines of their own: names that are short stay before their figures."""
        short = self.first or self._least(shown[0]) <= (self._width or 0) // 3
        return [k for k in shown if self._is_words[k] and not (k == shown[0] and short)]

    def natural(self, column: int) -> int:
        """Columns that it takes where nothing is folded."""
        texts = (self._table.columns[column], *self._cells[column])
        return max(columns_of(line) for text in texts for line in text.split("\n"))

    def _least(self, column: int) -> int:
        """As far as it may shrink: numbers stay whole, and so does each word."""
        head, cells = self._table.columns[column], self._cells[column]
        least = max(map(_longest_word, (head, *cells) if self._is_words[column] else (head,)), default=1)
        if self._is_words[column]:
            return max(least, min(self.natural(column), _NARROWEST))
        return max([least, *map(columns_of, cells)])

    def fits(self, shown: Sequence[int], hung: Sequence[int]) -> bool:
        return self._room(hung) >= sum(map(self._least, shown)) + _GAP * (len(shown) - 1)

    def _room(self, hung: Sequence[int]) -> int:
        """Of a line, for the columns that are not hung."""
        assert self._width is not None
        return self._width - (_INDENT if self.first or any(hung_at == 0 for hung_at in hung) else 0)

    def blocks(self, shown: list[int], hung: Sequence[int]) -> list[list[int]]:
        """One, where everything fits; else the first column, and as many of the others as fit, again and again."""
        if self._width is None or self.fits(shown, hung):
            return [shown]
        key = shown[:1] if self._is_words[shown[0]] else []
        found: list[list[int]] = []
        block = list(key)
        for column in shown[len(key) :]:
            if len(block) > len(key) and not self.fits([*block, column], hung):
                found.append(block)
                block = list(key)
            block.append(column)
        return [*found, block]

    def _widths(self, shown: Sequence[int], hung: Sequence[int]) -> dict[int, int]:
        """Each as wide as it needs; where that is too much, heads of numbers give way first, then the widest words."""
        widths = {k: self.natural(k) for k in shown}
        if self._width is None:
            return widths
        least = {k: self._least(k) for k in shown}
        for is_words in (False, True):
            able = [k for k in shown if self._is_words[k] == is_words]
            while sum(widths.values()) + _GAP * (len(shown) - 1) > self._room(hung):
                wider = [k for k in able if widths[k] > least[k]]
                if not wider:
                    break
                widths[max(wider, key=widths.__getitem__)] -= 1
        return widths

    def lines(self, shown: Sequence[int], hung: Sequence[int], whole: bool) -> list[str]:
        """Heads and rows of some columns. Those that are hung have lines of their own: above the figures where they come
        first, else below. Unless `whole`, only rows that have something there."""
        widths = self._widths(shown, hung)
        above = [k for k in hung if not shown or k < shown[0]]
        below = [k for k in hung if k not in above] if whole else []
        indent = " " * _INDENT if self.first or above else ""
        table, paint, width = self._table, self._paint, self._width

        def alone(
            cells: Sequence[str], columns: Sequence[int], set_in: str, styles: Sequence[str]
        ) -> list[str]:
            return [
                paint(line, style)
                for k, style in zip(columns, styles, strict=True)
                if cells[k]
                for line in folded(cells[k], width, set_in)
            ]

        heads = ["head"] * len(table.columns)
        out = alone(table.columns, above, "", heads[: len(above)])
        if any(table.columns[k] for k in shown):
            out += self._row(table.columns, shown, widths, indent, heads, at_bottom=True)
        out += alone(table.columns, below, _BELOW, heads[: len(below)])
        figures = [k for k in shown if whole or k != self.first]
        for number, row in enumerate(table.rows):
            if not whole and not any(row[k] for k in figures):
                continue
            if self.first and row[0]:
                out += [paint(part, "group") for part in folded(row[0], width)]
            styles = [table.styles.get((number, k), "") for k in range(len(row))]
            out += alone(row, above, " " * (_INDENT * self.first), [styles[k] for k in above])
            out += self._row(row, shown, widths, indent, styles)
            out += alone(row, below, _BELOW, [styles[k] for k in below])
        return out

    def _row(
        self,
        row: Sequence[str],
        shown: Sequence[int],
        widths: Mapping[int, int],
        indent: str,
        styles: Sequence[str],
        at_bottom: bool = False,
    ) -> list[str]:
        pieces = {k: folded(row[k], widths[k]) for k in shown}
        height = max(map(len, pieces.values()))
        out = []
        for at in range(height):
            cells = []
            for k in shown:
                from_top = at - (height - len(pieces[k])) * at_bottom
                part = pieces[k][from_top] if 0 <= from_top < len(pieces[k]) else ""
                blanks = " " * (widths[k] - columns_of(part))
                cells.append(self._paint(part + blanks if self._is_words[k] else blanks + part, styles[k]))
            out.append(indent + (" " * _GAP).join(cells))
        return out


def _longest_word(text: str) -> int:
    return max((columns_of(word) for line in folded(text, 1) for word in line.split("\n")), default=1)
