#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of one tensor's allocation and free, from a slab and from each malloc, on a recorded pass of ResNet-50.

    bench/torch/allocation.py [--passes 300] [-o allocation.md]
    bench/torch/allocation.py --smoke                              does it build and run? A small network, three passes

Builds bench/torch/allocation.cc against the torch of this Python, records the pass, and runs the program under each malloc that
is installed, several times in a shuffled order. The clock's own cost is taken off; its step is about 10 ns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import median_high

from memoir.bench.grid import shuffled
from memoir.bench.process import allocators, machine, proof
from memoir.bench.process.allocators import Allocator

ROOT = Path(__file__).resolve().parents[2]
MALLOCS = {"glibc": allocators.SYSTEM, "jemalloc": "jemalloc", "tcmalloc": "tcmalloc", "mimalloc": "mimalloc"}


def installed() -> dict[str, Allocator]:
    """The mallocs that are here, by the name of the table."""
    found = {}
    for name, known in MALLOCS.items():
        library = None if known == allocators.SYSTEM else allocators.find(known)
        if known != allocators.SYSTEM and library is None:
            print(f"{name}: not installed, left out ({allocators.KNOWN[known].package})", file=sys.stderr)
        else:
            found[name] = Allocator(name, library)
    return found


def build(torch_root: Path) -> Path:
    """The program, built next to everything else where `make dev` has built it, else in a folder of its own."""
    folder = ROOT / "build" / "release"
    if not (folder / "CMakeCache.txt").exists():
        folder = ROOT / "build" / "bench"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), f"-DMEMOIR_TORCH={torch_root}"]
    if not (folder / "CMakeCache.txt").exists():
        configure += ["-G", "Ninja"]
    for step in (configure, ["cmake", "--build", str(folder), "--target", "bench_allocation"]):
        subprocess.run(step, check=True, stdout=sys.stderr, env=dict(os.environ, PATH=path))
    return folder / "bench" / "bench_allocation"


def record(path: Path, side: int = 128) -> Path:
    """Writes the trace of one pass; returns the folder of torch."""
    import memoir.torch
    import torch
    import torchvision

    net = torchvision.models.resnet50(weights=None).eval()
    with torch.inference_mode():
        memoir.torch.record(net, torch.randn(1, 3, side, side), path=path)
    return Path(torch.__file__).parent


def run(program: Path, arguments: list[str], malloc: Allocator) -> dict[str, dict]:
    preload = () if malloc.library is None else (str(malloc.library),)
    environment = os.environ | proof.environment_for(preload, malloc)
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True, env=environment)
    return {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=300, help="passes a run")
    parser.add_argument(
        "--runs", type=int, default=7, help="runs of each way, interleaved; medians are shown"
    )
    parser.add_argument("-o", "--output", help="write the table here too")
    parser.add_argument("--smoke", action="store_true", help="one short run of each way; no table is kept")
    options = parser.parse_args()
    if options.smoke:
        options.passes, options.runs, options.output = 3, 1, None
    mallocs = installed()
    ways = {"memoir, in step": ("planned", "glibc"), "memoir, matching by operator": ("scoped", "glibc")}
    ways |= {f"PyTorch on {name}": ("plain", name) for name in mallocs}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "resnet50.trace"
        program = build(record(trace, side=64 if options.smoke else 128))
        if options.smoke:
            run(program, ["--smoke", str(trace)], mallocs["glibc"])
        results: dict[str, list[dict]] = {way: [] for way in ways}
        for number in range(options.runs):
            for way in shuffled(list(ways), f"allocation:{number}"):
                mode, malloc = ways[way]
                results[way].append(run(program, [str(trace), mode, str(options.passes)], mallocs[malloc]))
    lines = [
        "# One tensor: allocation and free\n",
        "The tensors of a pass of ResNet-50, one thread, nanoseconds: lower is better. Medians of "
        f"{options.runs} runs of {options.passes} passes, by `bench/torch/allocation.py`.\n",
        f"{date.today()}; {machine.line(machine.describe())}.\n",
        "| ns | allocate p50 | p99 | p99.9 | free p50 | p99 | p99.9 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way, runs in results.items():
        cells = [
            f"{median_high([run[what][column] for run in runs]):.0f}"
            for what in ("allocate", "free")
            for column in ("p50", "p99", "p99.9")
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    scope = "entering one operator scope"
    costs = [run[scope]["p50"] for runs in results.values() for run in runs if scope in run]
    lines += [
        "",
        f"Entering one operator scope (at::RecordFunction): {median_high(costs):.0f} ns at the median.",
    ]
    print("\n".join(lines))
    if options.output:
        Path(options.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
