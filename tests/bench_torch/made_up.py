# SPDX-License-Identifier: Apache-2.0
"""Results with known truth, for the tests of what is made out of results."""

import math
import random

from latency import records
from latency.cells import CellKey
from memoir.bench import sessions
from memoir.bench.grid import shuffled
from memoir.bench.recording import Recording

MIB = 1 << 20
DESIGN = {"replicates": 12, "passes": 5, "warmup": 3, "settle": 1, "seed": 0, "rounds": 1}
MACHINE = {
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
}
VARIANTS = {
    name: {"says": name, "library": None, "version": "1", "environment": {}}
    for name in ("glibc", "jemalloc_1mb", "tcmalloc", "memoir")
}
KEYS = [
    CellKey("vgg16", batch, 128, threads, callers)
    for batch, threads, callers in ((1, 1, 1), (4, 1, 1), (1, 2, 1), (1, 1, 4))
]


def header(**changes) -> dict:
    """Of a made-up run on a made-up machine; `changes` replace what it says of itself."""
    given = {"design": DESIGN, "variants": VARIANTS, "machine": MACHINE} | changes
    commands, skipped = ["bench/torch/torch_latency.py"], {"mimalloc": "not found"}
    made = records.header(KEYS, given["design"], given["variants"], skipped, {"torch": "2"}, commands)
    return made | {"date": "2026-01-01", "machine": given["machine"]}


def member(variant: str, peak: int, output: str = "same") -> dict:
    """What a process saw of itself."""
    memory = {"anonymous": 100 * MIB, "shared": 0, "file": 50 * MIB, "peak": 0}
    closed = memory | {"peak_anonymous": peak, "output": output}
    if variant == "memoir":
        closed["memoir"] = {"slab_bytes": 10 * MIB, "slabs": 1, "peak_live_bytes": 10 * MIB}
    warm = {"warmup": memory | {"peak_anonymous": peak}, "warmup_ns": [1], "warmup_minor": 1}
    return {"opened": {"before": memory} | warm, "closed": closed}


def fill(recording: Recording, key: CellKey, speeds: dict[str, float], peaks: dict[str, int]) -> None:
    """Adds a cell of 12 blocks: speeds[variant] ms, times noise of 2 %, times a drift that a block shares."""
    rng = random.Random(key.label)
    for index in range(12):
        drift = math.exp(rng.gauss(0, 0.3))
        rows = []
        for position, name in enumerate(shuffled(list(speeds), f"0/{key.label}/{index}")):
            times = [round(1e6 * speeds[name] * drift * math.exp(rng.gauss(0, 0.02))) for _ in range(5)]
            used = {"minor": 0, "major": 0, "user_us": 5000, "system_us": 10, "preempted": 0}
            turn = {"ns": times, "made": 5, "wall_ns": sum(times), "anonymous": 100 * MIB} | used
            fields = records.row_fields(turn)
            rows.append(sessions.turn_row(key.under(name), 0, index, position, fields, started=0.0))
        recording.add(*rows)
    for name in speeds:
        recording.add_member(key.under(name), 0, **member(name, peaks[name]))


def recording(speeds: dict[str, float], peaks: dict[str, int] | None = None, folder=None) -> Recording:
    """Four cells of one network under the allocators of `speeds` (ms per pass)."""
    made = Recording.begin(header(), folder)
    peaks = {name: 120 * MIB for name in speeds} | (peaks or {})
    for key in KEYS:
        fill(made, key, speeds, peaks)
    return made


def results(speeds: dict[str, float], peaks: dict[str, int] | None = None):
    """The same, as a Result in memory."""
    return recording(speeds, peaks).result
