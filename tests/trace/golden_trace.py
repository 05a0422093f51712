# SPDX-License-Identifier: Apache-2.0
"""The golden files of the trace format. To rewrite what `memoir show` should say of them:

    .venv/bin/python tests/trace/golden_trace.py

`small.v1.trace` and `native.v1.trace` themselves stay as they are from the first release on, since they stand for the
files that people have; a new version of the format gets new files: raise VERSION below, and they
are recorded when they are missing.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))  # when this file is run by itself
import native_trace  # noqa: E402
from memoir._core import EventKind, Trace, TraceWriter, child_site  # noqa: E402
from memoir.cli.parts.show_trace import show_trace  # noqa: E402

VERSION = 1
DATA = Path(__file__).parents[1] / "data"
SMALL = f"small.v{VERSION}.trace"
NATIVE = f"native.v{VERSION}.trace"
GOLDEN = (SMALL, NATIVE, "resnet18.trace")


def write_small(path: Path | None, devices: bool = True) -> TraceWriter:
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
    if devices:
        on_device(writer, empty, objects)
    writer.close()
    return writer


def native_program() -> native_trace.NativeTrace:
    """A program of two threads, with each operation that a native recorder writes: a cache that stays, a loop of
    temporaries, a hand-over between threads, a leak, reallocs, a tensor, a mapping, frees from before."""
    trace = native_trace.NativeTrace()
    program, library = "/usr/bin/server", "/usr/lib/libcache.so.1"
    trace.module(program, b"\x12\x34\xab", 0x400000)
    trace.module(library, b"\xfe\xdc", 0x7F00_0000_0000)
    main = trace.native(program, 0x1100, [("main", "server.cc", 40)])
    serve = trace.native(
        program, 0x1250, [("parse(char const*)", "parse.h", 7), ("serve()", "server.cc", 88)]
    )
    grow = trace.native(library, 0x88)
    handler = trace.python("handle", "/srv/app/handler.py", 31)
    layer = trace.named(native_trace.MODULE_PATH, "layers.0")
    linear = trace.named(native_trace.OPERATOR, "aten::linear")
    start, request, cache = trace.stack(main), trace.stack(main, serve), trace.stack(main, serve, grow)
    tensor = trace.stack(main, handler, layer, linear)
    trace.begin_thread(1, 0, 4711, "server")
    trace.begin_thread(2, 3, 4712, "worker")
    trace.mappings(0, native_trace.START, 3 << 20, [(native_trace.FILE, program, 1 << 20, 512 << 10)])
    heap = 0x5555_5575_A2A0
    trace.free(1, 1, heap + 0x9_0000)  # from before
    trace.allocate(1, 1, heap, 100_000, start)
    for number in range(40):  # a cache: every fourth stays
        trace.allocate(1, 2 + number, heap + 0x2_0000 + 4096 * number, 2000 + number, cache)
        trace.allocate(1, 2 + number, heap + 0x8_0000, 48, request, native_trace.NEW)
        trace.free(1, 2 + number, heap + 0x8_0000)
        if number % 4:
            trace.free(2, 3 + number, heap + 0x2_0000 + 4096 * number)
    big = 0x7FFF_0000_0010
    trace.allocate(2, 50, big, 4 << 20, request)
    trace.counter(51, "malloc.arena", 5 << 20)
    groups = [
        (native_trace.HEAP, "", 2 << 20, 1 << 20),
        (native_trace.ANONYMOUS, "", 8 << 20, 4 << 20),
        (native_trace.THREAD_STACK, "", 8 << 20, 64 << 10),
        (native_trace.FILE, program, 1 << 20, 700 << 10),
        (native_trace.FILE, library, 2 << 20, 300 << 10),
        (native_trace.RECORDER, "", 1 << 20, 256 << 10),
    ]
    trace.mappings(52, native_trace.PEAK, (1 << 20) * 5 + (1320 << 10), groups)
    trace.free(2, 60, big)
    trace.allocate(1, 61, heap + 0x10_0000, 8256, tensor)
    trace.allocate(1, 61, heap + 0x10_0000, 8192, 0, native_trace.TENSOR, 6)
    trace.free(1, 70, heap, moved=True)
    trace.allocate(1, 70, heap + 0x20_0003, 200_000, start, moved=True)
    trace.free(2, 75, heap + 0x10_0000, tensor=True)
    trace.free(2, 75, heap + 0x10_0000)
    trace.map(1, 80, 0x7F80_0000_0000, 1 << 20, request)
    trace.map(1, 81, 0x7F80_0000_0000, 1 << 20, request, unmap=True)
    trace.lost(82, 1, 3)
    trace.lost(82, 3, 12)
    trace.end(83)
    return trace


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
            show_trace(name, output=None, json=json, force=False, only="both" if name == NATIVE else None)
    finally:
        os.chdir(before)
    output.flush()
    return output.buffer.getvalue().decode()


if __name__ == "__main__":
    if not (DATA / SMALL).exists():
        write_small(DATA / SMALL)
    if not (DATA / NATIVE).exists():
        (DATA / NATIVE).write_bytes(native_program().bytes())
    for stem in GOLDEN:
        assert Trace.open(DATA / stem).complete
        (DATA / f"{stem}.json").write_text(shown(stem, json=True))
        (DATA / f"{stem}.txt").write_text(shown(stem, json=False), encoding="utf-8")
        print(f"rewrote {stem}.json and {stem}.txt; look at the difference before you commit it")
