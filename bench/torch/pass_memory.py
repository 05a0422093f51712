#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes held over one pass of a network: jemalloc's active extents next to memoir's slab (MemoMalloc, chapters 5.2 and 8.1).

    bench/torch/pass_memory.py [--nets resnet50,dcgan] [--batch 1] [--side 128]
    bench/torch/pass_memory.py --smoke                    a small network

A pass of one thread is recorded, and its requests are given to a jemalloc in a process of its own, as they came:
posix_memalign(64) and free, the pass four times so that its caches are as in a server. In the last one jemalloc is asked
after each request. *Live* is what the pass asked for, *active* the pages that jemalloc has given something of
(`stats.active`), *resident* those and its dirty pages and metadata (`stats.resident`), all above what they were before the
first pass. The slab is memoir's plan of the same pass: it is held throughout.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from latency.jemalloc import control, read
from latency.variants import VARIANTS, environment, why_unavailable
from memoir.bench.process import machine

MIB = 2**20
WAYS = ("jemalloc", "jemalloc_1mb", "jemalloc_tuned")
PASSES = 4
ALIGNMENT = 64


def requests_of(lower: np.ndarray, upper: np.ndarray) -> list[tuple[int, bool]]:
    """(buffer, whether it is asked for) in the order of the pass; frees come first within a tick."""
    events = [(int(tick), 1, buffer) for buffer, tick in enumerate(lower)]
    events += [(int(tick), 0, buffer) for buffer, tick in enumerate(upper)]
    return [(buffer, kind == 1) for _, kind, buffer in sorted(events)]


def work(path: Path) -> None:
    """The process of one jemalloc: prints bytes active and resident after each request of the last pass."""
    saved = np.load(path)
    requests = requests_of(saved["lower"], saved["upper"])
    sizes = [int(size) for size in saved["size"]]
    library = ctypes.CDLL(None)
    library.free.argtypes = [ctypes.c_void_p]
    library.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    places = [ctypes.c_void_p() for _ in sizes]
    active, resident = [0] * len(requests), [0] * len(requests)

    def ask() -> tuple[int, int]:
        control("epoch", new=ctypes.c_uint64(1))
        return read("stats.active"), read("stats.resident")

    control("thread.tcache.flush")  # what Python freed is no room for the pass
    before = ask()
    for turn in range(PASSES):
        for i, (buffer, asked) in enumerate(requests):
            place = places[buffer]
            if not asked:
                library.free(place)
            elif library.posix_memalign(ctypes.byref(place), ALIGNMENT, sizes[buffer]):
                raise SystemExit(f"no {sizes[buffer]:,} bytes")
            if turn == PASSES - 1:
                active[i], resident[i] = (now - was for now, was in zip(ask(), before, strict=True))
    print(json.dumps({"active": active, "resident": resident}))


def measure(path: Path, way: str) -> dict[str, np.ndarray]:
    command = [sys.executable, __file__, "--work", str(path)]
    done = subprocess.run(
        command, env=environment(VARIANTS[way]), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return {name: np.array(values) for name, values in json.loads(done.stdout).items()}


def cell(bytes_held: np.ndarray) -> str:
    return f"{bytes_held.max() / MIB:.1f}, {bytes_held.mean() / MIB:.1f}"


def row(name: str, options: argparse.Namespace, ways: list[str], folder: Path) -> list[str]:
    import torch
    from network_tables import record

    import memoir

    torch.set_num_threads(1)
    problem = record(name, options)[0].problem
    path = folder / "pass.npz"
    np.savez(path, lower=problem.lower, upper=problem.upper, size=problem.size)
    sizes = problem.size.astype(np.int64)
    live = np.cumsum(
        [sizes[b] if asked else -sizes[b] for b, asked in requests_of(problem.lower, problem.upper)]
    )
    slab = memoir.plan(problem).arena_size
    cells = [name, f"{len(sizes)}", cell(live), f"{slab / MIB:.1f}"]
    for way in ways:
        held = measure(path, way)
        cells += [cell(held["active"]), cell(held["resident"]), f"{held['resident'].max() / slab:.2f}"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="all")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--smoke", action="store_true", help="does it work?")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work)
    if options.smoke:
        options.nets, options.side = "dcgan", 64
    ways = []
    for way in WAYS:
        if why := why_unavailable(VARIANTS[way]):
            print(f"{way}: {why}", file=sys.stderr)
        else:
            ways.append(way)
    import nets
    from network_tables import rows

    names = (
        [name for name in nets.NETS if "_tiny" not in name]
        if options.nets == "all"
        else options.nets.split(",")
    )
    table = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for name in names:
            table.append(row(name, options, ways, Path(folder)))
            print(f"{name}: done", file=sys.stderr, flush=True)
    print(f"{date.today()}; {machine.line(machine.describe())}.\n")
    print(f"Batch {options.batch}, side {options.side}; MiB: most, mean over the requests of a pass.")
    heads = "".join(f" | {way}: active | resident | most resident / slab" for way in ways)
    rows(table, f"network | buffers | live | slab{heads}")


if __name__ == "__main__":
    main()
