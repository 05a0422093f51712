#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a remembered model costs when nothing ever repeats: every call brings a new input shape. The first calls are
recorded; later ones follow plans that are made of what those allocated.

    bench/torch/recording_overhead.py [--nets squeezenet1_0,resnet50] [--shapes 60]
    bench/torch/recording_overhead.py --smoke                     a small network

Each shape is run once untimed (PyTorch makes its own caches for it), then once plain and once remembered, in random order.
"""

from __future__ import annotations

import argparse
import time
import warnings

import memoir.torch
import nets
import numpy as np
import torch
from memoir.bench.grid import shuffled
from memoir.bench.statistics import ratio_interval

AT_ONCE = 8  # calls in which the shapes are new that sizes are guessed from


def seconds(function, x) -> float:
    begin = time.perf_counter()
    function(x)
    return time.perf_counter() - begin


def measure(name: str, shapes: int, side: int = 128) -> dict[str, tuple[float, float, float]]:
    """Ratios remembered / plain with 95 % intervals: of the first shapes, and of those that plans are derived for."""
    network = nets.build(name, batch=1, side=side)
    rows = []
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = memoir.torch.remember(network.module)
        for i in range(shapes):
            x = torch.randn(1, 3, side + i, side)
            network.module(x)
            ways = {"plain": network.module, "remembered": model}
            times = {way: seconds(ways[way], x) for way in shuffled(list(ways), f"{name}:{i}")}
            rows.append((times["plain"], times["remembered"]))
    plain, remembered = np.array(rows).T
    return {
        f"the first {AT_ONCE} shapes": ratio_interval(plain[:AT_ONCE], remembered[:AT_ONCE]),
        "later shapes": ratio_interval(plain[AT_ONCE:], remembered[AT_ONCE:]),
        "all": ratio_interval(plain, remembered),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="squeezenet1_0,resnet50")
    parser.add_argument("--shapes", type=int, default=72)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="does it work? one small network")
    options = parser.parse_args()
    side = 128
    if options.smoke:
        options.nets, options.shapes, side = "dcgan", AT_ONCE + 3, 64
    torch.set_num_threads(options.threads)
    print("| network | passes | remembered / plain [95 %] |\n|---|---|---:|")
    for name in options.nets.split(","):
        for what, (ratio, low, high) in measure(name, options.shapes, side).items():
            print(f"| {name} | {what} | {ratio:.3f} [{low:.3f}, {high:.3f}] |", flush=True)


if __name__ == "__main__":
    main()
