#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Waiting for malloc's locks while several threads run a network at the same time (MemoMalloc, chapter 2.2): what jemalloc
itself counts of its mutexes, with one arena and no thread cache, with its defaults, and with memoir.torch.remember.

    bench/torch/lock_contention.py [--nets squeezenet1_0,mnasnet0_75] [--threads 1,2,4,8,16] [--passes 10]
    bench/torch/lock_contention.py --smoke                a small network, two threads, two passes

A process per network, allocator and number of threads: each thread runs its passes at batch 1 after two to warm up. From
jemalloc's mutexes (arenas' and its own `ctl`): how often a thread had to wait, milliseconds of that in all, the longest
wait, and the same of `ctl` alone. CPU time is of all threads, of the counted passes. Of other mallocs there is only that.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import threading
import time
import warnings
from datetime import date

from latency import jemalloc
from latency.variants import VARIANTS, environment, why_unavailable
from memoir.bench.process import machine

ONE_ARENA = {"MALLOC_CONF": "narenas:1,tcache:false"}
# A name, a variant of torch_latency.py, what is set on top, and whether the module is remembered.
WAYS = (
    ("jemalloc, 1 arena, no cache", "jemalloc", ONE_ARENA, False),
    ("the same, remembered", "jemalloc", ONE_ARENA, True),
    ("jemalloc", "jemalloc", {}, False),
    ("glibc", "glibc", {}, False),
    ("tcmalloc", "tcmalloc", {}, False),
    ("mimalloc", "mimalloc", {}, False),
    ("glibc, remembered", "glibc", {}, True),
)
ALL_ARENAS = "stats.arenas.4096"  # MALLCTL_ARENAS_ALL: merged
OF_AN_ARENA = (
    "large",
    "extent_avail",
    "extents_dirty",
    "extents_muzzy",
    "decay_dirty",
    "base",
    "tcache_list",
)
COUNTS = ("num_wait", "total_wait_time", "max_wait_time")  # times in nanoseconds


def waits() -> dict[str, dict[str, int]]:
    """COUNTS of each mutex of the jemalloc of this process; empty under another malloc."""
    if not jemalloc.IS_HERE:
        return {}
    jemalloc.control("epoch", new=ctypes.c_uint64(1))
    bins = ctypes.c_uint()
    jemalloc.control("arenas.nbins", bins)
    paths = {"ctl": "stats.mutexes.ctl"}
    paths |= {name: f"{ALL_ARENAS}.mutexes.{name}" for name in OF_AN_ARENA}
    paths |= {f"bin {i}": f"{ALL_ARENAS}.bins.{i}.mutex" for i in range(bins.value)}
    return {name: {what: jemalloc.read(f"{path}.{what}") for what in COUNTS} for name, path in paths.items()}


def work(options: argparse.Namespace) -> None:
    """The process of one cell."""
    import nets
    import torch

    torch.set_num_threads(1)
    module = nets.build(options.work, batch=1, side=options.side).module
    if options.remember:
        import memoir.torch

        module = memoir.torch.remember(module)
    count = options.thread
    ready, begin = threading.Barrier(count + 1), threading.Barrier(count + 1)

    def run() -> None:
        x = torch.randn(1, 3, options.side, options.side)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                module(x)
            ready.wait()
            begin.wait()
            for _ in range(options.passes):
                module(x)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    if jemalloc.IS_HERE and not jemalloc.control("stats.mutexes.reset"):
        raise SystemExit("this jemalloc does not set its mutexes' counts back")
    cpu = time.process_time_ns()
    begin.wait()
    for thread in threads:
        thread.join()
    cpu = time.process_time_ns() - cpu
    print(json.dumps({"cpu": cpu, "mutexes": waits()}))


def measure(
    net: str, variant: str, extra: dict[str, str], remember: bool, threads: int, options: argparse.Namespace
) -> dict:
    command = [sys.executable, __file__, "--work", net, "--thread", str(threads), "--side", str(options.side)]
    command += ["--passes", str(options.passes), *(["--remember"] if remember else [])]
    done = subprocess.run(
        command, env=environment(VARIANTS[variant]) | extra, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cells_of(result: dict, threads: int, passes: int) -> list[str]:
    cells = [f"{result['cpu'] / 1e6 / threads / passes:.1f}"]
    mutexes = result["mutexes"]
    if not mutexes:
        return [*cells, "", "", "", "", ""]
    every = list(mutexes.values())
    worst = max(mutexes, key=lambda name: mutexes[name]["total_wait_time"])
    cells += [f"{sum(one['num_wait'] for one in every):,}"]
    cells += [f"{sum(one['total_wait_time'] for one in every) / 1e6:.2f}"]
    cells += [f"{max(one['max_wait_time'] for one in every) / 1e6:.2f}"]
    cells += [worst if mutexes[worst]["num_wait"] else "none"]
    ctl = mutexes["ctl"]
    return [*cells, f"{ctl['total_wait_time'] / 1e6:.2f}, {ctl['max_wait_time'] / 1e6:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="squeezenet1_0,mnasnet0_75")
    parser.add_argument("--threads", default="1,2,4,8,16")
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--smoke", action="store_true", help="does it work?")
    for hidden in ("--work", "--thread"):
        parser.add_argument(hidden, type=str if hidden == "--work" else int, help=argparse.SUPPRESS)
    parser.add_argument("--remember", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options)
    ways = WAYS
    if options.smoke:
        options.nets, options.threads, options.passes, options.side = "dcgan", "2", 2, 64
        ways = WAYS[:2]
    print(f"{date.today()}; {machine.line(machine.describe())}. jemalloc's waits:")
    print()
    print(
        "| network | threads | malloc | CPU ms a pass | waits | ms waited | longest, ms | most at | ctl: ms, longest |"
    )
    print("|---|---:|---|---:|---:|---:|---:|---|---:|")
    for net in options.nets.split(","):
        for threads in map(int, options.threads.split(",")):
            for name, variant, extra, remember in ways:
                if why := why_unavailable(VARIANTS[variant]):
                    print(f"{name}: {why}", file=sys.stderr)
                    continue
                result = measure(net, variant, extra, remember, threads, options)
                print(
                    "| "
                    + " | ".join([net, str(threads), name, *cells_of(result, threads, options.passes)])
                    + " |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
