# SPDX-License-Identifier: Apache-2.0
"""The golden files of the trace format. To rewrite what `memoir show` should say of them:

    .venv/bin/python tests/trace/golden_trace.py

`small.v1.trace` itself stays as it is for ever, since it stands for the files that people have; a new
version of the format gets a new file: raise VERSION below, and it is recorded when it is missing.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from memoir._core import Trace, TraceWriter, child_site
from memoir.cli._show_trace import show_trace

VERSION = 1
DATA = Path(__file__).parents[1] / "data"
SMALL = f"small.v{VERSION}.trace"


def write_small(path: Path | None) -> TraceWriter:
    """Every kind of record, two threads, what escapes, a text over several records."""
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
    writer.close()
    return writer


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
    for stem in (SMALL, "resnet18.trace"):
        assert Trace.open(DATA / stem).complete
        (DATA / f"{stem}.json").write_text(shown(stem, json=True))
        (DATA / f"{stem}.txt").write_text(shown(stem, json=False), encoding="utf-8")
        print(f"rewrote {stem}.json and {stem}.txt; look at the difference before you commit it")
