# SPDX-License-Identifier: Apache-2.0
"""The answer that `memoir show` gives of a program: three sentences, then tables that fit the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.traces.code_names import shortened_name
from memoir.views import text_table
from memoir.views.text_table import Table
from memoir.views.who import culprit

_ROWS = 5  # of each table
_MOST_LINES = 40  # of all tables together
_LONGEST_NAME = 60  # in a sentence
_LONGEST_PLACE = 24
_NARROWEST = 40
_JOINED = "\x1f"  # between a number and its unit
_LEAST_AT_END = 64 << 10  # bytes
_LEAST = 0.001  # share of what a table shows; the first row stands in any case


def sentences(summary: dict[str, Any]) -> list[str]:
    """Never freed, the peak, churn: how much, and by whom. `summary`: of a trace, with its "native" part."""
    native = summary["native"]
    who = native["who"]
    return [_kept(native, who), _peak(native, who["held"]), _churn(summary, native, who["churn"])]


def tables(native: dict[str, Any], width: int, *, rows: int = _ROWS, most: int = _MOST_LINES) -> list[str]:
    """Lines of at most `width` characters, at most `most` of them: tables that would not fit are left out from the end."""
    who, moment = native["who"], native["moment"]
    when = "" if moment["time_ns"] is None else f", after {duration_text(moment['time_ns'])}"
    what = f"live at the peak{when}" if moment["is_peak"] else f"live{when}"
    found = [
        _of_bytes(what, who["held"][:rows], width),
        _of_bytes("never freed", who["kept"][:rows], width),
        _of_counts("allocated and freed again", who["churn"][:rows], width),
        _of_growth(
            "growth: most live in the last third of the time, over the first", who["growth"][:rows], width
        ),
        _of_resident(native["resident"], width, rows) if native["resident"] else [],
    ]
    lines: list[str] = []
    for table in filter(None, found):
        if len(lines) + len(table) + 1 <= most:
            lines += ["", *table]
    return lines


def folded(text: str, width: int) -> list[str]:
    """A sentence as lines, the later ones set in."""
    lines = textwrap.wrap(
        re.sub(r"(?<=\d) (?=[%a-zA-Z]{1,3}\b)", _JOINED, text),
        max(width, _NARROWEST),
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    return [line.replace(_JOINED, " ") for line in lines]


def name_of(row: dict[str, Any], most: int = _LONGEST_NAME) -> str:
    """The function of a row, and what it called of a library."""
    name = shortened_name(printable(row["function"]), most)
    if row["through"]:
        through = shortened_name(printable(row["through"]), max(most - len(name) - 3, 16))
        if len(name) + 3 + len(through) <= most:
            name += f" > {through}"
    return name


def by_whom(rows: list[dict[str, Any]], verb: str) -> str:
    row = culprit(rows)
    if row is None:
        return ""
    return f"; {_share(row['share'])} {verb} {_named(row)}"


def _named(row: dict[str, Any]) -> str:
    """The function of a row, where it is, and who called it."""
    place = f" ({printable(row['place'])})" if row["place"] else ""
    callers = " < ".join(shortened_name(printable(name), _LONGEST_NAME) for name in row["callers"])
    return f"{name_of(row)}{place}" + (f", called by {callers}" if callers else "")


def freed_at_end(native: dict[str, Any]) -> str:
    """What a program gives back only when it ends is what a leak is in a language that cleans up; "" when that is little."""
    rows, kept = native["who"]["at_end"], native["kept"]
    size = native["freed_at_end"]["bytes"]
    row = culprit(rows)
    if row is None or size < max(kept["bytes"] // 10, _LEAST_AT_END):
        return ""
    return (
        f"Freed only at its end: {bytes_text(size)}, longest held {bytes_text(row['bytes'])} by {_named(row)}"
    )


def _kept(native: dict[str, Any], who: dict[str, Any]) -> str:
    kept = native["kept"]
    what = "Never freed" if kept["program_ended"] else "Not freed when the recording ended"
    if not kept["count"]:
        text = f"{what}: nothing" + " but what always stays" * bool(kept["excluded"])
    else:
        text = f"{what}: {bytes_text(kept['bytes'])} in {_objects(kept['count'])}{by_whom(who['kept'], 'asked for by')}"
    later = freed_at_end(native)
    return f"{text}. {later}." if later else f"{text}."


def _peak(native: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    moment = native["moment"]
    what = "Peak" if moment["is_peak"] else "At that moment"
    if moment["time_ns"] is None or not moment["count"]:
        return f"{what}: nothing is live."
    return (
        f"{what}: {bytes_text(moment['bytes'])} live after {duration_text(moment['time_ns'])} in "
        f"{_objects(moment['count'])}{by_whom(rows, 'held by')}."
    )


def _churn(summary: dict[str, Any], native: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    freed, at_once = summary["frees"]["count"], native["temporary"]["count"]
    if not freed:
        return "Churn: nothing was freed again."
    seconds = summary["duration_ns"] / 1e9
    rate = f" ({freed / seconds:,.0f} a second)" if seconds > 0 else ""
    return f"Churn: {_objects(freed)} freed again{rate}, {at_once:,} of them at once{by_whom(rows, 'asked for by')}."


def _objects(count: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _of_bytes(title: str, rows: list[dict[str, Any]], width: int) -> list[str]:
    cells = [(bytes_text(row["bytes"]), _share(row["share"]), f"{row['count']:,}") for row in rows]
    return _with_names(title, ("bytes", "share", "objects"), cells, rows, width)


def _of_counts(title: str, rows: list[dict[str, Any]], width: int) -> list[str]:
    cells = [(f"{row['count']:,}", _share(row["share"]), bytes_text(row["bytes"])) for row in rows]
    return _with_names(title, ("objects", "share", "bytes"), cells, rows, width)


def _of_growth(title: str, rows: list[dict[str, Any]], width: int) -> list[str]:
    cells = [
        (f"+{bytes_text(row['bytes'])}", _share(row["share"]), bytes_text(row["last_bytes"])) for row in rows
    ]
    return _with_names(title, ("bytes", "share", "to"), cells, rows, width)


def _with_names(
    title: str,
    heads: tuple[str, ...],
    cells: Sequence[tuple[str, ...]],
    rows: list[dict[str, Any]],
    width: int,
) -> list[str]:
    """Numbers, then function and place: names are shortened to what is left of a line, and never folded."""
    told = [at for at, row in enumerate(rows) if at == 0 or row["share"] >= _LEAST]
    rows, cells = [rows[at] for at in told], [cells[at] for at in told]
    if not rows:
        return []
    numbers = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    places = [_short_place(printable(row["place"])) for row in rows]
    left = max(width - sum(numbers) - 2 * len(numbers), _NARROWEST)
    longest = max(left - max(map(len, [*places, "line"])) - 2, 16)
    names = [name_of(row, longest) for row in rows]
    made = Table(
        title,
        (*heads, "function", "line"),
        tuple((*cell, name, place) for cell, name, place in zip(cells, names, places, strict=True)),
    )
    return text_table.lines(made, width)


def _short_place(place: str) -> str:
    while len(place) > _LONGEST_PLACE and "/" in place:
        place = place.split("/", 1)[1]
    return place if len(place) <= _LONGEST_PLACE else f"...{place[-_LONGEST_PLACE + 3 :]}"


def _of_resident(resident: dict[str, Any], width: int, rows: int) -> list[str]:
    parts = sorted(resident["parts"], key=lambda part: -part["bytes"])[:rows]
    title = (
        f"why {bytes_text(resident['resident_bytes'])} were resident after {duration_text(resident['time_ns'])}, "
        f"with {bytes_text(resident['live_bytes'])} live"
    )
    whole = resident["resident_bytes"]
    cells = tuple(
        (bytes_text(part["bytes"]), _share(part["bytes"] / whole) if whole else "", part["what"])
        for part in parts
    )
    return text_table.lines(Table(title, ("bytes", "share", "what"), cells), width)
