# SPDX-License-Identifier: Apache-2.0
"""What a page is made of. Each panel is headed by the question that it answers, and has a table with the same numbers
for those who do not see the picture. `Page.add()` takes them; none of them computes anything before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from memoir.views import text_table
from memoir.views.page.addresses import AddressAxis, Segments
from memoir.views.page.objects import ObjectSet
from memoir.views.page.stack_set import StackSet


@dataclass(frozen=True)
class Fact:
    """One of the numbers that lead a page: what it is, the number as text, and how to read it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """One of the answers that lead a program's page: a question's short form, an amount, who it is by and where that is,
    a note, and the curve of that function: bytes in equal stretches of time. `measure` and `function`: what the flame
    graph shows when the answer is followed."""

    name: str
    value: str
    who: str = ""
    place: str = ""
    note: str = ""
    curve: Sequence[int] = ()
    measure: str = ""
    function: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text under column heads. The first `left` columns and those in `words` are words, the others numbers.
    Before the rows in `breaks` a new group begins. `shades`: for each row and column a share from 0 to 1 that its
    cell is shaded by."""

    question: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    left: int = 1
    breaks: Sequence[int] = ()
    shades: Sequence[Sequence[float]] = ()
    words: Sequence[int] = ()

    @staticmethod
    def of(question: str, table: text_table.Table, note: str = "", left: int = 1) -> Table:
        """A table of the terminal, with the same rows."""
        return Table(question, table.columns, table.rows, note, left)


@dataclass(frozen=True)
class Curve:
    """Bytes from each tick on until the next; drawn as steps above a map. `role`: live, held, resident, or a name."""

    name: str
    role: str
    tick: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Mark:
    """Something that happened at a tick: a failure, a call to the device."""

    tick: int
    kind: str  # "failed", "call"
    text: str


@dataclass
class Map:
    """Where objects lay: one address for each object of the panel's set, or of `objects` where it has its own."""

    name: str
    addresses: np.ndarray  # bytes; as long as the set
    objects: ObjectSet | None = None
    placed: np.ndarray | None = None  # which objects have an address; None: all
    axis: AddressAxis | None = None  # None: of the objects and segments
    segments: Segments = field(default_factory=Segments)
    curves: Sequence[Curve] = ()  # beyond live, which the page makes itself
    lines: Sequence[tuple[str, int]] = ()  # (name, bytes) of level lines: floor, cap, arena
    marks: Sequence[Mark] = ()
    note: str = ""


@dataclass
class HeapMaps:
    """One map, or two next to each other whose times are linked, with curves above and segments at the side."""

    question: str
    objects: ObjectSet
    maps: Sequence[Map]
    note: str = ""
    address_unit: str = "address"
    moment: int | None = None  # the tick that is looked at first; None: the peak


@dataclass
class Flame:
    """An icicle over the stacks or operator chains of a set's objects. `measures`: what it can be by; the names are in
    script/flame.js."""

    question: str
    objects: ObjectSet
    note: str = ""
    measures: Sequence[str] = ("peak", "allocated", "count", "moment", "never", "temporary")
    counted: str = "allocation"  # what the count is of


@dataclass
class StackFlame:
    """A flame graph of a program's stacks with a tab for each of `measures` (stack_set.py), the first one open."""

    question: str
    stacks: StackSet
    measures: Sequence[str]
    note: str = ""


@dataclass
class Lifetimes:
    """Sizes x lifetimes of a set's objects as a heat map."""

    question: str
    objects: ObjectSet
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of a Lines panel; `x` ascending."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "line"  # or "area", "steps"


@dataclass
class Lines:
    """Curves over one axis, not over a map: bytes up, `unit` across."""

    question: str
    unit: str
    series: Sequence[Series]
    levels: Sequence[tuple[str, float]] = ()
    marks: Sequence[tuple[float, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A still picture, an SVG file of matplotlib's, with a line that says what is in it."""

    question: str
    svg: bytes
    note: str = ""


@dataclass(frozen=True)
class Text:
    """Paragraphs, or `lines` to copy."""

    question: str
    paragraphs: Sequence[str] = ()
    lines: Sequence[str] = ()


Panel = Table | HeapMaps | Flame | StackFlame | Lifetimes | Lines | Picture | Text
