# SPDX-License-Identifier: Apache-2.0
"""The page of a trace: where every object lay, who allocates, how long objects live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Error, EventKind, Trace, Usage
from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.native_summary import is_native, who_of
from memoir.views.page.addresses import Segments, largest_hole
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet, objects_of, recorded_addresses
from memoir.views.page.panels import (
    Answer,
    Curve,
    Fact,
    Flame,
    HeapMaps,
    Lifetimes,
    Map,
    Mark,
    StackFlame,
    Table,
)
from memoir.views.page.placed import placed_map
from memoir.views.page.sites import short_frame
from memoir.views.page.stack_set import MEASURES, StackSet
from memoir.views.who import Who, culprit
from memoir.views.who_text import freed_at_end, name_of

_MOST_DEVICES = 4


def trace_page(
    name: str, trace: Trace, summary: dict[str, Any], *, growing: bool = False, who: Who | None = None
) -> Page:
    """`summary`: of summarize(trace), for a program with its "native" part. `growing`: its program still records. `who`: of
    the trace, where the caller has it."""
    native = summary.get("native")
    page = Page(
        name,
        subtitle=_subtitle(trace, summary),
        facts=_facts(trace, summary) if native is None else (),
        answers=_answers(native, summary["frees"]["count"]) if native is not None else (),
        notes=_notes(summary, growing),
    )
    if not summary["allocations"]["count"]:
        return page.add(Table("What was recorded?", ("key", "value"), list(summary["meta"].items()), left=2))
    if native is not None:
        page.add(_who(who or who_of(trace, Usage(trace)), native))
    devices = _core.devices_of(trace)
    for device in devices[:_MOST_DEVICES]:
        objects = objects_of(trace, device if len(devices) > 1 else None)
        if not len(objects):
            continue
        where = f" on device {device}" if len(devices) > 1 else ""
        page.add(device_map(trace, objects, device, where))
        if "site" in objects.columns and native is None:
            page.add(Flame(f"Who holds the memory{where}?", objects, _flame_note(objects)))
        page.add(
            Lifetimes(
                f"How long do objects of each size live{where}?",
                objects,
                "Small objects that live long are what keeps pages and segments from being given back.",
            )
        )
        page.add(_sites_at_peak(objects, where))
    page.add(_passes(summary), _devices(summary))
    meta = [(printable(key), printable(value)) for key, value in summary["meta"].items()]
    page.add(Table("What was recorded, and how?", ("key", "value"), meta, left=2) if meta else None)
    return page


def _answers(native: dict[str, Any], freed: int) -> list[Answer]:
    """Never freed, the peak, churn: how much, and by whom. `freed`: objects."""
    who, kept, moment = native["who"], native["kept"], native["moment"]
    found = []
    amounts = {
        "kept": (
            "Never freed" if kept["program_ended"] else "Not freed at the end",
            bytes_text(kept["bytes"]),
        ),
        "held": ("Peak" if moment["is_peak"] else "At that moment", bytes_text(moment["bytes"])),
        "churn": ("Churn", f"{_number(freed, 'object')} freed again"),
    }
    for measure, (name, value) in amounts.items():
        row = culprit(who[measure])
        if row is None:
            found.append(Answer(name, value if measure == "churn" else "nothing"))
            continue
        note = f"{100 * row['share']:.1f} %, {_number(row['count'], 'object')}"
        if row["callers"]:
            note += f"; called by {' < '.join(row['callers'])}"
        if measure == "kept" and (later := freed_at_end(native)):
            note = f"{later}. {note}" if row["share"] < 0.5 or not row["own"] else f"{note}. {later}"
        place = printable(row["place"])
        found.append(
            Answer(
                name,
                value,
                name_of(row),
                place,
                printable(note),
                row["curve"],
                measure,
                printable(row["function"]),
            )
        )
    return found


def _who(who: Who, native: dict[str, Any]) -> StackFlame:
    measures = [name for name, _, _ in MEASURES if name in ("held", "allocated") or who.weights()[name].any()]
    stacks = StackSet.of(who)
    left = f" The {stacks.left_out:,} smallest stacks are one." if stacks.left_out else ""
    note = f"Click a frame to make it the whole width, the grey ones above to go back.{left}"
    return StackFlame("Who asked for it?", stacks, measures, note)


def device_map(trace: Trace, objects: ObjectSet, device: int, where: str = "") -> HeapMaps:
    """The heap map of one device: by the recorded addresses, or as memoir's plain heap would lay the objects out."""
    known, addresses = recorded_addresses(trace, objects)
    native = is_native(trace)  # what a program maps is not all that its allocator holds
    segments = Segments() if native else Segments.of(trace.events, device)
    if known.any():
        full = np.zeros(len(objects), np.uint64)
        full[known] = addresses
        recorded = Map(
            "",
            full,
            placed=known,
            segments=segments,
            curves=_resident(trace) if native else _held(trace, device),
            marks=_marks(trace, device),
        )
        return HeapMaps(
            f"Where did every object lie{where}?",
            objects,
            [recorded],
            "Each rectangle is an object: as high as its bytes, as long as it lived. "
            + ("Grey is held and free. " if len(segments) else "")
            + "Gaps between used addresses are left out, and dotted.",
        )
    try:
        plain = placed_map(trace, device, "span", objects, name="", held="held by that heap")
    except Error as error:
        plain = Map(
            "", np.zeros(len(objects), np.uint64), placed=np.zeros(len(objects), bool), note=str(error)
        )
    return HeapMaps(
        f"Where would every object lie{where}?",
        objects,
        [plain],
        "The recording has no addresses: memoir's plain heap lays the objects out, each as high as its bytes and as long "
        "as it lived.",
    )


def _subtitle(trace: Trace, summary: dict[str, Any]) -> str:
    count = summary["allocations"]["count"]
    parts = [f"{_number(count, 'allocation')} in {duration_text(summary['duration_ns'])}"]
    if trace.meta("model"):
        parts.insert(0, trace.meta("model"))
    if summary["passes"]:
        parts.append(_number(len(summary["passes"]), "pass", "es"))
    parts.append(_number(summary["threads"], "thread"))
    return " · ".join(parts)


def _facts(trace: Trace, summary: dict[str, Any]) -> list[Fact]:
    peak = summary["peak"]
    facts = []
    if peak["event"] is not None:
        when = f"{_number(peak['objects'], 'object')}, at event {peak['event']:,}"
        facts.append(Fact("Most bytes live", bytes_text(peak["bytes"]), when))
    for row in summary["devices"][:_MOST_DEVICES]:
        facts += _held_facts(trace, row, len(summary["devices"]) > 1)
    kept = summary["never_freed"]
    facts.append(Fact("Never freed", bytes_text(kept["bytes"]), _number(kept["count"], "object")))
    return facts


def _number(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}{ending * (count != 1)}"


def _held_facts(trace: Trace, row: dict[str, Any], several: bool) -> list[Fact]:
    """Held over live when most was held, and the largest request that still fitted then: an amount and what it is
    of, since a share alone says nothing when little of it is free."""
    if row["peak_reserved_bytes"] is None or not row["peak_reserved_bytes"]:
        return []
    device = row["device"]
    objects = objects_of(trace, device)
    tick = _peak_held_tick(trace, device)
    live = objects.at(tick)
    live_bytes = int(objects.size[live].sum())
    held = row["peak_reserved_bytes"]
    where = f", device {device}" if several else ""
    ratio = (
        f"{held / live_bytes:.3f} x the {bytes_text(live_bytes)} live" if live_bytes else "nothing is live"
    )
    facts = [Fact(f"Most bytes held{where}", bytes_text(held), f"{ratio}, at event {tick:,}")]
    known, addresses = recorded_addresses(trace, objects)
    if known.any():
        segments = Segments.of(trace.events, device)
        then = segments.at(tick)
        begin = np.zeros(len(objects), np.uint64)
        begin[known] = addresses
        alive = live & known
        largest, free = largest_hole(then, begin[alive].astype(np.int64), objects.size[alive])
        note = f"of {bytes_text(free)} free in what was held, at event {tick:,}"
        facts.append(Fact(f"Largest request that still fits{where}", bytes_text(largest), note))
    return facts


def _reserved(trace: Trace, device: int) -> tuple[np.ndarray, np.ndarray]:
    events = trace.events
    kinds = events["kind"]
    mine = events["device"] == device
    gives = mine & ((kinds == EventKind.kSegmentAllocate) | (kinds == EventKind.kSegmentMap))
    takes = mine & ((kinds == EventKind.kSegmentFree) | (kinds == EventKind.kSegmentUnmap))
    ticks = np.flatnonzero(gives | takes)
    change = np.where(gives[ticks], 1, -1) * events["size"][ticks].astype(np.int64)
    return ticks, np.cumsum(change)


def _peak_held_tick(trace: Trace, device: int) -> int:
    """Of the moments when most was held, the one with the most bytes live."""
    ticks, held = _reserved(trace, device)
    events = trace.events
    by_event = np.zeros(len(events) + 1, np.int64)
    by_event[ticks] = np.diff(held, prepend=0)
    level = np.cumsum(by_event)
    objects = objects_of(trace, device)
    change = np.zeros(len(events) + 1, np.int64)
    np.add.at(change, objects.born, objects.size)
    np.add.at(change, objects.died, -objects.size)
    live = np.cumsum(change)[:-1]
    level = level[:-1]
    at = np.flatnonzero(level == level.max())
    return int(at[live[at].argmax()])


def _held(trace: Trace, device: int) -> Sequence[Curve]:
    ticks, held = _reserved(trace, device)
    return [Curve("held", "held", ticks, held)] if len(ticks) else []


def _resident(trace: Trace) -> Sequence[Curve]:
    """Of a native recording: what its mappings had in memory, at the moments when that was looked up."""
    looks = getattr(trace, "mappings", [])
    if not looks:
        return []
    ticks = np.searchsorted(trace.events["time"], [look["time_ns"] for look in looks])
    values = [sum(group["resident"] for group in look["groups"]) for look in looks]
    return [Curve("resident", "resident", ticks, np.array(values, np.int64))]


def _marks(trace: Trace, device: int) -> list[Mark]:
    events = trace.events
    mine = events["device"] == device
    marks = [
        Mark(at, "failed", f"a request of {bytes_text(int(events['size'][at]))} failed")
        for at in np.flatnonzero(mine & (events["kind"] == EventKind.kOutOfMemory)).tolist()
    ]
    calls = np.flatnonzero(
        mine & (events["kind"] >= EventKind.kSegmentAllocate) & (events["kind"] <= EventKind.kSegmentUnmap)
    )
    calls = calls[events["time"][calls] > 0][:1000]
    names = {7: "segment got", 8: "segment given back", 9: "memory mapped", 10: "memory unmapped"}
    return marks + [
        Mark(at, "call", f"{names[int(events['kind'][at])]}: {bytes_text(int(events['size'][at]))}")
        for at in calls.tolist()
    ]


def _notes(summary: dict[str, Any], growing: bool) -> list[str]:
    notes = []
    if growing and not summary["complete"]:
        notes.append("Live: the program still records, and this page follows once a second.")
    elif not summary["complete"]:
        notes.append("The trace is incomplete: the recording did not end by itself, or the file was cut.")
    if summary["dropped"]:
        notes.append(f"{summary['dropped']:,} records were dropped while recording.")
    return notes


def _flame_note(objects: ObjectSet) -> str:
    deep = any(parent >= 0 for parent in objects.sites.parent)
    return "Click a frame to make it the whole width, the grey ones above to go back." if deep else ""


def _sites_at_peak(objects: ObjectSet, where: str) -> Table | None:
    peak, tick = objects.peak()
    live = objects.at(tick)
    if "site" not in objects.columns or not live.any():
        return None
    sites, which, counts = np.unique(objects.columns["site"][live], return_inverse=True, return_counts=True)
    total = np.zeros(len(sites), np.int64)
    np.add.at(total, which, objects.size[live])
    order = np.argsort(-total, kind="stable")[:100]
    rows = [
        (
            " < ".join(map(short_frame, objects.sites.chain(int(sites[k]))[::-1])),
            bytes_text(int(total[k])),
            f"{100 * total[k] / peak:.1f} %",
            f"{int(counts[k]):,}",
        )
        for k in order.tolist()
    ]
    return Table(f"What is live at the peak{where}, by site?", ("site", "bytes", "share", "objects"), rows)


def _passes(summary: dict[str, Any]) -> Table | None:
    rows = [
        (
            f"{row['pass']:,}",
            duration_text(row["duration_ns"]) if row["ended"] else "did not end",
            f"{row['allocations']['count']:,}",
            bytes_text(row["allocations"]["bytes"]),
            bytes_text(row["peak_bytes"]),
            f"{row['escaping']['count']:,}" if row["escaping"] else "?",
        )
        for row in summary["passes"]
    ]
    heads = ("pass", "time", "allocations", "bytes", "peak", "outlive it")
    return Table("What did each pass take?", heads, rows) if rows else None


def _devices(summary: dict[str, Any]) -> Table | None:
    rows = []
    for row in summary["devices"]:
        calls = row["segments"]
        rows.append(
            (
                f"device {row['device']}",
                f"{row['allocations']['count']:,}",
                bytes_text(row["peak_live_bytes"]),
                "" if row["peak_reserved_bytes"] is None else bytes_text(row["peak_reserved_bytes"]),
                f"{calls['segment_allocate']:,}",
                f"{calls['segment_free']:,}",
                f"{len(row['out_of_memory']):,}",
            )
        )
    heads = ("device", "allocations", "peak live", "peak held", "segments got", "given back", "out of memory")
    return Table("What was each device asked for?", heads, rows) if rows else None
