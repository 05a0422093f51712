# SPDX-License-Identifier: Apache-2.0
"""What the harness adds to a run.

    python bench/compare/overhead.py [RUNS]            wall time of /bin/true through it, against a bare spawn and wait
    python bench/compare/overhead.py --memory [RUNS]   programs whose memory is sampled, against the same ones left alone
    python bench/compare/overhead.py --smoke           a few runs of both

A posix_spawn with wait4, timed around both calls, is the smallest that anyone can measure. Both run in turn; which comes
first alternates.
"""

import argparse
import os
import statistics
import time

from memoir.bench.process import machine, memory
from memoir.bench.process.launch import Measurement, launch
from memoir.bench.statistics import compare, mean_interval

# what the sampler may hold up: many small blocks; page faults all the time; growth and shrinkage
PROGRAMS = ("churn", "tensors", "cycles")
QUANTITIES = {"wall": lambda run: run.wall, "processor": lambda run: run.user + run.system}


def bare(program: str) -> float:
    start = time.perf_counter()
    process = os.posix_spawn(program, [program], os.environ)
    os.wait4(process, 0)
    return time.perf_counter() - start


def launching(runs: int) -> None:
    program = "/bin/true"
    spawned, measured, whole = [], [], []
    for _ in range(runs):
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


def sampling(runs: int, more: list[str]) -> None:
    """Ratios sampled / left alone, paired by turn, with intervals; then over all programs."""
    ratios: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    shares: list[float] = []
    for name in PROGRAMS:
        command = [machine.tool(f"bench-{name}"), *more]
        alone: list[Measurement] = []
        sampled: list[Measurement] = []
        for turn in range(runs + 1):  # the first turn warms up
            for watched in (turn % 2 == 0, turn % 2 == 1):
                run = launch(command, memory=memory.PERIOD if watched else None)
                run.said.close()
                (sampled if watched else alone).append(run)
        samples = statistics.median(len(run.memory) for run in sampled[1:])
        typical = statistics.median(run.wall for run in alone[1:])
        print(f"{name}: {runs} pairs of {typical:.2f} s, {samples:.0f} samples in a run (median)")
        show_share([run.memory_held / run.wall for run in sampled[1:]])
        shares += [run.memory_held / run.wall for run in sampled[1:]]
        for quantity, value in QUANTITIES.items():
            before, after = ([value(run) for run in both[1:]] for both in (alone, sampled))
            ratios[quantity] += [a / b for a, b in zip(after, before, strict=True)]
            show(quantity, before, after)
    print(f"all {len(PROGRAMS)} programs")
    show_share(shares)
    for quantity, found in ratios.items():
        show(quantity, [1.0] * len(found), found)


def show_share(shares: list[float]) -> None:
    """The part of a run's time in which a sample was being taken: no more than that can be held up."""
    mean, low, high = mean_interval(shares)
    print(f"  looked at  {mean:.2%} of the time [{low:.2%}, {high:.2%}], {max(shares):.2%} at most")


def show(quantity: str, alone: list[float], sampled: list[float]) -> None:
    ratio, low, high = compare(alone, sampled).interval
    print(f"  {quantity:<10} sampled / alone {ratio:.4f} [{low:.4f}, {high:.4f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=int, nargs="?", default=300)
    parser.add_argument("--memory", action="store_true", help="the cost of sampling memory")
    parser.add_argument("--smoke", action="store_true", help="a few runs of both: does it work?")
    options = parser.parse_args()
    if options.smoke:
        launching(5)
        sampling(2, ["--smoke"])
    elif options.memory:
        sampling(options.runs, [])
    else:
        launching(options.runs)


if __name__ == "__main__":
    main()
