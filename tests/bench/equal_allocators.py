# SPDX-License-Identifier: Apache-2.0
"""Reports of benches in which every allocator is the same one: whatever such a report asserts is false.

python tests/bench/equal_allocators.py [--reports N] [--seed N]      exit status 1 when too many assert something
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
from memoir.bench import analysis, verdicts
from memoir.bench.results import Result

KINDS = ("normal", "skewed", "spikes", "drift", "steps")
GRID = {"programs": [{"name": "p", "command": [], "client": [], "metrics": []}], "allocators": []}


def noise(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Of single runs, as logarithms; the last axis is replicates."""
    if kind == "skewed":
        return np.log1p(rng.gamma(1.5, 0.02, shape))
    if kind == "spikes":
        return rng.normal(0.0, 0.01, shape) + (rng.random(shape) < 0.1) * rng.exponential(0.1, shape)
    if kind == "steps":  # a hundredth of a second of a second, as old files have it
        return np.log(np.round(np.exp(rng.normal(0.0, 0.01, shape)), 2))
    level = np.cumsum(rng.normal(0.0, 0.02, shape[-1:])) if kind == "drift" else 0.0
    return level + rng.normal(0.0, 0.02, shape)


def report(rng: np.random.Generator) -> Result:
    """2 to 4 times the same allocator in 1 to 9 groups (threads x load), 3 to 20 replicates."""
    kind = KINDS[rng.integers(len(KINDS))]
    names = [f"a{i}" for i in range(rng.integers(2, 5))]
    threads, loads = [1, 2, 4][: rng.integers(1, 4)], [1, 4, 16][: rng.integers(1, 4)]
    n = int(rng.choice([3, 5, 6, 10, 20]))
    rows = []
    for count in threads:
        for load in loads:
            walls = load * np.exp(noise(kind, rng, (len(names), n)))
            if kind == "steps":
                walls = np.round(walls, 2)
            cpus = walls * np.exp(rng.normal(0.0, 0.01, walls.shape))  # they follow time, as they do in life
            pages = rng.choice([500, 501, 503], walls.shape)
            faults = 600 + rng.integers(0, 2, walls.shape)
            for a, name in enumerate(names):
                for r in range(n):
                    row = {"program": "p", "allocator": name, "threads": count, "load": load}
                    row |= {"work": count * load, "parameters": {}, "replicate": r, "status": "ok"}
                    row |= {"wall": float(walls[a, r]), "user": float(cpus[a, r]), "system": 0.0}
                    row |= {"peak_rss": int(pages[a, r]) * 4096, "minor_faults": int(faults[a, r])}
                    rows.append(row | {"metrics": {}})
    interleaved = bool(rng.random() < 0.8)
    grid = {**GRID, "allocators": [{"name": name} for name in names]}
    return Result({"interleaved": interleaved, "grid": grid}, rows)


def false_reports(number: int, seed: int) -> int:
    """How many of so many reports assert anything at all."""
    rng = np.random.default_rng(seed)
    return sum(bool(verdicts.differences(analysis.analyse_all(report(rng)))) for _ in range(number))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reports", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = false_reports(arguments.reports, arguments.seed)
    allowed = 0.05 * arguments.reports + 3 * math.sqrt(0.05 * 0.95 * arguments.reports)
    print(json.dumps({"done": arguments.reports, "false": wrong, "allowed": round(allowed)}))
    return int(wrong > allowed)


if __name__ == "__main__":
    sys.exit(main())
