# SPDX-License-Identifier: Apache-2.0
"""The planner `auto` on problems that nobody has tuned it to: drawn from seeds, and known ones told otherwise.

    python bench/plan/search.py -o table.md                       a quarter of an hour
    python bench/plan/search.py --against OTHER/bin/python        the same with the memoir that another Python has, in turn
    python bench/plan/search.py --only-known --instances FOLDER   minimalloc's instances there, also by the search's seed
    python bench/plan/search.py --smoke                           a second, for the tests

Each run is a process of its own; where there are two memoirs they take turns. Seconds are CPU time of all threads of
the search, which other work on the machine changes little; the deadline is wall time.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from instances import Arrays, fixed_of, full, gaps_of, holes_of, random, retold, stencils, streamed, swept
from memoir.bench.statistics import geometric_mean

from memoir import _core

DATA = Path(__file__).parents[2] / "tests" / "data" / "planning"
SHARED = Path(__file__).parents[3] / "shared" / "planning"
CHALLENGING = 1_048_576  # bytes: the capacity of minimalloc's challenging instances
CHEAP = ("best_fit", "greedy_by_size", "greedy_by_breadth", "gergov")
FULL_SEED, RANDOM_SEED, SAID_SEED, LOOP_SEED = 1000, 2000, 5000, 200  # what was tuned was tuned on others

ONE = """
import json, sys, time
from memoir import _core
path, deadline, capacity, cheap, seed = json.loads(sys.argv[1])
problem = _core.read_csv(path).problem
load = _core.load(problem)
cpu = time.process_time()
found = _core.search(problem, deadline=deadline, seed=seed, **({"capacity": capacity} if capacity else {}))
cpu = time.process_time() - cpu
assert _core.check(problem, found.plan) is None
best = min((_core.run_planner(name, problem).arena_size for name in cheap), default=0)
print(json.dumps([found.arena_size / load, cpu, best / load, found.arena_size]))
"""


def write(arrays: Arrays, folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv"
    rows = zip(*(values.tolist() for values in arrays), strict=True)
    lines = [f"{k},{lower},{upper},{size}\n" for k, (lower, upper, size) in enumerate(rows)]
    path.write_text("id,lower,upper,size\n" + "".join(lines))
    return path


def one(
    python: str, path: Path, deadline: float, capacity: int = 0, cheap: tuple[str, ...] = (), seed: int = 0
) -> list[float]:
    said = json.dumps([str(path), deadline, capacity, cheap, seed])
    done = subprocess.run([python, "-c", ONE, said], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def arrays_of(path: Path) -> Arrays:
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding=None)
    return tuple(table[name].astype(np.uint64) for name in ("lower", "upper", "size"))


def stretched(pythons: list[str], known: list[Path], copies: int, folder: Path) -> list[str]:
    """minimalloc's instances at their capacity, told otherwise each time."""
    told = {}
    for path in known:
        arrays = arrays_of(path)
        copy = [write(retold(arrays, seed), folder, f"{path.stem}_{seed}") for seed in range(copies)]
        told[name_of(path)] = [(path, 0) for path in copy]
    return at_capacity(pythons, told)


def drawn(pythons: list[str], known: list[Path], seeds: int) -> list[str]:
    """The same as they are, with other seeds of the search: how much of its time is luck."""
    return at_capacity(
        pythons, {name_of(path): [(path, seed) for seed in range(1, seeds + 1)] for path in known}
    )


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


def at_capacity(pythons: list[str], runs_of: dict[str, list[tuple[Path, int]]]) -> list[str]:
    """Of each name these problems, each with its seed of the search."""
    rows = [
        "| instance | solved, CPU ms: median, most |"
        + " the other: solved, median, most |" * (len(pythons) - 1)
    ]
    rows.append("|---|" + "---|" * len(pythons))
    medians: list[list[float]] = [[] for _ in pythons]
    for name, problems in runs_of.items():
        runs = [
            [one(python, path, 5.0, CHALLENGING, seed=seed) for python in pythons] for path, seed in problems
        ]
        count = len(runs)
        cells = []
        for k in range(len(pythons)):
            seconds = sorted(run[k][1] for run in runs)
            solved = sum(run[k][3] <= CHALLENGING for run in runs)
            medians[k].append(seconds[count // 2])
            cells.append(f"{solved} of {count}, {1e3 * seconds[count // 2]:.1f}, {1e3 * seconds[-1]:.1f}")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    means = " | ".join(f"{1e3 * geometric_mean(values):.1f} ms" for values in medians)
    return [*rows, f"| geometric mean of the medians | {means} |"]


def against_load(
    pythons: list[str], kinds: dict[str, list[Arrays | Path]], deadline: float, folder: Path
) -> list[str]:
    """Arena over load: mean and worst of each kind, and of the best cheap planner."""
    head = "| problems | seeds | auto, mean | worst | best cheap planner, mean |"
    rows = [head + " the other's auto, mean | worst |" * (len(pythons) - 1)]
    rows.append("|---|" + "---:|" * (4 + 2 * (len(pythons) - 1)))
    for kind, problems in kinds.items():
        ratios: list[list[float]] = [[] for _ in pythons]
        cheap = []
        for seed, problem in enumerate(problems):
            path = (
                problem
                if isinstance(problem, Path)
                else write(problem, folder, f"{kind.replace(' ', '_')}_{seed}")
            )
            for k, python in enumerate(pythons):
                ratio, _, best, _ = one(python, path, deadline, 0, CHEAP if k == 0 else ())
                ratios[k].append(ratio)
                if k == 0:
                    cheap.append(best)
        mean = [math.fsum(values) / len(values) for values in ratios]
        row = f"| {kind} | {len(problems)} | {mean[0]:.4f} | {max(ratios[0]):.4f} | {math.fsum(cheap) / len(cheap):.4f} |"
        rows.append(row + "".join(f" {mean[k]:.4f} | {max(ratios[k]):.4f} |" for k in range(1, len(pythons))))
    return rows


def said(arrays: Arrays, kind: str, seed: int, path: Path) -> None:
    """Writes these buffers to the path with gaps, with some fixed where a plan has them, with both, or as they are with
    `holes` that nothing may lie in."""
    columns: dict[str, list] = {}
    if kind in ("gaps", "both"):
        columns["gaps"] = gaps_of(arrays, seed)
    if kind in ("fixed", "both"):
        plain = _core.read_csv(str(write(arrays, path.parent, path.stem + "_plain"))).problem
        offsets = _core.search(plain, work_limit=3_000_000).plan.offsets
        columns["fixed"] = fixed_of(np.array(offsets).tolist(), seed)
    lines = zip(*(values.tolist() for values in arrays), *columns.values(), strict=True)
    text = "".join(f"{k},{','.join(map(str, line))}\n" for k, line in enumerate(lines))
    holes = holes_of(arrays, seed) if kind == "holes" else []
    head = "".join(f"# forbid {begin}:{end}\n" for begin, end in holes)
    path.write_text(head + ",".join(["id,lower,upper,size", *columns]) + "\n" + text)


def constrained(
    pythons: list[str], counts: tuple[int, ...], seeds: int, deadline: float, folder: Path
) -> list[str]:
    """Random problems with gaps or obstacles: arena over the proven bound, by the command."""
    rows = [
        "| buffers | seeds | auto, mean | worst |" + " the other's auto, mean | worst |" * (len(pythons) - 1)
    ]
    rows.append("|---|" + "---:|" * (1 + 2 * len(pythons)))
    for kind in ("gaps", "fixed", "both", "holes"):
        for count in counts:
            ratios: list[list[float]] = [[] for _ in pythons]
            for seed in range(SAID_SEED, SAID_SEED + seeds):
                path = folder / f"{kind}_{count}_{seed}.csv"
                said(random(count, seed), kind, seed, path)
                for k, python in enumerate(pythons):
                    command = [
                        python,
                        "-m",
                        "memoir",
                        "plan",
                        path,
                        "--json",
                        "--deadline",
                        str(deadline),
                    ]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    found = json.loads(done.stdout)
                    ratios[k].append(found["arena_size"] / found["lower_bound"])
            cells = [f"{math.fsum(values) / len(values):.4f} | {max(values):.4f} |" for values in ratios]
            rows.append(f"| {kind}, {count:,} | {seeds} | " + " ".join(cells))
    return rows


@click.command()
@click.option("-o", "--output", type=click.File("w"), default="-", help="The tables, as Markdown.")
@click.option("--against", type=click.Path(exists=True), help="A Python with another memoir.")
@click.option(
    "--copies",
    type=int,
    default=20,
    show_default=True,
    help="Of each instance, told otherwise, and seeds of the search.",
)
@click.option("--seeds", type=int, default=5, show_default=True, help="Of each kind of problem.")
@click.option("--deadline", type=float, default=1.0, show_default=True, help="Seconds.")
@click.option(
    "--instances",
    type=click.Path(exists=True, file_okay=False),
    default=DATA / "minimalloc",
    help="A folder with minimalloc's challenging instances; its repository has eleven.",
)
@click.option("--only-known", is_flag=True, help="minimalloc's instances only: told otherwise, and by seed.")
@click.option("--smoke", is_flag=True, help="Two instances and small problems only.")
def main(
    output,
    against: str | None,
    copies: int,
    seeds: int,
    deadline: float,
    instances: str,
    only_known: bool,
    smoke: bool,
) -> None:
    """Prints what docs/notebook/plan holds of problems that are new."""
    pythons = [sys.executable, *([against] if against else [])]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if smoke:
            copies, seeds, deadline = 2, 1, 0.05
        kinds: dict[str, list[Arrays | Path]] = {}
        for count in (100,) if smoke else (200, 600, 1000, 3000):
            kinds[f"full {count}"] = [full(count, FULL_SEED + k) for k in range(seeds)]
            kinds[f"swept {count}"] = [swept(count, FULL_SEED + k) for k in range(seeds)]
        if not smoke:
            kinds["swept 600, 5 % left out"] = [swept(600, FULL_SEED + k, 0.05) for k in range(seeds)]
            kinds["full 600, 5 % left out"] = [full(600, FULL_SEED + k, 0.05) for k in range(seeds)]
            for count in (2000, 10**5):
                kinds[f"stencils {count}"] = [stencils(count, LOOP_SEED + k) for k in range(seeds)]
                kinds[f"streamed {count}"] = [streamed(count, LOOP_SEED + k) for k in range(seeds)]
            kinds["random 10^5"] = [random(10**5, RANDOM_SEED + k) for k in range(seeds)]
            hard = sorted((SHARED / "hard").glob("tight*.csv"))
            kinds |= {path.stem: [path] for path in hard if "gap" not in path.stem}
        known = sorted(Path(instances).glob(f"{'[CK]' if smoke else '?'}.{CHALLENGING}.csv"))
        output.write("\n".join(stretched(pythons, known, copies, folder)) + "\n\n")
        output.write("\n".join(drawn(pythons, known, copies)) + "\n\n")
        if only_known:
            return
        output.write("\n".join(against_load(pythons, kinds, deadline, folder)) + "\n\n")
        counts = (100,) if smoke else (200, 2000, 20_000)
        output.write("\n".join(constrained(pythons, counts, seeds, deadline, folder)) + "\n")
    click.echo(f"{time.perf_counter() - began:.0f} s", err=True)


if __name__ == "__main__":
    sys.exit(main())
