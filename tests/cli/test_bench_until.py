# SPDX-License-Identifier: Apache-2.0
"""What the progress of a bench says of its end."""

import math
import random

from memoir.bench import Experiment, Grid, Options, Program, analysis
from memoir.bench.process.allocators import Allocator
from memoir.bench.results import Result
from memoir.cli.parts.bench_report import Progress


def progress_of(until, budget=1e6, noise=0.05, replicates=6, clock=None):
    """(number, what the bar held for the whole) after each replicate of a bench that goes on until it is narrow."""
    grid = Grid((Program("p", ("x",)),), (Allocator("a"), Allocator("b")))
    options = Options(replicates=replicates, warmup=1, until=until, budget=budget)
    draw, result = random.Random(5), Result({"interleaved": True}, [])
    progress = Progress(Experiment(grid, options), result, {})
    seen, number = [], 0
    while number < 400:
        if number >= replicates and analysis.widest(result) <= until:
            break
        for name in ("a", "b"):
            row = {"program": "p", "allocator": name, "threads": 1, "load": 1, "work": 1, "parameters": {}}
            row |= {
                "replicate": number,
                "status": "ok",
                "wall": math.exp(draw.gauss(0, noise)),
                "metrics": {},
            }
            result.rows.append(row)
            progress.on_run("replicate", row)
        number += 1
        seen.append((number, progress.total() // 2 - 1))
    return number, seen


def test_the_bar_of_until_is_about_as_long_as_the_bench_will_be(capsys):
    number, seen = progress_of(until=0.02)
    assert number > 30
    late = [whole for at, whole in seen if at >= number / 2]
    assert all(0.6 * number <= whole <= 1.7 * number for whole in late), (number, late)
    assert all(whole >= at for at, whole in seen)
    said = capsys.readouterr().err
    assert "replicate 6/about " in said and "replicate 6/6" not in said


def test_the_bar_ends_where_the_budget_does():
    grid = Grid((Program("p", ("x",)),), (Allocator("a"), Allocator("b")))
    result = Result({"interleaved": True}, [])
    progress = Progress(Experiment(grid, Options(replicates=2, until=0.001, budget=1e-9)), result, {})
    for number in range(3):
        for name, wall in (("a", 1.0 + number / 10), ("b", 2.0 - number / 10)):
            row = {"program": "p", "allocator": name, "threads": 1, "load": 1, "work": 1, "parameters": {}}
            row |= {"replicate": number, "status": "ok", "wall": wall, "metrics": {}}
            result.rows.append(row)
            progress.on_run("replicate", row)
    assert progress.total() == 2 * (1 + 3)
