# SPDX-License-Identifier: Apache-2.0
"""The page itself: one HTML file that holds its script, style and data, and asks nobody for anything.

    <head>   a policy that lets this script and this style run and nothing else (by hash), the style
    <main>   a section per panel: its question, its table; the script adds the picture
    <script type="application/json" id="page-data">    what the panels are
    <script type="text/plain" id="c0">, "c1", ...      columns, deflated and in base64
    <script>                                           script/*.js, one after another

Text from files of strangers goes into elements as text and into JSON, never into script or attributes of script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from memoir.base.quantities import bytes_text, printable
from memoir.views.page.addresses import AddressAxis
from memoir.views.page.budget import BUDGET, PackedSet
from memoir.views.page.columns import PackedColumn, pack
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import (
    Answer,
    Curve,
    Fact,
    Flame,
    HeapMaps,
    Lifetimes,
    Lines,
    Map,
    Panel,
    Picture,
    StackFlame,
    Table,
    Text,
)
from memoir.views.page.sites import shortened
from memoir.views.page.stack_set import MEASURES
from memoir.views.page.vector import plain_svg

_SCRIPTS = Path(__file__).parent / "script"
#: in the order in which they are read
SCRIPTS = (
    "text",
    "columns",
    "objects",
    "colours",
    "raster",
    "view",
    "curves",
    "side",
    "pinned",
    "heap_map",
    "flame",
    "stacks",
    "lifetimes",
    "lines",
    "boot",
)
_LONGEST_CELL = 300  # characters of a table's cell
_LONGEST_LINE = 1000  # of a title or a note
_MOST_ROWS = 400
_CURVE_POINTS = 6000
_OWN_SCALE = 3  # times as tall as another map


@cache
def _script() -> str:
    parts = "\n".join((_SCRIPTS / f"{name}.js").read_text() for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def _style() -> str:
    return (_SCRIPTS / "style.css").read_text()


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


class Page:
    """Add panels in reading order, then render(). Not thread-safe."""

    def __init__(
        self,
        title: str,
        *,
        subtitle: str = "",
        facts: Sequence[Fact] = (),
        answers: Sequence[Answer] = (),
        notes: Sequence[str] = (),
        budget: int = BUDGET,
    ):
        self._title, self._subtitle = (
            shortened(printable(text), _LONGEST_LINE) for text in (title, subtitle)
        )
        self._facts = list(facts)
        self._answers = list(answers)
        self._notes = [shortened(note, _LONGEST_LINE) for note in notes]
        self._budget = budget
        self._panels: list[Panel] = []

    def add(self, *panels: Panel | None) -> Page:
        """None is left out, so that what makes panels may find nothing to show."""
        self._panels += [panel for panel in panels if panel is not None]
        return self

    def render(self, *, live: bool = False) -> str:
        """The file's text. `live`: the page asks the server that it came from for a newer one each second."""
        writer = _Writer(self._panels, self._budget)
        sections = [writer.section(number, panel) for number, panel in enumerate(self._panels)]
        data: dict[str, Any] = {
            "title": self._title,
            "live": live,
            "sets": writer.sets,
            "panels": writer.panels,
        }
        data["columns"] = {key: column.header() for key, column in writer.columns.items()}
        script, style = _script(), _style()
        connect = "'self'" if live else "'none'"
        policy = (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
            f"connect-src {connect}; img-src 'none'; base-uri 'none'; form-action 'none'"
        )
        notes = [*self._notes, *writer.notes]
        parts = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer"><meta name="generator" content="memoir">',
            f"<title>{_text(self._title)}</title><style>{style}</style></head><body>",
            '<a class="skip" href="#panels">Skip to the panels</a>',
            f'<header><p class="brand">memoir</p><h1>{_text(self._title)}</h1>',
            f'<p class="sub">{_text(self._subtitle)}</p>' if self._subtitle else "",
            _answers(self._answers),
            _facts(self._facts),
            "".join(f'<p class="note">{_text(note)}</p>' for note in notes),
            '<p class="note" id="problem" role="alert" hidden></p>',
            '</header><main id="panels">',
            *sections,
            '</main><p id="readout" class="visually-hidden" role="status" aria-live="polite"></p>',
            f'<script type="application/json" id="page-data">{_json(data)}</script>',
            *(
                f'<script type="text/plain" id="{key}">{column.text()}</script>'
                for key, column in writer.columns.items()
            ),
            f"<script>{script}</script></body></html>",
            "",
        ]
        return "\n".join(part for part in parts if part or part is parts[-1])


class _Writer:
    """Turns panels into sections and into what the script reads."""

    def __init__(self, panels: Sequence[Panel], budget: int):
        self.sets: list[dict[str, Any]] = []
        self.panels: list[dict[str, Any]] = []
        self.columns: dict[str, PackedColumn] = {}
        self.notes: list[str] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[ObjectSet] = []  # so that no id is used twice
        shared = [panel for panel in panels if isinstance(panel, (HeapMaps, Flame, Lifetimes))]
        count = len({id(panel.objects) for panel in shared}) + sum(
            one.objects is not None for panel in shared if isinstance(panel, HeapMaps) for one in panel.maps
        )
        self._maps_of: dict[int, list[Map]] = {}
        self._moments: dict[int, list[int]] = {}  # that a set's maps show first
        self._held: dict[int, dict[str, PackedColumn]] = {}
        taken = 0
        for panel in shared:
            if isinstance(panel, HeapMaps):
                for one in panel.maps:
                    objects = one.objects or panel.objects
                    self._maps_of.setdefault(id(objects), []).append(one)
                    if panel.moment is not None:
                        self._moments.setdefault(id(objects), []).append(panel.moment)
                    self._held[id(one)] = self._segments(one, objects)
                    taken += sum(column.size for column in self._held[id(one)].values())
        self._budget = max(int(budget * 0.94) - taken, budget // 8) // max(count, 1)

    def section(self, number: int, panel: Panel) -> str:
        head = f"<h2>{_text(panel.question)}</h2>"
        note = getattr(panel, "note", "")
        note_html = f'<p class="note">{_text(note)}</p>' if note else ""
        body = ""
        if isinstance(panel, Table):
            body = _table(panel)
        elif isinstance(panel, Picture):
            body = f"<figure {_reachable(panel.question)}>{plain_svg(panel.svg, number)}</figure>"
        elif isinstance(panel, Text):
            body = "".join(f"<p>{_text(one)}</p>" for one in panel.paragraphs)
            if panel.lines:
                lines = _text("\n".join(panel.lines))
                body += f"<pre {_reachable(panel.question)}>{lines}</pre>"
        else:
            body = '<div class="stage"></div>'
            self.panels.append({"section": f"panel-{number}", "question": panel.question} | self._data(panel))
        return f'<section class="panel" id="panel-{number}">{head}{note_html}{body}</section>'

    def _data(self, panel: HeapMaps | Flame | StackFlame | Lifetimes | Lines) -> dict[str, Any]:
        if isinstance(panel, Lines):
            series = [
                {"name": one.name, "style": one.style, "x": list(one.x), "y": list(one.y)}
                for one in panel.series
            ]
            return {
                "kind": "lines",
                "unit": panel.unit,
                "series": series,
                "levels": list(panel.levels),
                "marks": list(panel.marks),
            }
        if isinstance(panel, Flame):
            return {
                "kind": "flame",
                "set": self._set(panel.objects),
                "measures": list(panel.measures),
                "counted": panel.counted,
            }
        if isinstance(panel, StackFlame):
            stacks = panel.stacks
            return {
                "kind": "stacks",
                "functions": stacks.functions,
                "places": stacks.places,
                "owners": stacks.owners,
                "measures": [one for one in MEASURES if one[0] in panel.measures],
                "columns": {name: self._column(column) for name, column in stacks.columns().items()},
            }
        if isinstance(panel, Lifetimes):
            return {"kind": "lifetimes", "set": self._set(panel.objects)}
        maps = [self._map(one, one.objects or panel.objects) for one in panel.maps]
        tallest = max(one["height"] for one in maps)
        for one in maps:  # one scale, unless that would squeeze the smaller
            one["scale"] = tallest if tallest <= _OWN_SCALE * one["height"] else one["height"]
        return {
            "kind": "map",
            "set": self._set(panel.objects),
            "unit": panel.address_unit,
            "maps": maps,
            "moment": panel.moment,
        }

    def _map(self, one: Map, objects: ObjectSet) -> dict[str, Any]:
        axis = self._axis(one, objects)
        return {
            "name": one.name,
            "note": one.note,
            "set": self._set(objects),
            "address": f"address{self._maps_of[id(objects)].index(one)}",
            "height": axis.height,
            "spans": axis.spans(),
            "joined": one.segments.joined,
            "segments": {name: self._column(column) for name, column in self._held[id(one)].items()},
            "curves": [self._curve(curve) for curve in one.curves],
            "lines": [[name, int(value)] for name, value in one.lines],
            "marks": [[mark.tick, mark.kind, mark.text] for mark in one.marks[:2000]],
        }

    def _segments(self, one: Map, objects: ObjectSet) -> dict[str, PackedColumn]:
        segments = one.segments
        held = {
            "at": self._axis(one, objects).place(np.array(segments.address, np.uint64)),
            "size": np.array(segments.size, np.int64),
            "born": np.array(segments.born, np.int64),
            "died": np.array(segments.died, np.int64),
        }
        return {name: pack(values) for name, values in held.items()}

    def _axis(self, one: Map, objects: ObjectSet) -> AddressAxis:
        if one.axis is None:
            placed = np.ones(len(objects), bool) if one.placed is None else one.placed
            begin = np.asarray(one.addresses, np.uint64)[placed]
            size = objects.size[placed].astype(np.uint64)
            held = np.array(one.segments.address, np.uint64), np.array(one.segments.size, np.uint64)
            one.axis = AddressAxis.of(np.concatenate([begin, held[0]]), np.concatenate([size, held[1]]))
        return one.axis

    def _curve(self, curve: Curve) -> dict[str, Any]:
        tick, value = _thinned(np.asarray(curve.tick), np.asarray(curve.value))
        return {
            "name": curve.name,
            "role": curve.role,
            "tick": self._column(pack(tick)),
            "value": self._column(pack(value)),
        }

    def _set(self, objects: ObjectSet) -> int:
        if id(objects) in self._numbers:
            return self._numbers[id(objects)]
        number = self._numbers[id(objects)] = len(self.sets)
        self._kept.append(objects)
        drawn = []
        for one in self._maps_of.get(id(objects), []):
            axis = self._axis(one, objects)
            placed = np.ones(len(objects), bool) if one.placed is None else one.placed
            at = np.full(len(objects), axis.height + 1, np.int64)  # beyond the axis: drawn nowhere
            at[placed] = axis.place(np.asarray(one.addresses, np.uint64)[placed])
            drawn.append(at)
        packed = PackedSet(objects, drawn, self._budget, self._moments.get(id(objects), ()))
        self.notes += [f"To keep the page small: {note}." for note in packed.notes]
        kept = packed.objects
        self.sets.append(
            {
                "count": len(kept),
                "objects": objects.total,
                "countUnit": objects.count_unit,
                "merged": packed.is_merged,
                "knowsSites": packed.knows_sites,
                "cut": packed.is_cut,
                "exact": {
                    kind: {name: self._column(column) for name, column in columns.items()}
                    for kind, columns in packed.exact.items()
                },
                "ticks": int(kept.ticks),
                "unit": kept.unit,
                "columns": {name: self._column(column) for name, column in packed.columns.items()},
                "openEnded": kept.open_ended,
                "quantum": packed.quantum,
                "frames": kept.sites.frames,
                "owners": kept.sites.owners,
                "lifetimes": list(kept.lifetimes),
                "predictions": list(kept.predictions),
                "passes": [[one["name"], one["begin"], one["end"]] for one in kept.passes[:4000]],
            }
        )
        return number

    def _column(self, column: PackedColumn) -> str:
        key = f"c{len(self.columns)}"
        self.columns[key] = column
        return key


def _thinned(tick: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps without repeats; where there are too many, the extremes of each stretch."""
    if len(value):
        keep = np.concatenate([[True], value[1:] != value[:-1]])
        keep[-1] = True
        tick, value = tick[keep], value[keep]
    if len(tick) <= _CURVE_POINTS:
        return tick, value
    stretch = -(-len(tick) // (_CURVE_POINTS // 2))
    kept: list[int] = []
    for begin in range(0, len(tick), stretch):
        part = value[begin : begin + stretch]
        kept += sorted({begin + int(part.argmin()), begin + int(part.argmax())})
    return tick[kept], value[kept]


def _answers(answers: Sequence[Answer]) -> str:
    if not answers:
        return ""
    cards = []
    for one in answers:
        who = f"<strong>{_text(one.who)}</strong>" if one.who else ""
        place = f" <small>{_text(one.place)}</small>" if one.place else ""
        text = f'<p class="who">{who}{place}</p>' if who else ""
        if one.measure:
            target = f'data-measure="{_text(one.measure)}" data-function="{_text(one.function)}"'
            text = f'<a class="follow" href="#panels" {target}>{text}</a>'
        cards.append(
            f"<article><h2>{_text(one.name)}</h2><p class=amount>{_text(one.value)}</p>{text}{_spark(one.curve)}"
            f'<p class="note">{_text(one.note)}</p></article>'
        )
    return f'<section class="answers" aria-label="Answers">{"".join(cards)}</section>'


def _spark(curve: Sequence[int]) -> str:
    """A small curve, from the left edge to the right, its highest point at the top."""
    top = max(curve, default=0)
    if not top or len(curve) < 2:
        return ""
    points = " ".join(
        f"{300 * k / (len(curve) - 1):.1f},{39 - 38 * value / top:.1f}" for k, value in enumerate(curve)
    )
    return (
        '<svg class="spark" viewBox="0 0 300 40" preserveAspectRatio="none" role="img" '
        f'aria-label="bytes live against time, at most {bytes_text(top)}">'
        f'<polygon points="0,40 {points} 300,40"></polygon></svg>'
    )


def _facts(facts: Sequence[Fact]) -> str:
    if not facts:
        return ""
    rows = (
        f"<div><dt>{_text(one.name)}</dt><dd>{_text(one.value)}</dd>"
        + (f'<dd class="note">{_text(one.note)}</dd>' if one.note else "")
        + "</div>"
        for one in facts
    )
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _table(table: Table) -> str:
    words = {*range(table.left), *table.words}
    head = "".join(
        f'<th scope="col"{" class=l" * (index in words)}>{_text(column)}</th>' if column else "<td></td>"
        for index, column in enumerate(table.columns)
    )
    rows = []
    for index, row in enumerate(table.rows[:_MOST_ROWS]):
        shades = table.shades[index] if table.shades else [0.0] * len(row)
        cells = "".join(
            _cell(text, column in words, column == 0, shades[column]) for column, text in enumerate(row)
        )
        rows.append(f"<tr{' class=first' * (index in table.breaks)}>{cells}</tr>")
    more = len(table.rows) - _MOST_ROWS
    note = f'<p class="note">and {more:,} more rows</p>' if more > 0 else ""
    return (
        f'<div class="scroll" {_reachable(table.question)}><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{note}"
    )


def _reachable(question: str) -> str:
    """Attributes of what may be wider than the page: who has no mouse can go there, hears what it is, and scrolls."""
    return f'tabindex="0" role="group" aria-label="{_text(question)}"'


_VERDICTS = {"faster": "good", "less": "good", "fewer": "good", "slower": "bad", "more": "bad"}


def _cell(text: str, is_left: bool, is_first: bool, shade: float) -> str:
    classes = ["l"] * is_left + ([_VERDICTS[text]] if text in _VERDICTS else [])
    if shade > 0:
        classes.append(f"s{min(max(round(9 * shade), 1), 9)}")
    named = f' class="{" ".join(classes)}"' if classes else ""
    kind = 'th scope="row"' if is_first and text else "td"
    return f"<{kind}{named}>{_text(shortened(text, _LONGEST_CELL))}</{kind[:2]}>"


def _text(text: str) -> str:
    """Of a stranger's file: no markup, and no control characters."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else " " for c in text))


def _json(data: object) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
