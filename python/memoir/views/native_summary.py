# SPDX-License-Identifier: Apache-2.0
"""What a trace of a native program says, as plain data: who held memory at one moment, what stayed, what was short, and
why the process held more than that. `memoir show` prints it; every key is in its --json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from memoir._core import EventKind, Family, FrameKind, Trace, Usage
from memoir.views.trace_objects import event_at, parts_of

FAMILIES = {Family.kTensor: "tensor", Family.kMalloc: "malloc", Family.kNew: "new", Family.kOther: "other"}

# What stays until a program ends and is nobody's fault: the names of frames, by the reason.
_EXCLUDED_FUNCTIONS = {
    "static initialisers": (
        "_GLOBAL__sub_I",
        "__static_initialization_and_destruction",
        "call_init",
        "_dl_init",
    ),
    "threads' stacks and thread-local memory": (
        "allocate_stack",
        "_dl_allocate_tls",
        "__tls_get_addr",
        "pthread_create",
    ),
    "buffers of standard streams": ("_IO_file_doallocate", "_IO_wfile_doallocate"),
    "memory for exceptions when there is none": ("(anonymous namespace)::pool::pool",),
}
_LOADER = "the dynamic loader"


def is_native(trace: Trace) -> bool:
    """Whether it has mallocs, or says something of its process: then this summary has something to say."""
    return bool(trace.modules or trace.mappings) or any(
        np.any(part["family"] != int(Family.kTensor)) for part in parts_of(trace.events)
    )


def summarize_native(
    trace: Trace, *, at: int | None = None, points: int = 200, top: int = 20, is_whole: bool = True
) -> dict[str, Any]:
    """`at`: nanoseconds since the recording began, instead of the peak; `top`: rows of each table; `is_whole`: the trace
    has all that was recorded, without which nobody can say why more was resident."""
    usage = Usage(trace, at, points)
    rates = usage.rates
    return {
        "families": _families(trace),
        "moment": _moment(trace, usage, at),
        "held_by": _held_by(trace, usage, top),
        "kept": _kept(trace, usage, top),
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
    return list(map(_text, trace.site_frames(site)))


def own_text(trace: Trace, site: int) -> str:
    """The innermost of them alone; "" for a site that the trace does not define."""
    frames = trace.own_frames(site)
    return _text(frames[-1]) if frames else ""


def _text(frame: dict[str, Any]) -> str:
    name: str = frame["function"]
    if frame["kind"] == FrameKind.kNative:
        library = frame["module"].rpartition("/")[2]
        name = name or (f"{library}+{frame['offset']:#x}" if library else f"{frame['offset']:#x}")
    if frame["file"]:
        name += f" ({frame['file'].rpartition('/')[2]}:{frame['line']})"
    return name


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


def _held_by(trace: Trace, usage: Usage, top: int) -> dict[str, list[dict[str, Any]]]:
    """Who held memory at the moment: by stack, by the function that asked, by its library; and where it is known, by
    PyTorch's operator, by the innermost line of Python, by nn.Module."""
    sites = usage.sites[usage.sites["held"] > 0]

    def library(site: int) -> str:
        return trace.site_module(trace.innermost(site, FrameKind.kNative))

    def line(site: int) -> str:
        python = trace.innermost(site, FrameKind.kPython)
        return own_text(trace, python) if python else ""

    def by(kind: FrameKind) -> Callable[[int], str]:
        return lambda site: trace.site_name(trace.innermost(site, kind))

    def known(name_of: Callable[[int], str]) -> list[dict[str, Any]]:
        return [row for row in _grouped(sites, name_of, top) if row["name"] != "(unknown)"]

    return {
        "stacks": _stacks(trace, sites, "held", top),
        "functions": _grouped(sites, trace.site_name, top),
        "libraries": _grouped(sites, library, top),
        "operators": known(by(FrameKind.kOperator)),
        "lines": known(line),
        "modules": known(by(FrameKind.kModulePath)),
    }


def _grouped(sites: np.ndarray, name_of: Callable[[int], str], top: int) -> list[dict[str, Any]]:
    rows: dict[str, list[int]] = {}
    for site, count, size in zip(
        sites["site"].tolist(), sites["held"].tolist(), sites["held_bytes"].tolist(), strict=True
    ):
        row = rows.setdefault(name_of(site) or "(unknown)", [0, 0])
        row[0] += count
        row[1] += size
    order = sorted(rows.items(), key=lambda row: (-row[1][1], row[0]))[:top]
    return [{"name": name, "count": count, "bytes": size} for name, (count, size) in order]


def excluded_because(trace: Trace, site: int, known: dict[int, str]) -> str:
    """Why what a site keeps is not a leak; '' when nothing says so. `known` remembers the sites that were asked for."""
    chain = []
    reason = ""
    while site and site not in known:
        chain.append(site)
        reason = _reason(trace.site_name(site), trace.site_module(site))
        if reason:
            break
        site = trace.site_parent(site) or 0
    else:
        reason = known.get(site, "")
    for each in chain:
        known[each] = reason
    return reason


def _reason(function: str, module: str) -> str:
    if module.rpartition("/")[2].startswith(("ld-", "ld.so", "ld64.so")):
        return _LOADER
    for reason, names in _EXCLUDED_FUNCTIONS.items():
        if function.startswith(names):
            return reason
    return ""


def _kept(trace: Trace, usage: Usage, top: int) -> dict[str, Any]:
    """What was never freed; without what usually stays, which is counted by its reason."""
    sites = usage.sites[usage.sites["kept"] > 0]
    known: dict[int, str] = {}
    reasons = [excluded_because(trace, site, known) for site in sites["site"].tolist()]
    excluded: dict[str, list[int]] = {}
    for reason, count, size in zip(
        reasons, sites["kept"].tolist(), sites["kept_bytes"].tolist(), strict=True
    ):
        if reason:
            row = excluded.setdefault(reason, [0, 0])
            row[0] += count
            row[1] += size
    suspects = sites[np.array([not reason for reason in reasons], bool)]
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
