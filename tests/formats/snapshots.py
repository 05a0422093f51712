# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots made by hand, as torch writes them, and traces of them as plain rows."""

from __future__ import annotations

import pickle

from memoir._core import EventKind, Trace, import_snapshot_bytes

BASE = 0x7F00_0000_0000
MIB = 2**20
T0 = 1_700_000_000_000_000  # microseconds


def frame(name: str, filename: str = "??", line: int = 0) -> dict:
    return {"name": name, "filename": filename, "line": line}


MAIN = frame("<module>", "/srv/train.py", 9)
LINEAR = frame("forward", "/srv/model.py", 54)
RELU = frame("forward", "C:\\model files\\act.py", 7)


def entry(action: str, addr: int, size: int, at: int, *, frames=(), stream: int = 0, **more) -> dict:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": stream,
        "time_us": T0 + at,
        "frames": list(frames),
        **more,
    }


def oom(size: int, device_free: int, at: int, **more) -> dict:
    row = entry("oom", 0, size, at, **more)
    del row["addr"]
    return {**row, "device_free": device_free}


def block(
    address: int, size: int, state: str = "active_allocated", requested: int | None = None, frames=()
) -> dict:
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": list(frames),
    }


def segment(
    address: int, size: int, blocks=(), *, device: int = 0, stream: int = 0, pool=(0, 0), expandable=False
) -> dict:
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "frames": [],
        "blocks": list(blocks),
    }


def snapshot(*device_traces: list[dict], segments=(), annotations=(), settings=None) -> dict:
    return {
        "segments": list(segments),
        "device_traces": list(device_traces),
        "allocator_settings": {"max_split_size": -1, "expandable_segments": False}
        if settings is None
        else settings,
        "external_annotations": list(annotations),
    }


def annotation(stage: str, name: str, at: int) -> dict:
    return {"stage": stage, "name": name, "device": 0, "time_us": T0 + at}


def imported(content, protocol: int = 4, **options) -> Trace:
    data = content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol)
    return Trace.from_bytes(import_snapshot_bytes(data, "x.pickle", **options))


def rows(trace: Trace, *, sites: bool = False) -> list[tuple]:
    """(time in us, kind, ...) of every event but sites and meta; time 0 is before the history."""
    result = []
    for event in trace.events:
        kind = EventKind(int(event["kind"]))
        if kind in (EventKind.kSite, EventKind.kMeta):
            continue
        number, size = int(event["object"]), int(event["size"])
        where = (trace.site_chain(int(event["site"])),) if sites else ()
        device, stream = int(event["device"]), int(event["stream"])
        assert event["time"] % 1000 == 0
        result.append((int(event["time"]) // 1000, kind.name[1:], number, size, device, stream, *where))
    return result
