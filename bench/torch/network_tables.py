#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What networks ask for in one pass, and what it takes to plan that: the MemoMalloc thesis's tables 3.1, 3.3 and 3.4 and
figure 5.1, as tables.

    bench/torch/network_tables.py [--nets resnet50,dcgan] [--batch 1] [--side 128] [--planners ...]
    bench/torch/network_tables.py --smoke                 a small network

Three tables: allocations that the exported graph shows next to those recorded; sizes and rates of the requests; planning
time and arena over load, by planner. Seconds are CPU time, of one thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from datetime import date
from pathlib import Path

import memoir.torch
import nets
import numpy as np
import torch
from memoir.bench.process import machine
from memoir.torch.recording import graph_allocations

import memoir
from memoir import _core

MIB = 2**20
PLANNERS = "bump,greedy_by_size,greedy_by_breadth,best_fit,auto"


def rows(lines: list[list[str]], head: str) -> None:
    cells = head.split(" | ")
    print(f"\n| {head} |\n|---|{'---:|' * (len(cells) - 1)}")
    for line in lines:
        print("| " + " | ".join(line) + " |")


def record(name: str, options: argparse.Namespace) -> tuple[_core.RecordedPass, nets.Workload, float]:
    """One recorded pass, and the CPU seconds that one takes."""
    work = nets.build(name, batch=options.batch, side=options.side)
    arguments = work.arguments()
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        work.module(*arguments)
        times = []
        for _ in range(3):
            begin = time.process_time()
            work.module(*arguments)
            times.append(time.process_time() - begin)
        path = Path(folder, "x.trace")
        memoir.torch.record(work.module, *arguments, path=path, warm_up=0)
        return _core.read_pass(_core.Trace.open(str(path))), work, sorted(times)[1]


def graph_row(name: str, recorded: _core.RecordedPass, work: nets.Workload) -> list[str]:
    total = int(recorded.problem.size.sum()) + recorded.escaping[1]
    try:
        count, size = graph_allocations(work.module, *work.arguments())
        shown = [
            f"{count}",
            f"{count / recorded.allocations:.0%}",
            f"{size / MIB:.1f}",
            f"{size / total:.0%}",
        ]
    except Exception as error:  # what torch.export refuses
        print(f"{name}: no graph: {error!s:.100}", file=sys.stderr)
        shown = ["-", "-", "-", "-"]
    return [name, shown[0], f"{recorded.allocations}", shown[1], shown[2], f"{total / MIB:.1f}", shown[3]]


def size_row(name: str, recorded: _core.RecordedPass, seconds: float) -> list[str]:
    sizes = np.sort(recorded.problem.size.astype(float))
    at = [f"{np.quantile(sizes, share) / 1024:.1f}" for share in (0.1, 0.5, 0.9, 1.0)]
    large = sizes[sizes >= MIB]
    return [
        name,
        f"{recorded.allocations}",
        f"{recorded.allocations / seconds / 1000:.2f}",
        f"{(sizes.sum() + recorded.escaping[1]) / seconds / 2**30:.2f}",
        *at,
        f"{large.size / max(sizes.size, 1):.0%}",
        f"{large.sum() / max(sizes.sum(), 1):.0%}",
    ]


def planner_row(name: str, recorded: _core.RecordedPass, planners: list[str]) -> list[str]:
    problem = recorded.problem
    load = _core.load(problem)
    cells = [name, f"{len(problem.size)}", f"{load / MIB:.2f}"]
    for planner in planners:
        begin = time.process_time()
        made = memoir.plan(problem, planner, **({"threads": 1} if planner in ("auto", "exact") else {}))
        took = time.process_time() - begin
        cells.append(f"{made.arena_size / load:.3f}, {1000 * took:.1f} ms")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="all")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--planners", default=PLANNERS)
    parser.add_argument("--smoke", action="store_true", help="does it work?")
    options = parser.parse_args()
    if options.smoke:
        options.nets, options.side = "dcgan", 64
    names = (
        [name for name in nets.NETS if "_tiny" not in name]
        if options.nets == "all"
        else options.nets.split(",")
    )
    planners = options.planners.split(",")
    torch.set_num_threads(1)
    graphs, sizes, plans = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            recorded, work, seconds = record(name, options)
            graphs.append(graph_row(name, recorded, work))
            sizes.append(size_row(name, recorded, seconds))
            plans.append(planner_row(name, recorded, planners))
            print(f"{name}: done", file=sys.stderr, flush=True)
    print(
        f"{date.today()}; {machine.line(machine.describe())}; torch {torch.__version__}. Batch {options.batch}, side "
        f"{options.side}, 1 thread.",
    )
    exported = sum(row[1] != "-" for row in graphs)
    print(
        f"\nWhat the graph shows (torch.export; {exported} of {len(graphs)} networks) next to what is recorded.",
    )
    rows(graphs, "network | graph | recorded | share | graph, MiB | recorded, MiB | share of bytes")
    rows(
        sizes,
        "network | requests | thousands/CPU s | GiB/CPU s | KiB: 10 % | median | 90 % | largest | of 1 MiB and more "
        "| their bytes",
    )
    rows(plans, "network | buffers | load, MiB | " + " | ".join(planners))


if __name__ == "__main__":
    main()
