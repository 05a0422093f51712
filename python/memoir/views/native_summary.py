# SPDX-License-Identifier: Apache-2.0
"""What a trace of a native program says, as plain data: who held memory at one moment, what stayed, what was short, and
why the process held more than that. `memoir show` prints it; every key is in its --json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from memoir._core import EventKind, Family, FrameKind, Trace, Usage
from memoir.traces.own_code import Frame, frame_of
from memoir.traces.stacks import NONE, Stacks
from memoir.views.trace_objects import event_at, parts_of
from memoir.views.who import Who

FAMILIES = {Family.kTensor: "tensor", Family.kMalloc: "malloc", Family.kNew: "new", Family.kOther: "other"}

# What stays until a program ends and is nobody's fault, by the reason: how the library's name begins, and names of functions.
_EXCLUDED_FUNCTIONS = {
    "static initialisers": (
        "",
        ("_GLOBAL__sub_I", "__static_initialization_and_destruction", "call_init", "_dl_init"),
    ),
    "threads' stacks and thread-local memory": (
        "",
        ("allocate_stack", "_dl_allocate_tls", "__tls_get_addr", "pthread_create"),
    ),
    "buffers of standard streams": ("", ("_IO_file_doallocate", "_IO_wfile_doallocate")),
    "memory for exceptions when there is none": ("libstdc++", ("pool::pool",)),
}
_LOADER = "the dynamic loader"


def is_native(trace: Trace) -> bool:
    """Whether it has mallocs, or says something of its process: then this summary has something to say."""
    return bool(trace.modules or trace.mappings) or any(
        np.any(part["family"] != int(Family.kTensor)) for part in parts_of(trace.events)
    )


def summarize_native(
    trace: Trace,
    *,
    at: int | None = None,
    points: int = 200,
    top: int = 20,
    is_whole: bool = True,
    all_frames: bool = False,
) -> dict[str, Any]:
    """`at`: nanoseconds since the recording began, instead of the peak; `top`: rows of each table; `is_whole`: the trace
    has all that was recorded, without which nobody can say why more was resident; `all_frames`: nothing is folded."""
    usage = Usage(trace, at, points)
    return summary_of_usage(trace, usage, who_of(trace, usage, all_frames=all_frames), at, top, is_whole)


def who_of(trace: Trace, usage: Usage, *, all_frames: bool = False) -> Who:
    """Who asked; what usually stays is no leak."""

    def leaks(stacks: Stacks) -> np.ndarray:
        return np.array([not reason for reason in reasons_of(stacks)], bool)

    return Who(trace, usage, all_frames=all_frames, leaks=leaks)


def summary_of_usage(
    trace: Trace, usage: Usage, who: Who, at: int | None, top: int, is_whole: bool
) -> dict[str, Any]:
    """summarize_native() of what is computed already."""
    rates = usage.rates
    return {
        "who": who.answers(top),
        "families": _families(trace),
        "moment": _moment(trace, usage, at),
        "held_by": _held_by(trace, usage, who, top),
        "kept": _kept(trace, usage, who, top),
        "freed_at_end": who.total("at_end"),
        "temporary": {**usage.temporary, "stacks": _stacks(trace, usage.sites, "temporary", top)},
        "threads": _threads(trace, usage),
        "rates": {
            "step_ns": usage.rate_step,
            **{name: rates[name].tolist() for name in ("allocations", "frees", "bytes", "peak_bytes")},
        },
        "resident": _resident(trace, usage, top) if is_whole else None,
        "losses": {name: count for name, count in trace.losses.items() if count},
        "end": trace.end,
        "attached": trace.meta("begun") == "attach",
    }


def _families(trace: Trace) -> list[dict[str, Any]]:
    rows = {family: [0, 0] for family in FAMILIES}
    for part in parts_of(trace.events):
        made = part["kind"] == int(EventKind.kAllocate)
        for family, row in rows.items():
            sizes = part["size"][made & (part["family"] == int(family))]
            row[0] += len(sizes)
            row[1] += int(sizes.sum(dtype=np.uint64))
    return [
        {"family": FAMILIES[family], "count": count, "bytes": size}
        for family, (count, size) in rows.items()
        if count
    ]


def _moment(trace: Trace, usage: Usage, at: int | None) -> dict[str, Any]:
    event = usage.moment
    return {
        "is_peak": at is None,
        "event": event,
        "time_ns": at if at is not None else None if event is None else int(trace.events["time"][event]),
        **usage.held,
    }


def frame_texts(trace: Trace, site: int) -> list[str]:
    """The frames of a site as people read them, outermost first."""
    texts = []
    for row in trace.site_frames(site, cut=True):
        frame = frame_of(row)
        place = f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame.file else ""
        texts.append(f"{frame.function} ({place})" if place else frame.function)
    return texts


def _stacks(trace: Trace, sites: np.ndarray, quantity: str, top: int) -> list[dict[str, Any]]:
    """The sites with the most bytes of `quantity`: allocations, held, kept or temporary."""
    column = "bytes" if quantity == "allocations" else f"{quantity}_bytes"
    order = np.argsort(sites[column], kind="stable")[::-1][:top]
    rows = []
    for row in sites[order].tolist():
        values = dict(zip(sites.dtype.names or (), row, strict=True))
        if values[quantity]:
            rows.append(
                {
                    "site": f"{values['site']:016x}",
                    "count": values[quantity],
                    "bytes": values[column],
                    "stack": frame_texts(trace, values["site"]) or ["(unknown)"],
                }
            )
    return rows


def _held_by(trace: Trace, usage: Usage, who: Who, top: int) -> dict[str, list[dict[str, Any]]]:
    """Who held memory at the moment: by stack, by the function that called an allocator, by its library; and where it is
    known, by PyTorch's operator, by the innermost line of Python, by nn.Module."""
    stacks = who.stacks
    held = np.flatnonzero(usage.sites["held"] > 0)
    innermost = {kind: _innermost(stacks, kind) for kind in _NAMED_BY}

    def by(kind: FrameKind, name_of: Callable[[Frame], str]) -> list[dict[str, Any]]:
        return _grouped(usage, stacks, held, innermost[kind], name_of, top)

    def known(kind: FrameKind, name_of: Callable[[Frame], str]) -> list[dict[str, Any]]:
        return [row for row in by(kind, name_of) if row["name"] != "(unknown)"]

    return {
        "stacks": _stacks(trace, usage.sites[held], "held", top),
        "functions": _grouped(usage, stacks, held, None, lambda frame: frame.function, top),
        "libraries": by(FrameKind.kNative, lambda frame: frame.module),
        "operators": known(FrameKind.kOperator, lambda frame: frame.function),
        "lines": known(FrameKind.kPython, stacks.text),
        "modules": known(FrameKind.kModulePath, lambda frame: frame.function),
    }


_NAMED_BY = (FrameKind.kNative, FrameKind.kOperator, FrameKind.kPython, FrameKind.kModulePath)


def _innermost(stacks: Stacks, kind: FrameKind) -> list[int]:
    """Of each row the innermost frame of that kind on the way to it; NONE where there is none."""
    is_kind = [frame.kind == kind for frame in stacks.frames]
    found: list[int] = []
    for parent, frame in zip(stacks.parent.tolist(), stacks.frame.tolist(), strict=True):
        found.append(frame if is_kind[frame] else NONE if parent == NONE else found[parent])
    return found


def _grouped(
    usage: Usage,
    stacks: Stacks,
    which: np.ndarray,
    frame_of_row: list[int] | None,
    name_of: Callable[[Frame], str],
    top: int,
) -> list[dict[str, Any]]:
    """The sites `which` by the name of a frame: of `frame_of_row`, or else the innermost."""
    rows: dict[str, list[int]] = {}
    sites = usage.sites[which]
    for row, count, size in zip(
        stacks.row[which].tolist(), sites["held"].tolist(), sites["held_bytes"].tolist(), strict=True
    ):
        frame = NONE if row == NONE else int(stacks.frame[row]) if frame_of_row is None else frame_of_row[row]
        sums = rows.setdefault(
            "(unknown)" if frame == NONE else name_of(stacks.frames[frame]) or "(unknown)", [0, 0]
        )
        sums[0] += count
        sums[1] += size
    order = sorted(rows.items(), key=lambda row: (-row[1][1], row[0]))[:top]
    return [{"name": name, "count": count, "bytes": size} for name, (count, size) in order]


def reasons_of(stacks: Stacks) -> list[str]:
    """Of each stack why what it keeps is not a leak; '' when nothing says so."""
    of_frame = [_reason(frame) for frame in stacks.frames]
    of_row: list[str] = []
    for parent, frame in zip(stacks.parent.tolist(), stacks.frame.tolist(), strict=True):
        of_row.append(of_frame[frame] or ("" if parent == NONE else of_row[parent]))
    return ["" if row == NONE else of_row[row] for row in stacks.row.tolist()]


def _reason(frame: Frame) -> str:
    library = frame.module.rpartition("/")[2]
    if library.startswith(("ld-", "ld.so", "ld64.so")):
        return _LOADER
    for reason, (where, names) in _EXCLUDED_FUNCTIONS.items():
        if library.startswith(where) and frame.function.startswith(names):
            return reason
    return ""


def _kept(trace: Trace, usage: Usage, who: Who, top: int) -> dict[str, Any]:
    """What was never freed; without what usually stays, which is counted by its reason."""
    excluded: dict[str, list[int]] = {}
    for reason, count, size in zip(
        reasons_of(who.stacks), usage.sites["kept"].tolist(), usage.sites["kept_bytes"].tolist(), strict=True
    ):
        if reason and count:
            row = excluded.setdefault(reason, [0, 0])
            row[0] += count
            row[1] += size
    suspects = usage.sites[who.leaks]
    return {
        "count": int(suspects["kept"].sum()),
        "bytes": int(suspects["kept_bytes"].sum()),
        "program_ended": trace.end is not None and trace.meta("begun") != "attach",
        "stacks": _stacks(trace, suspects, "kept", top),
        "excluded": [{"why": why, "count": count, "bytes": size} for why, (count, size) in excluded.items()],
    }


def _threads(trace: Trace, usage: Usage) -> list[dict[str, Any]]:
    known = {row["thread"]: row for row in trace.threads}
    rows = []
    for values in usage.threads.tolist():
        row = dict(zip(usage.threads.dtype.names or (), values, strict=True))
        told = known.get(row["thread"], {})
        rows.append({**row, "name": told.get("name", ""), "system_id": told.get("system_id")})
    return rows


def _resident(trace: Trace, usage: Usage, top: int) -> dict[str, Any] | None:
    """Why the process held more than lived, when it held the most: as far as the recording tells."""
    if not trace.mappings:
        return None
    moment = max(trace.mappings, key=lambda row: (row["resident"], row["moment"] == "peak"))
    pages = usage.pages(moment["time_ns"])
    by_region: dict[str, int] = {}
    files: dict[str, int] = {}
    for group in moment["groups"]:
        by_region[group["region"]] = by_region.get(group["region"], 0) + group["resident"]
        if group["region"] == "file":
            files[group["name"]] = files.get(group["name"], 0) + group["resident"]
    private = by_region.pop("heap", 0) + by_region.pop("anonymous", 0)
    live, rounding, on_pages = pages["held"]["bytes"], pages["rounding_bytes"], pages["page_bytes"]
    parts = [
        {"what": "live, as asked", "bytes": live},
        {"what": "rounding and headers (as glibc does)", "bytes": rounding},
        {"what": "free space on pages that live objects pin", "bytes": max(on_pages - live - rounding, 0)},
        {"what": "free pages that the allocator keeps", "bytes": max(private - on_pages, 0)},
        {"what": "live, but never touched", "bytes": -max(on_pages - private, 0)},
    ]
    parts += [{"what": _REGIONS[region], "bytes": size} for region, size in by_region.items()]
    told = sum(part["bytes"] for part in parts)
    parts.append({"what": "not accounted for", "bytes": moment["resident"] - told})
    return {
        "time_ns": moment["time_ns"],
        "moment": moment["moment"],
        "resident_bytes": moment["resident"],
        "live_bytes": live,
        "parts": [part for part in parts if part["bytes"]],
        "mapped_by_program_bytes": _mapped(trace, moment["time_ns"]),
        "pinned_by": [
            {**row, "site": f"{row['site']:016x}", "stack": frame_texts(trace, row["site"]) or ["(unknown)"]}
            for row in pages["sites"][:top]
            if row["free_bytes"]
        ],
        "files": [
            {"name": name, "bytes": size}
            for name, size in sorted(files.items(), key=lambda row: -row[1])[:top]
            if size
        ],
        "counters": {
            row["name"]: row["value"] for row in trace.counters if row["time_ns"] <= moment["time_ns"]
        },
    }


_REGIONS = {
    "thread stack": "stacks of threads",
    "main stack": "the main stack",
    "file": "libraries and files",
    "shared": "shared memory",
    "recorder": "the recorder itself",
    "other": "other mappings",
}


def _mapped(trace: Trace, time: int) -> int:
    """Bytes that the program itself had mapped at that time, by mmap or brk."""
    until = trace.events[: event_at(trace.events, time + 1)]
    mapped = 0
    for part in parts_of(until):
        for kind, sign in ((EventKind.kSegmentMap, 1), (EventKind.kSegmentUnmap, -1)):
            mapped += sign * int(part["size"][part["kind"] == int(kind)].sum(dtype=np.uint64))
    return mapped
