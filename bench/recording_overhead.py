#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a remembered model costs when nothing ever repeats: every call brings a new input shape, so every call is recorded
(or, after the first few, looked at and let through), and no plan is ever followed.

    bench/recording_overhead.py [--nets squeezenet1_0,resnet50] [--shapes 60]

Each shape is run once untimed (PyTorch makes its own caches for it), then once plain and once remembered, in random order.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import memoir.torch  # noqa: E402
import nets  # noqa: E402
from memoir.bench.statistics import ratio_interval  # noqa: E402
from memoir.torch.memory import FIRST_SIGHTS_RECORDED as AT_ONCE  # noqa: E402


def seconds(function, x) -> float:
    begin = time.perf_counter()
    function(x)
    return time.perf_counter() - begin


def measure(name: str, shapes: int, random_source: random.Random) -> dict[str, tuple[float, float, float]]:
    """Ratios remembered / plain with 95 % intervals: while shapes are recorded, and after memoir has stopped doing so."""
    network = nets.build(name, batch=1, side=128)
    rows = []
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = memoir.torch.remember(network.module)
        for i in range(shapes):
            x = torch.randn(1, 3, 128 + i, 128)
            network.module(x)
            ways = {"plain": network.module, "remembered": model}
            order = random_source.sample(list(ways), 2)
            times = {way: seconds(ways[way], x) for way in order}
            rows.append((times["plain"], times["remembered"]))
    plain, remembered = np.array(rows).T
    return {
        f"the first {AT_ONCE} shapes, recorded": ratio_interval(plain[:AT_ONCE], remembered[:AT_ONCE]),
        "later shapes, not recorded": ratio_interval(plain[AT_ONCE:], remembered[AT_ONCE:]),
        "all": ratio_interval(plain, remembered),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="squeezenet1_0,resnet50")
    parser.add_argument("--shapes", type=int, default=72)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    random_source = random.Random(0)
    print("| network | passes | remembered / plain [95 %] |\n|---|---|---:|")
    for name in options.nets.split(","):
        for what, (ratio, low, high) in measure(name, options.shapes, random_source).items():
            print(f"| {name} | {what} | {ratio:.3f} [{low:.3f}, {high:.3f}] |", flush=True)


if __name__ == "__main__":
    main()
