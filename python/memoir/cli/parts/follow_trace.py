# SPDX-License-Identifier: Apache-2.0
"""`memoir show --follow x.trace`: a line a second while the program is recorded."""

from __future__ import annotations

import json as json_format
import time

import click
import numpy as np

from memoir._core import EventKind, Only, Trace
from memoir.base.quantities import bytes_text, duration_text
from memoir.base.work_budget import lift


class LiveBytes:
    """What lives in a trace that grows, event after event."""

    def __init__(self) -> None:
        self.seen = 0
        self.sizes: dict[int, int] = {}
        self.bytes = self.peak = 0

    def add(self, events: np.ndarray) -> int:
        """Counts the events that are new; how many of them allocate."""
        new = events[self.seen :]
        self.seen = len(events)
        allocations = 0
        for kind, name, size in zip(
            new["kind"].tolist(), new["object"].tolist(), new["size"].tolist(), strict=True
        ):
            if kind == EventKind.kAllocate:
                self.sizes[name] = size
                self.bytes += size
                self.peak = max(self.peak, self.bytes)
                allocations += 1
            elif kind == EventKind.kFree:
                self.bytes -= self.sizes.pop(name)
        return allocations


def follow_trace(path: str, *, only: Only, json: bool, seconds: float = 1.0) -> None:
    """Until the recording ends, or Ctrl-C."""
    lift()
    trace = Trace.follow(path, only)
    live = LiveBytes()
    try:
        while True:
            allocations = live.add(trace.events)
            _print(trace, live, allocations, json)
            if trace.complete:
                return
            time.sleep(seconds)
            trace.poll()
    except KeyboardInterrupt:
        return


def _print(trace: Trace, live: LiveBytes, allocations: int, json: bool) -> None:
    at = int(trace.events["time"][-1]) if live.seen else 0
    if json:
        row = {
            "time_ns": at,
            "events": live.seen,
            "allocations": allocations,
            "live_bytes": live.bytes,
            "live_objects": len(live.sizes),
            "peak_bytes": live.peak,
            "complete": trace.complete,
        }
        click.echo(json_format.dumps(row))
        return
    click.echo(
        f"{duration_text(at):>8}  {bytes_text(live.bytes):>10} live in {len(live.sizes):,} objects, peak "
        f"{bytes_text(live.peak)}; {allocations:,} allocations since the line before"
        f"{'; the recording has ended' if trace.complete else ''}"
    )
