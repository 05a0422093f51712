# SPDX-License-Identifier: Apache-2.0
"""The programs of mimalloc-bench under memoir's malloc and others: CPU time, as ratios with intervals.

    git clone https://github.com/daanx/mimalloc-bench
    python bench/malloc/mimalloc_bench.py mimalloc-bench
    python bench/malloc/mimalloc_bench.py mimalloc-bench --allocators mi3=/path/libmimalloc.so.3,snmalloc,memoir -n 8

The checkout is only read: what its `bench/` has is compiled into a temporary folder, with the options and the arguments
of its own scripts, but programs that run for a given time run for 2 s. They say how much they did: theirs is CPU time for
the same work. Runs are interleaved. Ratios are over the first allocator. --smoke is for tests: a stand-in for the
checkout, and no result is worth anything.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from memoir.bench.process import allocators
from memoir.bench.process.allocators import Allocator
from memoir.bench.statistics import geometric_mean, ratio_interval


class Program(NamedTuple):
    """One benchmark: how it is compiled, run, and what it says that it did (None: the same work in every run)."""

    name: str
    sources: str  # a pattern below bench/
    arguments: str  # {bench} and {threads} are put in
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # files of the pattern that are not part of it
    work: str | None = None


OLD_C = ("-std=gnu89",)
SIZED = ("-DCPP=1", "-DSIZED=1", "-fsized-deallocation")
LARSON = "2 8 1000 5000 100 4141 {threads}"
PROGRAMS = [
    Program(
        "cfrac", "cfrac/*.c", "17545186520507317056371138836327483792789528",
        (*OLD_C, "-DNOMEMOPT=1"), ("getopt.c", "ltop.c", "pfactor.c", "ptob.c"),
    ),
    Program("espresso", "espresso/*.c", "{bench}/espresso/largest.espresso", OLD_C),
    Program("alloc-test1", "alloc-test/*.cpp", "1", ("-DBENCH=4",)),
    Program("alloc-testN", "alloc-test/*.cpp", "{threads}", ("-DBENCH=4",)),
    Program("larson", "larson/*.cpp", LARSON, ("-DCPP=1",), work=r"Throughput = *(\d+)"),
    Program("larson-sized", "larson/*.cpp", LARSON, SIZED, work=r"Throughput = *(\d+)"),
    Program("xmalloc", "xmalloc-test/*.c", "-w {threads} -t 2 -s 64", work=r"free/sec: *([0-9.]+)"),
    Program("glibc-simple", "glibc-bench/bench-malloc-simple.c", ""),
    Program("glibc-thread", "glibc-bench/bench-malloc-thread.c", "{threads}", work=r"(\d+) iterations"),
    Program("mstress", "mstress/*.c", "{threads} 50 25"),
    Program("rptest", "rptest/*.c", "{threads} 0 1 2 500 1000 100 8 16000", ("-w",)),
    Program("mleak10", "mleak/*.c", "5"),
    Program("mleak100", "mleak/*.c", "50"),
    Program("malloc-large", "malloc-large/malloc-large.cpp", ""),
]  # fmt: skip

STAND_IN = r"""
#include <stdlib.h>
#include <stdio.h>
int main(int count, char** words) {
  void* kept[64] = {0};
  for (unsigned i = 0; i < 20000000; ++i) {
    void** place = kept + i * 2654435761u % 64;
    free(*place);
    *place = malloc(i % 512);
  }
  printf("%d iterations\n", 20000000);
  return 0;
}
"""


def build(program: Program, bench: Path, folder: Path) -> Path | None:
    """The program, or None where the checkout has no such sources."""
    sources = sorted(path for path in bench.glob(program.sources) if path.name not in program.without)
    if not sources:
        return None
    c = sources[0].suffix == ".c"
    compiler = os.environ.get("CC", "cc") if c else os.environ.get("CXX", "c++")
    headers = f"-I{sources[0].parent}"  # rptest names its own in angle brackets
    flags = ["-O3", "-DNDEBUG", "-w", "-pthread", headers, *(() if c else ("-std=c++17",)), *program.flags]
    made = folder / program.name
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(made), "-lm"], check=True)
    return made


def cpu_time(command: list[str], allocator: Allocator, work: str | None) -> float:
    """Seconds of CPU time of one run, over what it did. In the program's folder: some leave files."""
    environment = {**os.environ, **dict(allocator.environment)}
    if allocator.library:
        environment["LD_PRELOAD"] = str(allocator.library)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        command,
        env=environment,
        cwd=Path(command[0]).parent,
        capture_output=True,
        text=True,
        errors="replace",
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        raise SystemExit(f"{command[0]} under {allocator.name}: exit status {run.returncode}\n{run.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if work is None:
        return seconds
    found = re.search(work, run.stdout)
    if found is None or float(found[1]) <= 0:
        raise SystemExit(f"{command[0]} under {allocator.name} does not say what it did: {run.stdout!r}")
    return seconds / float(found[1])


def main() -> None:
    here = [n for n in allocators.NAMES if n == allocators.SYSTEM or allocators.find(n)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="?", help="a clone of mimalloc-bench")
    parser.add_argument("--allocators", default=",".join(here), help="as `memoir bench` takes them")
    parser.add_argument("-n", "--replicates", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--programs", default=",".join(program.name for program in PROGRAMS))
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.smoke:
            options.checkout, options.replicates = folder / "checkout", 2
            options.allocators, options.programs = "system,memoir", "glibc-simple,glibc-thread"
            for program in PROGRAMS:
                if program.name in options.programs.split(","):
                    source = options.checkout / "bench" / program.sources
                    source.parent.mkdir(parents=True, exist_ok=True)
                    source.write_text(STAND_IN)
        if options.checkout is None or not (options.checkout / "bench").is_dir():
            parser.error("name a clone of https://github.com/daanx/mimalloc-bench")
        run(options, options.checkout.resolve() / "bench", folder)


def run(options: argparse.Namespace, bench: Path, folder: Path) -> None:
    chosen = allocators.parse(options.allocators)
    wanted = options.programs.split(",")
    first, others = chosen[0], chosen[1:]
    print(f"{'CPU time over ' + first.name:<24}" + "".join(f"{a.name:>24}" for a in others))
    ratios: dict[str, list[list[float]]] = {a.name: [] for a in others}
    for program in PROGRAMS:
        if program.name not in wanted:
            continue
        made = build(program, bench, folder)
        if made is None:
            print(f"{program.name:<24}  not in this checkout", file=sys.stderr)
            continue
        words = program.arguments.format(bench=bench, threads=options.threads).split()
        times: dict[str, list[float]] = {a.name: [] for a in chosen}
        for replicate in range(options.replicates):
            turn = replicate % len(chosen)
            for allocator in chosen[turn:] + chosen[:turn]:
                times[allocator.name].append(cpu_time([str(made), *words], allocator, program.work))
        line = f"{program.name:<24}"
        for a in others:
            ratio, low, high = ratio_interval(times[first.name], times[a.name])
            ratios[a.name].append([b / t for t, b in zip(times[first.name], times[a.name], strict=True)])
            line += f"{f'{ratio:.3f} [{low:.2f}, {high:.2f}]':>24}"
        print(line, flush=True)
    line = f"{'geometric mean':<24}"
    for a in others:
        means = [geometric_mean(row) for row in zip(*ratios[a.name], strict=True)]  # of each replicate
        ratio, low, high = ratio_interval([1.0] * len(means), means)
        line += f"{f'{ratio:.3f} [{low:.2f}, {high:.2f}]':>24}"
    print(line)


if __name__ == "__main__":
    main()
