#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sampling lifetimes costs a malloc/free pair, and how far its estimates are off.

    bench/record/lifetimes.py                  30 rounds of 20 million pairs; 60 runs of each size
    bench/record/lifetimes.py --smoke          seconds: does it work?

The first table: nanoseconds of processor time of a tight loop of malloc(64) and free, with nothing preloaded, with the
recorder dormant, sampling at its default and at 64 KiB, in random order. The second: what a profile says of the number
of objects that a program allocated, over the truth, for objects of one size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from memoir.bench.grid import shuffled
from memoir.bench.statistics import mean_interval
from memoir.lifetimes.sampling import Collector

from memoir.record import native

HERE = Path(__file__).resolve().parent
EVERY = 512 * 1024
WAYS = ("nothing preloaded", "dormant", "sampled at 512 KiB", "sampled at 64 KiB")


def compiled(folder: str) -> str:
    program = str(Path(folder) / "pairs")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-fno-builtin", "-o", program, HERE / "lifetimes_pairs.c"], check=True)
    return program


def nanoseconds(program: str, way: str, millions: int) -> float:
    def run(environment: dict[str, str]) -> float:
        done = subprocess.run(
            [program, "64", str(millions * 10**6)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout)

    if way == "nothing preloaded":
        return run(dict(os.environ))
    if way == "dormant":
        return run({**os.environ, "LD_PRELOAD": str(native.library())})
    with Collector(EVERY if "512" in way else 64 * 1024) as collector:
        result = run(collector.environment)
    assert collector.lifetimes().totals["samples"] > millions * 10, "it did sample"
    return result


def cost(rounds: int, millions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        rows = []
        for number in range(rounds):
            times = {way: nanoseconds(program, way, millions) for way in shuffled(list(WAYS), str(number))}
            rows.append([times[way] for way in WAYS])
    times = np.array(rows)
    print("| | ns a pair, median | more than nothing: median [95 %] | goal |\n|---|---:|---:|---:|")
    for index, (way, goal) in enumerate(zip(WAYS, ("", "1", "3", ""), strict=True)):
        more = times[:, index] - times[:, 0]
        draws = np.random.default_rng(1).choice(more, (2000, len(more)))
        low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
        change = f"{np.median(more):.2f} [{low:.2f}, {high:.2f}]" if index else ""
        print(f"| {way} | {np.median(times[:, index]):.2f} | {change} | {goal} |", flush=True)


def bias(runs: int, megabytes: int) -> None:
    print(
        "\n| object | objects a run | samples a run | estimate / truth, mean of the runs [95 %] | of one run |"
    )
    print("|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for size in (16, 256, 4096, 65536, 2**20, 2**24):
            objects = max(megabytes * 2**20 // size, 4)
            ratios, samples = [], 0
            for _ in range(runs):
                with Collector(EVERY) as collector:
                    command = [program, str(size), str(objects)]
                    subprocess.run(command, env=collector.environment, stdout=subprocess.DEVNULL, check=True)
                profile = collector.lifetimes()
                own = (profile.contexts["least_size"] == size) & (profile.contexts["most_size"] == size)
                ratios.append(profile.objects()[own].sum() / objects)
                samples += int(profile.contexts["estimates"]["samples"][own].sum())
            mean, low, high = mean_interval(ratios)
            print(
                f"| {size:,} B | {objects:,} | {samples / runs:,.0f} | {mean:.4f} [{low:.4f}, {high:.4f}] | "
                f"± {100 * np.std(ratios):.1f} % |",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--millions", type=int, default=20, help="of pairs in a round")
    parser.add_argument("--runs", type=int, default=60, help="of each size")
    parser.add_argument("--smoke", action="store_true", help="does it work? two short rounds")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.millions, options.runs = 2, 1, 3
    cost(options.rounds, options.millions)
    bias(options.runs, 16 if options.smoke else 64)
    return 0


if __name__ == "__main__":
    sys.exit(main())
