# SPDX-License-Identifier: Apache-2.0
"""What a recording holds after kill -9 at a random moment: the program counts its own allocations.

python bench/record/record_kills.py [--kills 1000] [--seed 0] [--smoke]

Three threads allocate and free; each counts, in a file of its own, what it has done. They are killed between their start
and a third of a second later. Each trace must be readable, and hold every allocation that was counted, in order. Exits
with 1 where one does not. docs/guides/record.md has results."""

from __future__ import annotations

import argparse
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from memoir._core import EventKind, Trace

from memoir import Error
from memoir.record import native

THREADS, SIZES, LEAST = 3, 4096, 65  # as record_kills.c has them


@dataclass
class Found:
    """One kill."""

    counted: int = 0  # allocations that the program had done
    missing: int = 0  # of those, in no trace
    dropped: int = 0  # events that the recorder says it had no room for
    beyond: int = 0  # in the trace, and not counted yet
    no_file: bool = False  # killed before there was one, and before anything was counted
    unreadable: str = ""
    out_of_order: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="seconds, to see that it works")
    given = parser.parse_args(arguments)
    compiler = shutil.which("cc")
    try:
        native.library()
    except Error as error:
        print(f"skipped: {error}")
        return 0
    if compiler is None:
        print("skipped: no C compiler")
        return 0
    kills = 5 if given.smoke else given.kills
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="memoir-bench-") as work, native.Clock() as clock:
        program = Path(work) / "program"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-O2", str(source), "-pthread", "-o", str(program)], check=True)
        found = [kill_one(program, Path(work), clock, rng) for _ in range(kills)]
    bad = [one for one in found if one.missing or one.unreadable or one.out_of_order]
    print(
        "| kills | before there was a file | allocations counted | missing | unreadable | out of order | beyond the count |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    cells = [
        len(found),
        sum(one.no_file for one in found),
        sum(one.counted for one in found),
        sum(one.missing for one in found),
        sum(bool(one.unreadable) for one in found),
        sum(one.out_of_order for one in found),
        sum(one.beyond for one in found),
    ]
    print("| " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    for one in bad[:5]:
        print(one)
    return 1 if bad else 0


def kill_one(program: Path, folder: Path, clock: native.Clock, rng: random.Random) -> Found:
    counts, trace = folder / "counts", folder / "x.trace"
    counts.write_bytes(bytes(4096))
    trace.unlink(missing_ok=True)
    environment = native.environment(trace, clock.path)
    process = subprocess.Popen([str(program), str(counts)], env=environment)
    time.sleep(0.001 * 333 ** rng.random())
    process.kill()
    process.wait()
    done = [struct.unpack_from("<Q", counts.read_bytes(), 64 * i)[0] for i in range(THREADS)]
    found = Found(counted=sum(done))
    if not trace.exists():
        found.no_file = not found.counted
        found.missing = found.counted
        return found
    try:
        opened = Trace.open(str(trace))
    except Error as error:
        found.unreadable = str(error)
        return found
    found.dropped = opened.dropped
    events = opened.events
    made = events[events["kind"] == int(EventKind.kAllocate)]
    for number in range(THREADS):
        sizes = made["size"][_of_loop(made, number)].astype(np.int64)
        wanted = LEAST + np.arange(len(sizes)) % SIZES * 8 + 2 * number
        found.out_of_order |= bool((sizes != wanted).any())
        found.missing += max(done[number] - len(sizes), 0)
        found.beyond += max(len(sizes) - done[number], 0)
    return found


def _of_loop(made: np.ndarray, number: int) -> np.ndarray:
    """The allocations of one loop: those of its sizes on the thread that has most of them."""
    fits = (made["size"] >= LEAST) & (made["size"] < LEAST + 8 * SIZES)
    fits &= (made["size"] - LEAST) % 8 == 2 * number
    threads, counts = np.unique(made["thread"][fits], return_counts=True)
    return fits & (made["thread"] == threads[counts.argmax()]) if len(threads) else fits


if __name__ == "__main__":
    sys.exit(main())
