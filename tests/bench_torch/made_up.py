# SPDX-License-Identifier: Apache-2.0
"""Results with known truth, for the tests of what is made out of results."""

import math
import random

from latency.results import Results
from latency.schedule import CellKey, turns

MIB = 1 << 20
HEADER = {
    "date": "2026-01-01",
    "commands": ["bench/torch_latency.py"],
    "machine": {
        "processor": "a processor",
        "cores": 2,
        "virtual": False,
        "memory_bytes": 8 << 30,
        "kernel": "Linux 6",
        "c_library": "glibc 2",
        "huge_pages": "madvise",
        "overcommit": "0",
        "governor": None,
        "load_average": 0.1,
    },
    "versions": {"torch": "2"},
    "design": {
        "replicates": 12,
        "passes": 5,
        "warmup": 3,
        "settle": 1,
        "seed": 0,
        "rounds": 1,
    },
    "variants": {
        name: {"says": name, "library": None, "version": "1", "environment": {}}
        for name in ("glibc", "jemalloc_1mb", "tcmalloc", "memoir")
    },
    "skipped": {"mimalloc": "not found"},
}


def worker(variant: str, peak: int, output: str = "same") -> dict:
    memory = {"anonymous": 100 * MIB, "shared": 0, "file": 50 * MIB, "peak": 0}
    last = memory | {"peak_anonymous": peak, "output": output}
    if variant == "memoir":
        last["memoir"] = {"slab_bytes": 10 * MIB, "slabs": 1, "peak_live_bytes": 10 * MIB}
    return {
        "session": 0,
        "variant": variant,
        "before": memory,
        "warmup": memory | {"peak_anonymous": peak},
        "warmup_ns": [1],
        "warmup_minor": 1,
        "last": last,
    }


def fill(results: Results, key: CellKey, speeds: dict[str, float], peaks: dict[str, int]) -> None:
    """Adds a cell of 12 blocks: speeds[variant] ms, times noise of 2 %, times a drift that a block shares."""
    rng = random.Random(key.label)
    results.record("passes", key, passes=5)
    for index in range(12):
        drift = math.exp(rng.gauss(0, 0.3))
        runs = {}
        for name in turns(list(speeds), 0, key, index):
            times = [round(1e6 * speeds[name] * drift * math.exp(rng.gauss(0, 0.02))) for _ in range(5)]
            used = {"minor": 0, "major": 0, "user_us": 5000, "system_us": 10, "preempted": 0}
            runs[name] = {"ns": times, "made": 5, "wall_ns": sum(times), "anonymous": 100 * MIB} | used
        results.record("block", key, block=index, session=0, runs=runs)
    for name in speeds:
        results.record("worker", key, **worker(name, peaks[name]))


def results(speeds: dict[str, float], peaks: dict[str, int] | None = None, path=None) -> Results:
    """Four cells of one network under the allocators of `speeds` (ms per pass)."""
    made = Results(path, HEADER)
    made.start()
    peaks = {name: 120 * MIB for name in speeds} | (peaks or {})
    for batch, threads, callers in ((1, 1, 1), (4, 1, 1), (1, 2, 1), (1, 1, 4)):
        fill(made, CellKey("vgg16", batch, 128, threads, callers), speeds, peaks)
    return made
