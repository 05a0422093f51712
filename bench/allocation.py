#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of one tensor's allocation and free, from a slab and from each malloc, on a recorded pass of ResNet-50.

    bench/allocation.py [--passes 300] [-o docs/results/allocation.md]

Builds bench/allocation.cc against the torch of this Python, records the pass, and runs the program under each malloc that
is installed, several times in a shuffled order. The clock's own cost is taken off; its step is about 10 ns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MALLOCS = {
    "glibc": None,
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2",
}
FOLDERS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
]


def library(name: str) -> str | None:
    return next((str(path) for folder in FOLDERS if (path := Path(folder) / name).exists()), None)


def build(torch_root: Path) -> Path:
    folder = ROOT / "build" / "bench"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for step in (
        ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), f"-DMEMOIR_TORCH={torch_root}"],
        ["cmake", "--build", str(folder), "--target", "bench_allocation"],
    ):
        subprocess.run(step, check=True, stdout=sys.stderr, env=dict(os.environ, PATH=path))
    return folder / "bench" / "bench_allocation"


def record(path: Path) -> Path:
    import memoir.torch
    import torch
    import torchvision

    net = torchvision.models.resnet50(weights=None).eval()
    with torch.inference_mode():
        memoir.torch.record(net, torch.randn(1, 3, 128, 128), path=path)
    return Path(torch.__file__).parent


def run(program: Path, trace: Path, mode: str, malloc: str | None, passes: int) -> dict[str, dict]:
    environment = dict(os.environ)
    if malloc is not None:
        environment["LD_PRELOAD"] = malloc
    done = subprocess.run(
        [program, trace, mode, str(passes)], check=True, capture_output=True, text=True, env=environment
    )
    return {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=300, help="passes a run")
    parser.add_argument(
        "--runs", type=int, default=7, help="runs of each way, interleaved; medians are shown"
    )
    parser.add_argument("-o", "--output", help="write the table here too")
    options = parser.parse_args()
    ways = {"memoir, in step": ("planned", None), "memoir, matching by operator": ("scoped", None)}
    for name, file in MALLOCS.items():
        found = file and library(file)
        if file and not found:
            print(f"{name}: not installed, left out", file=sys.stderr)
        else:
            ways[f"PyTorch on {name}"] = ("plain", found)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "resnet50.trace"
        program = build(record(trace))
        results: dict[str, list[dict]] = {way: [] for way in ways}
        for _ in range(options.runs):
            for way in random.sample(list(ways), len(ways)):
                results[way].append(run(program, trace, *ways[way], options.passes))
    lines = [
        "| ns | allocate p50 | p99 | p99.9 | free p50 | p99 | p99.9 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way, runs in results.items():
        cells = [
            f"{median([run[what][column] for run in runs]):.0f}"
            for what in ("allocate", "free")
            for column in ("p50", "p99", "p99.9")
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    scope = "entering one operator scope"
    costs = [run[scope]["p50"] for runs in results.values() for run in runs if scope in run]
    lines += ["", f"Entering one operator scope (at::RecordFunction): {median(costs):.0f} ns at the median."]
    print("\n".join(lines))
    if options.output:
        Path(options.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
