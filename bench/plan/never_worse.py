# SPDX-License-Identifier: Apache-2.0
"""`auto` next to every planner of ours that draws or searches, each with the same deadline: on no seed should one of them be
more than 1 % better.

    python bench/plan/never_worse.py -o table.md                  200 seeds: half an hour or more
    python bench/plan/never_worse.py --seeds 300-339              others
    python bench/plan/never_worse.py --smoke                      seconds, for the tests

Each plan is made in this process, one after another, on one thread; who comes first changes from seed to seed. mip and
cpsat take part where their packages are installed, on what is small enough for them.
"""

from __future__ import annotations

import collections
import random as plain_random
import sys
import time

import click
from instances import Arrays, full, random, swept
from memoir.cli.parts.plan_options import seeds_of
from memoir.planning import plan
from memoir.planning.planners import PLANNERS

from memoir import Error

OTHERS = ("exact", "hill_climb", "mip", "cpsat", "first_fit")
MOST = 1.01  # times the other's arena


def problem_of(seed: int, smoke: bool) -> tuple[str, Arrays]:
    """Every kind by turns, of 20 to 3,000 buffers."""
    draw = plain_random.Random(seed)
    count = draw.choice([20, 40] if smoke else [20, 60, 150, 400, 1000, 3000])
    kind = ("random", "full", "swept", "full with 5 % left out")[seed % 4]
    if kind == "random":
        return f"{kind} {count}", random(count, seed)
    if kind == "swept":
        return f"{kind} {count}", swept(count, seed)
    return f"{kind} {count}", full(count, seed, 0.05 if "left" in kind else 0.0)


def arenas(arrays: Arrays, seed: int, deadline: float) -> tuple[dict[str, int], bool]:
    """Of each planner that takes the problem; and whether any of them was kept from a processor."""
    names = ["auto", *OTHERS]
    plain_random.Random(seed).shuffle(names)
    found = {}
    starved = False
    for name in names:
        try:
            result = plan(arrays, name, deadline=deadline, threads=1, seed=seed)
        except Error:  # too large for it, or not installed
            continue
        found[name] = result.arena_size
        starved |= result.starved
    return found, starved


@click.command()
@click.option("-o", "--output", type=click.File("w"), default="-", help="The table, as Markdown.")
@click.option("--seeds", default="1-200", show_default=True, help="Numbers and ranges.")
@click.option("--deadline", type=float, default=1.0, show_default=True, help="Seconds.")
@click.option("--smoke", is_flag=True, help="Small problems, a short deadline.")
def main(output, seeds: str, deadline: float, smoke: bool) -> None:
    """Prints where another planner was better, and by how much."""
    began = time.perf_counter()
    chosen = seeds_of("1-8" if smoke else seeds)
    deadline = 0.1 if smoke else deadline
    assert all(name in PLANNERS for name in OTHERS)
    rows = []
    wins: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in OTHERS}
    worst: dict[str, float] = {}
    starved_at = 0
    for seed in chosen:
        kind, arrays = problem_of(seed, smoke)
        found, starved = arenas(arrays, seed, deadline)
        starved_at += starved
        for name in OTHERS:
            if name not in found:
                continue
            ratio = found["auto"] / found[name]
            worst[name] = max(worst.get(name, 0.0), ratio)
            wins[name]["better" if ratio < 1 else "same" if ratio == 1 else "worse"] += 1
            if ratio > MOST:
                rows.append(f"* seed {seed}, {kind}: auto needs {ratio:.4f} times what {name} needs\n")
    output.write("| planner | seeds | auto smaller | equal | auto larger | worst, auto / planner |\n")
    output.write("|---|---:|---:|---:|---:|---:|\n")
    for name, most in worst.items():
        one = wins[name]
        output.write(
            f"| {name} | {one.total()} | {one['better']} | {one['same']} | {one['worse']} | {most:.4f} |\n"
        )
    output.write(f"\n{len(rows)} of {len(chosen)} seeds are more than 1 % worse.\n")
    output.writelines(rows)
    if starved_at:
        output.write(f"\nOn {starved_at} seeds a search got less than 0.7 of a processor.\n")
    click.echo(f"{time.perf_counter() - began:.0f} s", err=True)


if __name__ == "__main__":
    sys.exit(main())
