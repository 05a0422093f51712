# SPDX-License-Identifier: Apache-2.0
"""What recording costs a program: CPU seconds against no recorder, interleaved, and bytes of trace an event.

python bench/record/record.py [--runs 5] [--only python,sqlite] [--scale 20] [--check]
python bench/record/record.py --smoke

Each program runs plain, with the recorder dormant, and recorded, in turn; heaptrack too where it is installed. Ratios
are of CPU seconds (user and system, children too), medians with the smallest and largest pair. --check instead compares
every stack with a full unwind, --stacks prints what one costs. docs/guides/record.md has results."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from memoir._core import Trace, finish_trace

from memoir import Error
from memoir.record import native

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "src" / "memoir"

JSON = """
import json
rows = [{"a": list(range(40)), "b": "x" * (i %% 100), "c": {"d": i}} for i in range(%d)]
print(sum(len(json.loads(json.dumps(row))) for row in rows))
"""
SQL = """
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t(a, b)")
db.executemany("insert into t values(?, ?)", ((i, f"row {i %% 997}") for i in range(%d)))
db.execute("create index i on t(b)")
print(db.execute("select count(distinct b), sum(length(b)) from t where a %% 3 = 1").fetchone())
for i in range(%d): db.execute("select a from t where b = ? limit 3", (f"row {i %% 997}",)).fetchall()
"""
HEADERS = [
    "map",
    "string",
    "vector",
    "regex",
    "unordered_map",
    "iostream",
    "algorithm",
    "functional",
    "thread",
    "future",
]


def programs(folder: Path, scale: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name -> command and variables. What the machine lacks is left out."""
    small = scale == 1
    python = os.path.realpath(sys.executable)
    found = {
        "python": ([python, "-c", JSON % (1000 * scale)], {}),
        "python, PYTHONMALLOC=malloc": ([python, "-c", JSON % (500 * scale)], {"PYTHONMALLOC": "malloc"}),
        "sqlite": ([python, "-c", SQL % (3000 * scale, 1000 * scale)], {}),
    }
    compiler = shutil.which("g++")
    if compiler is None:
        return found
    churn = folder / "churn"
    subprocess.run([compiler, "-O2", str(HERE / "record_churn.cc"), "-o", str(churn)], check=True)
    source = folder / "many.cc"
    source.write_text(
        "".join(f"#include <{name}>\n" for name in HEADERS[: 3 if small else None]) + "int main() {}\n"
    )
    found["g++ -O2"] = ([compiler, "-O2", "-c", str(source), "-o", str(folder / "many.o")], {})
    for stacks in (9, 500):
        found[f"churn, depth 16, {stacks} stacks"] = (
            [str(churn), str(stacks), str(50_000 * scale), "12"],
            {},
        )
    for depth in (1, 5, 30, 100):
        found[f"churn, depth {depth + 4}, 1 stack"] = ([str(churn), "1", str(30_000 * scale), str(depth)], {})
    found["tight loop"] = ([str(churn), "1", str(200_000 * scale), "0"], {})
    return found


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def traces(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.trace"))


def measure(name: str, command: list[str], variables: dict[str, str], runs: int, clock: native.Clock) -> None:
    plain = {**os.environ, **variables}
    seconds: dict[str, list[float]] = {"plain": [], "dormant": [], "recorded": []}
    heaptrack = shutil.which("heaptrack")
    if heaptrack:
        seconds["heaptrack"] = []
    events = raw = packed = 0
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="memoir-bench-") as work:
            folder = Path(work)
            seconds["plain"].append(cpu_seconds(command, plain))
            seconds["dormant"].append(cpu_seconds(command, {**plain, "LD_PRELOAD": str(native.library())}))
            recorded = native.environment(folder / "x.trace", clock.path, base=plain)
            seconds["recorded"].append(cpu_seconds(command, recorded))
            if heaptrack:
                seconds["heaptrack"].append(
                    cpu_seconds([heaptrack, "-r", "-o", str(folder / "heaptrack"), *command], plain)
                )
            if not events:
                for trace in traces(folder):
                    events += len(Trace.open(str(trace)).events)
                    before, after = finish_trace(str(trace), 0)
                    raw, packed = raw + before, packed + after
    ratios = {}
    for kind, values in seconds.items():
        pairs = [value / base for value, base in zip(values, seconds["plain"], strict=True)]
        ratios[kind] = f"{statistics.median(pairs):.2f} [{min(pairs):.2f}, {max(pairs):.2f}]"
    extra = (
        (statistics.median(seconds["recorded"]) - statistics.median(seconds["plain"])) / max(events, 1) * 1e9
    )
    cells = [name, f"{statistics.median(seconds['plain']):.2f}", ratios["dormant"], ratios["recorded"]]
    cells += [ratios.get("heaptrack", "not here"), f"{extra:.0f}", f"{events / 1e6:.2f}"]
    cells += [f"{raw / max(events, 1):.2f}", f"{packed / max(events, 1):.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def check(name: str, command: list[str], variables: dict[str, str], clock: native.Clock) -> int:
    """Compares every stack with a full unwind; returns how many differ."""
    with tempfile.TemporaryDirectory(prefix="memoir-bench-") as work:
        checks = Path(work) / "checks"
        environment = native.environment(
            Path(work) / "x.trace", clock.path, str(checks), {**os.environ, **variables}
        )
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        rows = [line.split() for line in checks.read_text().splitlines()]
    stacks, different, cut = (sum(int(row[i]) for row in rows) for i in (1, 2, 3))
    print(f"| {name} | {stacks:,} | {different:,} | {cut:,} |", flush=True)
    return different


def stacks(rounds: int) -> None:
    """What one stack costs, by depth and by how it is found."""
    compiler = shutil.which("g++")
    if compiler is None:
        print("skipped: no g++")
        return
    sources = [*sorted((CORE / "process" / "stacks").glob("*.cc")), *sorted((CORE / "base").glob("*.cc"))]
    with tempfile.TemporaryDirectory(prefix="memoir-bench-") as work:
        program = Path(work) / "record_stacks"
        command = [compiler, "-std=c++20", "-O2", f"-I{CORE.parent}", str(HERE / "record_stacks.cc")]
        subprocess.run([*command, *map(str, sources), "-o", str(program)], check=True)
        print("| frames | the last stack | one before, cached | walked by rules | libgcc |")
        print("|---:|---:|---:|---:|---:|", flush=True)
        subprocess.run([str(program), str(rounds)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="programs whose names begin so, with commas between")
    parser.add_argument("--scale", type=int, default=20, help="how much each program does")
    parser.add_argument("--check", action="store_true", help="compare stacks instead of measuring")
    parser.add_argument("--stacks", action="store_true", help="what one stack costs, by depth and method")
    parser.add_argument("--smoke", action="store_true", help="seconds, to see that it works")
    options = parser.parse_args()
    try:
        native.library()
    except Error as error:
        print(f"skipped: {error}")
        return 0
    if options.stacks or options.smoke:
        stacks(200 if options.smoke else 20000)
        if options.stacks:
            return 0
    different = 0
    with tempfile.TemporaryDirectory(prefix="memoir-bench-") as work, native.Clock() as clock:
        found = programs(Path(work), 1 if options.smoke else options.scale)
        wanted = tuple(filter(None, options.only.split(",")))
        found = {name: row for name, row in found.items() if not wanted or name.startswith(wanted)}
        if options.check or options.smoke:
            print("| program | stacks | different | cut |\n|---|---:|---:|---:|")
            different = sum(check(name, *row, clock) for name, row in found.items())
        if not options.check:
            print(
                "| program | CPU s | dormant | recorded | heaptrack | ns an event | 10^6 events | bytes an event | on disk |"
            )
            print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
            for name, row in found.items():
                measure(name, *row, 1 if options.smoke else options.runs, clock)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
