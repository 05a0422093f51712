# SPDX-License-Identifier: Apache-2.0
"""Planners against each other: arena over load and seconds for each problem, and who has what by when.

    python bench/plan/planners.py -o docs/planners-table.md --picture docs/notebook/plan/anytime.svg
    python bench/plan/planners.py --smoke                      a second, for the tests

The peers' figures were measured on two cores of the same kind, not in this run: minimalloc and idealloc are
no Python packages.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import numpy as np
from instances import random, training
from memoir.bench.statistics import geometric_mean

from memoir import _core

DATA = Path(__file__).parents[2] / "tests" / "data" / "planning"
SHARED = Path(__file__).parents[3] / "shared" / "planning"
CHALLENGING = 1_048_576  # bytes: the capacity of minimalloc's challenging instances
MINIMALLOC = {
    "A": 5.2,
    "C": 0.69,
    "D": 2.8,
    "E": 3.5,
    "G": 1.2,
    "J": 1.0,
    "K": 0.62,
}  # CPU s, with the capacity given
IDEALLOC = {
    "ResNet-50": (1.0064, None),
    "G_1": (1.0028, None),
    "S_1": (1.029, 6.7),
    "random 10^4": (1.0, 0.3),
}
IDEALLOC |= {"training 10^4": (1.006, 0.3), "random 10^5": (1.023, 3.7), "random 10^6": (1.080, 54.0)}
IDEALLOC |= {"training 10^6": (1.0, 16.0)}


def from_csv(path: Path) -> _core.Problem:
    return _core.read_csv(str(path)).problem


def from_arrays(arrays) -> _core.Problem:
    lower, upper, size = arrays
    return _core.Problem(lower=lower, upper=upper, size=size, alignment=np.ones(len(size), np.uint64))


def at_capacity(names: list[str]) -> list[str]:
    rows = [
        "| instance | buffers | minimalloc, CPU s | exact, s | CPU s | times faster (CPU) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for name in names:
        problem = from_csv(DATA / "minimalloc" / f"{name}.{CHALLENGING}.csv")
        runs = []
        for _ in range(5):
            began, cpu = time.perf_counter(), time.process_time()
            found = _core.search(problem, exact=True, deadline=60.0, capacity=CHALLENGING)
            runs.append((time.process_time() - cpu, time.perf_counter() - began))
            assert found.arena_size <= CHALLENGING
        cpu, wall = sorted(runs)[len(runs) // 2]
        ratios.append(MINIMALLOC[name] / cpu)
        rows.append(
            f"| {name} | {len(problem)} | {MINIMALLOC[name]} | {wall:.4f} | {cpu:.4f} | {ratios[-1]:,.0f} |"
        )
    rows.append(f"| geometric mean | | | | | {geometric_mean(ratios):,.0f} |")
    return rows


def minimised(problems: dict[str, tuple[_core.Problem, float]]) -> list[str]:
    rows = ["| problem | buffers | arena / load | arena | bound | s | CPU s | idealloc: arena / load, s |"]
    rows += ["|---|---:|---:|---:|---:|---:|---:|---|"]
    for name, (problem, deadline) in problems.items():
        began, cpu = time.perf_counter(), time.process_time()
        found = _core.search(problem, deadline=deadline)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert _core.check(problem, found.plan) is None
        load = _core.load(problem)
        proof = f"{found.lower_bound:,}" + (", proven" if found.optimal else "")
        ratio, seconds = IDEALLOC.get(name, (None, None))
        peer = "" if ratio is None else f"{ratio:.4f}" + (f", {seconds}" if seconds else "")
        rows.append(
            f"| {name} | {len(problem):,} | {found.arena_size / load:.5f} | {found.arena_size:,} | {proof} "
            f"| {wall:.3f} | {cpu:.3f} | {peer} |"
        )
    return rows


Curve = tuple[list[float], list[int]]  # seconds, and the bytes of the best arena from then on


def picture(problems: dict[str, tuple[_core.Problem, float]], path: Path, seconds: float) -> None:
    """The best arena against time, one line per problem and anytime planner."""
    curves: dict[str, tuple[int, dict[str, Curve]]] = {}
    for name, (problem, _) in problems.items():
        lines = {}
        for planner in ("auto", "exact"):
            found = _core.search(problem, exact=planner == "exact", deadline=seconds)
            times = [max(t, 1e-4) for t, _ in found.improvements] + [seconds]
            lines[planner] = times, [size for _, size in found.improvements] + [found.arena_size]
        curves[name] = found.lower_bound, lines
    draw(curves, path)


def draw(curves: dict[str, tuple[int, dict[str, Curve]]], path: Path) -> None:
    """By problem: its floor, and the curve of each planner."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(curves), figsize=(4.5 * len(curves), 3.8), squeeze=False, layout="constrained"
    )
    for axis, (name, (floor, lines)) in zip(axes[0], curves.items(), strict=True):
        for planner, (times, sizes) in lines.items():
            axis.step(times, [size / 2**10 for size in sizes], where="post", label=planner)
        axis.axhline(floor / 2**10, color="black", linewidth=0.8, linestyle="--", label="floor")
        axis.set(xscale="log", xlabel="seconds of search", ylabel="arena, KiB", title=f"minimalloc's {name}")
        axis.legend(frameon=False)
    figure.suptitle("The best arena found so far (lower is better)")
    with matplotlib.rc_context({"svg.hashsalt": "memoir"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


@click.command()
@click.option("-o", "--output", type=click.File("w"), default="-", help="The tables, as Markdown.")
@click.option(
    "--picture", "picture_path", type=click.Path(path_type=Path), help="The anytime picture (PNG or SVG)."
)
@click.option("--picture-seconds", type=float, default=60.0, show_default=True)
@click.option(
    "--largest", type=int, default=10**6, show_default=True, help="Buffers of the largest synthetic problem."
)
@click.option("--smoke", is_flag=True, help="Small problems and short deadlines only.")
def main(output, picture_path: Path | None, picture_seconds: float, largest: int, smoke: bool) -> None:
    """Prints what docs/notebook/plan/the-smallest-arena.md holds."""
    challenging = {
        name: (from_csv(DATA / "minimalloc" / f"{name}.{CHALLENGING}.csv"), 0.1 if smoke else 10.0)
        for name in "ACDEGJK"
    }
    problems = dict(challenging)
    problems["ResNet-50"] = (from_csv(DATA / "somas" / "resnet50.csv"), 10.0)
    problems["G_1"] = (from_csv(DATA / "iopddl" / "G_1.csv"), 10.0)
    if not smoke:
        if (SHARED / "iopddl" / "S_1.csv").exists():
            problems["S_1"] = (from_csv(SHARED / "iopddl" / "S_1.csv"), 20.0)
        for power in (4, 5, 6):
            if 10**power <= largest:
                problems[f"random 10^{power}"] = (from_arrays(random(10**power)), 20.0)
                problems[f"training 10^{power}"] = (from_arrays(training(10**power)), 20.0)
    output.write("\n".join(at_capacity(list("CK" if smoke else MINIMALLOC))) + "\n\n")
    output.write("\n".join(minimised(problems)) + "\n")
    if picture_path:
        picture({name: challenging[name] for name in "DJ"}, picture_path, picture_seconds)


if __name__ == "__main__":
    sys.exit(main())
