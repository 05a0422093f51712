# SPDX-License-Identifier: Apache-2.0
"""Which buffers go to the small fast arenas: what `auto` pays, next to what is proven and to an integer program.

    python bench/plan/arenas.py -o table.md                   half an hour or more
    python bench/plan/arenas.py --seeds 30-34                 other seeds
    python bench/plan/arenas.py --smoke                       seconds, for the tests

The program (HiGHS, where highspy is installed) knows no offsets: of the buffers that go to an arena, no tick holds more bytes
than it has. So no plan costs less than what it proves, and no plan may cost as little. Each plan has one thread; cost is the
sum over the buffers of their weights times their arenas' costs.
"""

from __future__ import annotations

import math
import sys
import time

import click
import numpy as np
from instances import Arrays, clustered, load_of, random, swept, weights_of
from memoir.cli.parts.plan_options import seeds_of
from memoir.planning import plan

from memoir import Arena

KINDS = {"clustered": clustered, "random": random, "swept": swept}
# Of the load, the fast arenas' capacities; what a unit of weight costs in each, and at last in the slow one.
MEMORIES = {
    "a fifth": ([0.2], [1, 20]),
    "half": ([0.5], [1, 20]),
    "an eighth, a quarter": ([0.125, 0.25], [1, 4, 20]),
}


def live_sets(arrays: Arrays) -> list[np.ndarray]:
    """The maximal ones, each as the indices of its buffers."""
    lower, upper, _ = arrays
    sets = []
    births = np.unique(lower)
    for tick, following in zip(births, [*births[1:], None], strict=True):
        if following is None or ((upper > tick) & (upper <= following)).any():
            sets.append(np.flatnonzero((lower <= tick) & (upper > tick)))
    return sets


def program(arrays: Arrays, weights: np.ndarray, capacities: list[int], costs: list[int], deadline: float):
    """Of the integer program: the cost that is found, and the one that is proven. None without highspy."""
    try:
        import highspy
    except ImportError:
        return None
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("time_limit", deadline)
    highs.setOptionValue("threads", 1)
    size, fast = arrays[2], len(capacities)
    for i, weight in enumerate(weights.tolist()):
        for k, capacity in enumerate(capacities):
            highs.addVar(0, 1 if size[i] <= capacity else 0)
            highs.changeColCost(i * fast + k, -float(weight * (costs[-1] - costs[k])))
    for live in live_sets(arrays):
        for k, capacity in enumerate(capacities):
            columns = (live * fast + k).astype(np.int32)
            highs.addRow(-highspy.kHighsInf, capacity, len(live), columns, size[live].astype(float))
    for i in range(len(size) if fast > 1 else 0):
        columns = np.arange(i * fast, (i + 1) * fast, dtype=np.int32)
        highs.addRow(-highspy.kHighsInf, 1, fast, columns, np.ones(fast))
    every = np.arange(len(size) * fast, dtype=np.int32)
    highs.changeColsIntegrality(len(every), every, np.array([highspy.HighsVarType.kInteger] * len(every)))
    highs.run()
    info, all_slow = highs.getInfo(), int(weights.sum()) * costs[-1]
    return all_slow + info.objective_function_value, all_slow + info.mip_dual_bound


@click.command()
@click.option("-o", "--output", type=click.File("w"), default="-", help="The table, as Markdown.")
@click.option("--seeds", default="21-23", show_default=True, help="Numbers and ranges.")
@click.option("--counts", default="200,2000", show_default=True, help="Buffers.")
@click.option("--deadline", type=float, default=5.0, show_default=True, help="Seconds of a plan.")
@click.option("--program/--no-program", "ask", default=True, help="Run the integer program too.")
@click.option("--smoke", is_flag=True, help="Small problems, a short deadline.")
def main(output, seeds: str, counts: str, deadline: float, ask: bool, smoke: bool) -> None:
    """Prints geometric means over the seeds, and the worst."""
    began = time.perf_counter()
    chosen, deadline = seeds_of("1-2" if smoke else seeds), 0.1 if smoke else deadline
    output.write(
        "| problems | fast arenas, of the load | cost / proven cost | worst | cost / the program's bound | worst "
        "| the program's own gap |\n|---|---|---:|---:|---:|---:|---:|\n"
    )
    for kind, make in KINDS.items():
        for count in [40] if smoke else map(int, counts.split(",")):
            for memory, (shares, costs) in MEMORIES.items():
                proven, ideal, gap = [], [], []
                for seed in chosen:
                    arrays = make(count, seed)
                    weights = weights_of(arrays, seed)
                    capacities = [int(share * load_of(arrays)) // 64 * 64 for share in shares]
                    arenas = [Arena(f"fast{k}", c, costs[k]) for k, c in enumerate(capacities)]
                    found = plan(
                        dict(zip(("lower", "upper", "size"), arrays, strict=True)) | {"weight": weights},
                        arenas=[*arenas, Arena("slow", cost=costs[-1])],
                        deadline=deadline,
                        seed=seed,
                    )
                    if not found.fits or found.cost < found.lower_bound_cost:
                        raise SystemExit(f"{kind} {count}, seed {seed}: a plan that cannot be")
                    proven.append(found.cost / found.lower_bound_cost)
                    best = program(arrays, weights, capacities, costs, 2 * deadline) if ask else None
                    if best:
                        ideal.append(found.cost / best[1])
                        gap.append(best[0] / best[1])

                def mean(ratios: list[float]) -> str:
                    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.4f}" if ratios else ""

                def most(ratios: list[float]) -> str:
                    return f"{max(ratios):.4f}" if ratios else ""

                output.write(
                    f"| {kind} {count:,} | {memory} | {mean(proven)} | {most(proven)} | {mean(ideal)} | {most(ideal)} "
                    f"| {mean(gap)} |\n"
                )
                output.flush()
    click.echo(f"{time.perf_counter() - began:.0f} s", err=True)


if __name__ == "__main__":
    sys.exit(main())
