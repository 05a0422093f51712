# SPDX-License-Identifier: Apache-2.0
"""How fast `memoir import` reads, and with how much memory: on a snapshot made on the fly.

    python bench/record/snapshot_import.py
    python bench/record/snapshot_import.py --megabytes 400 --depth 60 --json
    python bench/record/snapshot_import.py --smoke                              a megabyte, once

The snapshot is what torch writes (pickle.dump of dicts that share their keys, frames and stacks) of a training
loop: per step, activations that live until their backward, and temporaries. Memory is the peak of a process that
imports it, less that of one that imports an empty snapshot; the trace that it writes through a mapping is counted.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

# VmHWM, since a child's ru_maxrss begins with its parent's.
CHILD = """
import re, sys, time
from memoir._core import import_snapshot
start, busy = time.perf_counter(), time.process_time()
report = import_snapshot(sys.argv[1], sys.argv[2])
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(seconds, busy, int(peak) * 1024, report.entries)
"""


def snapshot(entries: int, depth: int, shared: bool, seed: int = 1) -> dict:
    """About `entries` entries of history, each with a stack of `depth` frames; `shared`: equal stacks are one list,
    as with Python frames, or many, as when frames of C++ are recorded too."""
    draw = np.random.default_rng(seed)
    frames = [
        {"name": f"forward_{i}", "filename": f"/srv/model/layer_{i % 50}.py", "line": i} for i in range(400)
    ]
    stacks = [[frames[j] for j in draw.integers(0, 400, depth)] for _ in range(1000)]
    base, place = 0x7F00_0000_0000, 0
    trace, live, free = [], [], []
    clock = 1_700_000_000_000_000
    sizes = (512 * draw.integers(1, 2**14, 4096)).tolist()
    stack_of = draw.integers(0, 1000, 4096).tolist()
    made = 0

    def entry(action: str, address: int, size: int, which: int) -> None:
        nonlocal clock
        clock += 3
        stack = stacks[stack_of[which]]
        trace.append(
            {
                "action": action,
                "addr": address,
                "size": size - 100,
                "stream": 0,
                "time_us": clock,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": stack if shared else stack[:],
            }
        )

    while len(trace) < entries:
        for _ in range(200):  # forward, then backward in reverse
            made += 1
            which = made % 4096
            size = sizes[which]
            if free and draw.random() < 0.9:
                address = free.pop()
            else:
                address, place = base + place, place + 2**23
            live.append((address, size, which))
            entry("alloc", address, size, which)
        while len(live) > 50:
            address, size, which = live.pop()
            entry("free_requested", address, size, which)
            entry("free_completed", address, size, which)
            free.append(address)
    blocks = [
        {
            "address": address,
            "size": size,
            "requested_size": size - 100,
            "state": "active_allocated",
            "frames": stacks[stack_of[which]],
        }
        for address, size, which in sorted(live)
    ]
    whole = {
        "device": 0,
        "address": base,
        "total_size": place,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    return {
        "segments": [whole],
        "device_traces": [trace],
        "allocator_settings": {},
        "external_annotations": [],
    }


def measure(content: dict, runs: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path, empty = Path(folder) / "x.pickle", Path(folder) / "empty.pickle"
        path.write_bytes(pickle.dumps(content, protocol=4))
        empty.write_bytes(pickle.dumps({"segments": [], "device_traces": []}, protocol=4))
        size = path.stat().st_size

        def child(source: Path) -> tuple[float, float, int, int]:
            target = Path(folder) / "x.trace"
            target.unlink(missing_ok=True)
            done = subprocess.run(
                [sys.executable, "-c", CHILD, source, target], check=True, capture_output=True, text=True
            )
            seconds, busy, peak, entries = done.stdout.split()
            return float(seconds), float(busy), int(peak), int(entries)

        _, _, baseline, _ = child(empty)
        results = [child(path) for _ in range(runs)]
        seconds = [row[0] for row in results]
        busy = float(np.median([row[1] for row in results]))
        peak = max(row[2] for row in results) - baseline
        return {
            "bytes": size,
            "entries": results[0][3],
            "trace_bytes": (Path(folder) / "x.trace").stat().st_size,
            "seconds_median": float(np.median(seconds)),
            "seconds_best": min(seconds),
            "cpu_seconds_median": busy,
            "bytes_per_second": size / float(np.median(seconds)),
            "bytes_per_cpu_second": size / busy,
            "peak_bytes": peak,
            "peak_per_byte": peak / size,
        }


@click.command()
@click.option("--megabytes", default=100, show_default=True, help="About the size of the snapshot.")
@click.option("--depth", default=20, show_default=True, help="Frames of a stack.")
@click.option("-n", "--runs", default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--smoke", is_flag=True, help="One megabyte, once: does it work?")
def main(megabytes: int, depth: int, runs: int, as_json: bool, smoke: bool) -> None:
    if smoke:
        megabytes, runs = 1, 1
    rows = {}
    for name, shared, each in (("shared stacks", True, 62), ("a list of frames each", False, 62 + 5 * depth)):
        content = snapshot(max(megabytes * 10**6 // each, 1), depth, shared)
        rows[name] = measure(content, runs)
        del content
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        print(
            f"{name}: {row['bytes'] / 1e6:.1f} MB, {row['entries']:,} entries, {row['seconds_median']:.3f} s "
            f"({row['bytes_per_second'] / 1e6:.0f} MB/s; best {row['bytes'] / row['seconds_best'] / 1e6:.0f}; "
            f"{row['bytes_per_cpu_second'] / 1e6:.0f} per second of the processor's), "
            f"peak {row['peak_bytes'] / 1e6:.0f} MB = {row['peak_per_byte']:.2f} x the file, "
            f"trace {row['trace_bytes'] / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
