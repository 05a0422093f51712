# SPDX-License-Identifier: Apache-2.0
"""memoir's malloc against others: speed on programs that do little but allocate, memory of servers whose load falls.

    python bench/malloc/malloc.py                         speed, all that is found here
    python bench/malloc/malloc.py --memory                memory over load and drop
    python bench/malloc/malloc.py --allocators memoir,jemalloc,mi3=/path/libmimalloc.so.3 --replicates 20

Speed: malloc_programs.cc, run by memoir.bench: interleaved, ratios of CPU time with intervals. Memory: `drop` below
fills a table with blocks of mixed sizes, frees nine in ten at random, and waits. --smoke is for tests: small, and no
result is worth anything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from memoir.bench.experiment import Experiment
from memoir.bench.grid import Grid, Program
from memoir.bench.loop import run_all
from memoir.bench.options import Options
from memoir.bench.process import allocators
from memoir.bench.recording import Recording
from memoir.bench.results import Result

from memoir import malloc

HERE = Path(__file__).parent
PROGRAMS = [
    "factor", "cubes", "table", "table-threads", "simple", "simple-threads", "server", "pipe", "stress", "phases",
    "mortal", "large", "strings",
]  # fmt: skip

DROP = r"""
import sys, time
def held():
    fields = {}
    for line in open("/proc/self/smaps_rollup"):
        words = line.split()
        if len(words) == 3: fields[words[0]] = int(words[1])
    return fields["Rss:"] / 1024, fields["AnonHugePages:"] / 1024, fields["LazyFree:"] / 1024
count, cycles, wait = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
state = 88172645463325252
def random():
    global state
    state ^= (state << 13) & 0xffffffffffffffff; state ^= state >> 7; state ^= (state << 17) & 0xffffffffffffffff
    return state >> 11
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
empty = held()[0]
live = []
import json
for cycle in range(cycles):
    while len(live) < count:
        size = 16 + (random() % 1000) * (random() % 1000) // 250
        block = libc.malloc(size); ctypes.memset(block, 1, size); live.append((block, size))
    time.sleep(1); full = held()
    for i in range(len(live) - 1, count // 10, -1):
        k = random() % (i + 1); live[i], live[k] = live[k], live[i]; libc.free(live.pop()[0])
    time.sleep(wait); after = held()
    print(json.dumps({"cycle": cycle, "full": full[0] - empty, "huge": full[1], "settled": after[0] - empty,
                      "lazy": after[2], "live": sum(size for _, size in live) / 2**20}))
"""


def build(folder: Path) -> Path:
    program = folder / "malloc_programs"
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-O2", "-std=c++20", "-w", "-fno-builtin", "-pthread",
         str(HERE / "malloc_programs.cc"), "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def speed(
    chosen: str, program: Path, replicates: int, scale: int, names: list[str], folder: Path | None
) -> Result:
    """Rows of every program under every allocator, interleaved."""
    grid = Grid(
        programs=tuple(Program(name, (str(program), name, str(scale))) for name in names),
        allocators=tuple(allocators.parse(chosen)),
        threads=(1,),
        loads=(1,),
        parameters=(),
        threads_given=False,
        extra_placeholders=(),
    )
    experiment = Experiment(grid, Options(replicates=replicates, warmup=1))
    experiment.check(lambda line: None)
    with Recording.begin(experiment.header(), folder, notes=experiment.notes) as recording:
        run_all(experiment, recording)
    return recording.result


def memory(chosen: str, count: int, cycles: int, wait: float) -> list[dict]:
    """What `drop` says under each allocator, one after the other."""
    found = []
    for allocator in allocators.parse(chosen):
        environment = {**os.environ, **dict(allocator.environment), "PYTHONMALLOC": "pymalloc"}
        if allocator.library:
            environment["LD_PRELOAD"] = str(allocator.library)
        run = subprocess.run(
            [sys.executable, "-c", DROP, str(count), str(cycles), str(wait)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found += [{"allocator": allocator.name, **json.loads(line)} for line in run.stdout.splitlines()]
    return found


def main() -> None:
    here = [n for n in allocators.NAMES if n == allocators.SYSTEM or allocators.find(n)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--allocators", default=",".join(here), help="as `memoir bench` takes them")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--scale", type=int, default=5)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--objects", type=int, default=400_000, help="of --memory: blocks at the peak")
    parser.add_argument("--cycles", type=int, default=3, help="of --memory: loads and drops")
    parser.add_argument("--wait", type=float, default=6.0, help="of --memory: seconds after a drop")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="keep all rows in this folder")
    options = parser.parse_args()
    malloc.library()
    if options.smoke:
        options.replicates, options.scale = 2, 1
        options.objects, options.cycles, options.wait = 20_000, 1, 0.5
        options.allocators, options.programs = "system,memoir", "simple,stress,large"
    if options.memory:
        print(
            f"{'allocator':<12}{'cycle':>6}{'live':>9}{'full':>9}{'huge %':>8}{'settled':>9}{'/ live':>8}   MiB"
        )
        for row in memory(options.allocators, options.objects, options.cycles, options.wait):
            share = 100 * row["huge"] / row["full"]
            print(
                f"{row['allocator']:<12}{row['cycle']:>6}{row['live']:>9.1f}{row['full']:>9.1f}{share:>8.0f}"
                f"{row['settled']:>9.1f}{row['settled'] / row['live']:>8.2f}"
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        result = speed(
            options.allocators,
            build(Path(folder)),
            options.replicates,
            options.scale,
            options.programs.split(","),
            options.output,
        )
    from memoir.cli.parts import bench_report

    bench_report.present(result, {}, options.output, pictures=False, as_json=False)


if __name__ == "__main__":
    main()
