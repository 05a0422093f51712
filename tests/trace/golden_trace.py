# SPDX-License-Identifier: Apache-2.0
"""The golden files of the trace format. To rewrite what `memoir show` should say of them:

    .venv/bin/python tests/trace/golden_trace.py

`small.v1.trace` and `small.v2.trace` themselves stay as they are for ever, since they stand for the files that
people have; a new version of the format gets a new file: raise VERSION below, and it is recorded when it is
missing.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from memoir._core import EventKind, Trace, TraceWriter, child_site
from memoir.cli._show_trace import show_trace

VERSION = 2
DATA = Path(__file__).parents[1] / "data"
SMALL_1 = "small.v1.trace"
SMALL = f"small.v{VERSION}.trace"


def write_small(path: Path | None) -> TraceWriter:
    """Every kind of record, two threads, what escapes, a text over several records; and, on devices 1 and 2,
    two streams, segments, and a request that fails."""
    writer = TraceWriter(path)
    writer.meta("model", "two layers")
    writer.meta("note", "a text that needs several records: " + "0123456789" * 10)
    writer.meta("graph_allocations", "2")
    writer.meta("graph_bytes", "6144")
    linear = child_site(0, "aten::linear")
    empty = child_site(linear, "aten::empty")
    relu = child_site(0, "aten::relu \u2265 0\n")
    writer.define_site(linear, 0, "aten::linear")
    writer.define_site(empty, linear, "aten::empty")
    objects = iter(range(1, 100))
    for number in (1, 2):
        writer.pass_begin(number)
        first, second, scratch, kept = (next(objects) for _ in range(4))
        writer.allocate(first, empty, 4096)
        writer.allocate(scratch, linear, 100, 1, thread=1)
        if number == 1:
            writer.define_site(relu, 0, "aten::relu \u2265 0\n")
        writer.allocate(second, relu, 2048)
        writer.free(first)
        writer.allocate(kept, relu, 1_000_000, 4096)
        writer.free(scratch)
        writer.free(second, thread=1)
        writer.pass_end(number)
        if number == 1:
            writer.free(kept)
    writer.allocate(next(objects), 12345, 0)
    on_device(writer, empty, objects)
    writer.close()
    return writer


def on_device(writer: TraceWriter, site: int, objects: Iterator[int]) -> None:
    base = 0x7F00_0000_0000
    writer.segment(EventKind.kSegmentAllocate, base, 2 << 20, device=1, stream=3, site=site)
    first, second, third = (next(objects) for _ in range(3))
    writer.allocate(first, site, 700_000, 512, device=1, stream=3)
    writer.address(first, base, device=1, stream=3)
    writer.allocate(second, site, 900_000, 512, device=1, stream=3)
    writer.address(second, base + 700_416, device=1, stream=3)
    writer.free_requested(first, device=1, stream=3, site=site)
    writer.out_of_memory(1 << 40, 12 << 30, device=1, stream=0, site=site)
    writer.free(first, device=1, stream=3)
    writer.free(second, device=1, stream=3, site=site)
    writer.segment(EventKind.kSegmentFree, base, 2 << 20, device=1, stream=3)
    writer.segment(EventKind.kSegmentMap, 2 * base, 40 << 20, device=2)
    writer.allocate(third, site, 3 << 20, 512, device=2)
    writer.segment(EventKind.kSegmentUnmap, 2 * base + (20 << 20), 20 << 20, device=2)


def shown(name: str, *, json: bool) -> str:
    """What `memoir show` prints, seen from the folder of the data."""
    output, before = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), Path.cwd()
    os.chdir(DATA)
    try:
        with contextlib.redirect_stdout(output):
            show_trace(name, output=None, json=json, force=False)
    finally:
        os.chdir(before)
    output.flush()
    return output.buffer.getvalue().decode()


if __name__ == "__main__":
    if not (DATA / SMALL).exists():
        write_small(DATA / SMALL)
    for stem in (SMALL_1, SMALL, "resnet18.trace"):
        assert Trace.open(DATA / stem).complete
        (DATA / f"{stem}.json").write_text(shown(stem, json=True))
        (DATA / f"{stem}.txt").write_text(shown(stem, json=False), encoding="utf-8")
        print(f"rewrote {stem}.json and {stem}.txt; look at the difference before you commit it")
