#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks on images whose shapes never repeat: memoir.torch.remember next to plain PyTorch under each malloc, in time and
in memory.

    bench/torch/unseen_shapes.py [--nets resnet50,squeezenet1_0] [--shapes 72] [--drawn] [--variants glibc,tcmalloc,memoir]
    bench/torch/unseen_shapes.py --smoke                  a small network, a few shapes, glibc and memoir

A process per allocator; all are alive at once and take turns, shape by shape, in random order. Each process first runs all
shapes plain, so that the kernels are compiled, and gives free memory back; then each shape is run once. Time is CPU time,
which neighbours on the machine change least. Memory is the peak of anonymous memory in the passes, and how much of it came
with them. Shapes grow by a row each time (--drawn: both sides are drawn).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import warnings
from datetime import date

import numpy as np
from latency import process
from latency.variants import DEFAULT, VARIANTS, environment, why_unavailable
from memoir.bench.grid import shuffled
from memoir.bench.process import machine
from memoir.bench.statistics import ratio_interval

MIB = 2**20


def sides(options: argparse.Namespace) -> list[tuple[int, int]]:
    if not options.drawn:
        return [(options.side + i, options.side) for i in range(options.shapes)]
    generator = random.Random(options.seed)
    drawn: dict[tuple[int, int], None] = {}
    while len(drawn) < options.shapes:
        least, most = options.side * 3 // 4, options.side * 2
        drawn[generator.randint(least, most), generator.randint(least, most)] = None
    return list(drawn)


def work(options: argparse.Namespace) -> None:
    """The process of one allocator: runs the shapes that its standard input names."""
    import nets
    import torch

    torch.set_num_threads(1)
    module = nets.build(options.work, batch=1, side=options.side).module
    shapes = sides(options)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for height, width in shapes:
            module(torch.randn(1, 3, height, width))
        if VARIANTS[options.variants].remember:
            import memoir.torch

            module = memoir.torch.remember(module)
        process.give_back_free_memory()
        process.reset_peak()
        before = process.memory()["anonymous"]
        print(json.dumps({"library": process.malloc_library()}), flush=True)
        for line in sys.stdin:
            if not line.strip():
                break
            height, width = shapes[int(line)]
            x = torch.randn(1, 3, height, width)
            begin = time.process_time_ns()
            result = module(x)
            took = time.process_time_ns() - begin
            del x, result
            print(json.dumps({"ns": took}), flush=True)
        last = {"peak": process.peak_anonymous(), "before": before}
        if VARIANTS[options.variants].remember:
            stats = memoir.torch.stats(module)
            last |= {"recorded": stats.recorded_passes, "in step": stats.in_step_passes}
            last["planned"] = stats.planned / max(stats.planned + stats.fallen_back, 1)
        print(json.dumps(last), flush=True)


def start(net: str, name: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", net, "--variants", name, "--side", str(options.side)]
    command += ["--shapes", str(options.shapes), "--seed", str(options.seed)] + ["--drawn"] * options.drawn
    # All shapes' kernels are kept, for all alike.
    variables = environment(VARIANTS[name]) | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "100000"}
    return subprocess.Popen(
        command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(worker: subprocess.Popen[str], line: str | None) -> dict:
    if line is not None:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise SystemExit(f"{worker.args}: ended with {worker.wait()}")
    return json.loads(answer)


def measure(net: str, names: list[str], options: argparse.Namespace) -> None:
    workers = {name: start(net, name, options) for name in names}
    for name, worker in workers.items():
        library = ask(worker, None)["library"]
        wanted = VARIANTS[name].library
        if wanted is not None and os.path.realpath(library) != os.path.realpath(wanted):
            raise SystemExit(f"{name}: malloc is {library}")
    times: dict[str, list[float]] = {name: [] for name in names}
    for shape in range(options.shapes):
        for name in shuffled(names, f"{net}:{shape}"):
            times[name].append(ask(workers[name], str(shape))["ns"])
    for name, worker in workers.items():
        last = ask(worker, "")
        worker.wait()
        cells = [net, name]
        if name == "memoir":
            cells.append("1")
        else:
            ratio, low, high = ratio_interval(np.array(times[name]), np.array(times["memoir"]))
            cells.append(f"{ratio:.3f} [{low:.3f}, {high:.3f}]")
        cells += [f"{last['peak'] / MIB:.1f}", f"{(last['peak'] - last['before']) / MIB:.1f}"]
        how = ""
        if "recorded" in last:
            how = f"{last['recorded']} recorded, {last['in step']} in step, {last['planned']:.1%} planned"
        print("| " + " | ".join([*cells, how]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="resnet50,squeezenet1_0")
    parser.add_argument("--shapes", type=int, default=72)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--variants", default=",".join(DEFAULT))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="does it work?")
    options = parser.parse_args()
    if options.work:
        return work(options)
    if options.smoke:
        options.nets, options.shapes, options.side, options.variants = "dcgan", 4, 64, "glibc,memoir"
    names = []
    for name in options.variants.split(","):
        if why := why_unavailable(VARIANTS[name]):
            print(f"{name}: {why}", file=sys.stderr)
        else:
            names.append(name)
    if "memoir" not in names:
        raise SystemExit("memoir is not among the variants that can run")
    print(f"{date.today()}; {machine.line(machine.describe())}.\n")
    print("| network | under | memoir's CPU time / this one's [95 %] | peak, MiB | of the passes, MiB | |")
    print("|---|---|---:|---:|---:|---|")
    for net in options.nets.split(","):
        measure(net, names, options)


if __name__ == "__main__":
    main()
