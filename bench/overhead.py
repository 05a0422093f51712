# SPDX-License-Identifier: Apache-2.0
"""What the harness adds to a run: wall time of /bin/true through it, against a bare spawn and wait.

    python bench/overhead.py [RUNS]
    python bench/overhead.py --smoke      five runs

A posix_spawn with wait4, timed around both calls, is the smallest that anyone can measure. Both run in turn.
"""

import argparse
import os
import statistics
import time

from memoir.bench.launch import launch


def bare(program: str) -> float:
    start = time.perf_counter()
    process = os.posix_spawn(program, [program], os.environ)
    os.wait4(process, 0)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=int, nargs="?", default=300)
    parser.add_argument("--smoke", action="store_true", help="five runs: does it work?")
    options = parser.parse_args()
    program = "/bin/true"
    spawned, measured, whole = [], [], []
    for _ in range(5 if options.smoke else options.runs):
        spawned.append(bare(program))
        start = time.perf_counter()
        measured.append(launch([program]).wall)
        whole.append(time.perf_counter() - start)
    for name, values in (("bare spawn and wait", spawned), ("wall as memoir reports it", measured)):
        print(f"{name:<28}median {statistics.median(values) * 1e3:.3f} ms, least {min(values) * 1e3:.3f} ms")
    added = statistics.median(m - s for m, s in zip(measured, spawned, strict=True))
    print(f"{'added to a run':<28}median {added * 1e3:+.3f} ms")
    around = statistics.median(w - m for w, m in zip(whole, measured, strict=True))
    print(f"{'between runs, not measured':<28}median {around * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
