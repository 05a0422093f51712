# SPDX-License-Identifier: Apache-2.0
"""Memory and CPU time of real programs whose load comes and goes, under memoir's malloc and under others.

    python bench/malloc/load_drop.py                                    all programs that are here
    python bench/malloc/load_drop.py redis lua --replicates 5           these
    python bench/malloc/load_drop.py --allocators memoir,jemalloc,mi3=/path/libmimalloc.so.3 --half report
    python bench/malloc/load_drop.py --smoke                            seconds, and no result is worth anything

Each program fills up and drops nine tenths of what it holds, three times (load_drop_programs/). `memoir bench` runs it,
interleaved over the allocators, and samples its memory; settled is the proportional share (PSS) of the program and its
children, pages that are freed lazily counted, six seconds after a drop; a table cell is the mean over the drops, then
the geometric mean of the replicates. The malloc may be tuned on the programs of the half `tune` only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

HERE = Path(__file__).resolve().parent / "load_drop_programs"
PYTHON = sys.executable
MIB = 1 << 20
FAST = ("jemalloc", "mi3", "mimalloc", "snmalloc")  # what CPU time is compared with, where they are here
SETTLED = re.compile(r"pss_after_settled\d+")


@dataclass(frozen=True)
class Program:
    """One row: a command, or a server with the client that drives it."""

    half: str  # tune | report
    command: list[str]
    client: list[str] | None = None
    needs: Callable[[], str | None] = lambda: None  # why it cannot run here


def on_path(name: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(name) else f"no {name} here (Debian's package {name})"


def importable(name: str) -> Callable[[], str | None]:
    return lambda: (
        None if importlib.util.find_spec(name) else f"no {name} in this Python (pip install {name})"
    )


def libclang() -> str | None:
    return (
        None
        if list(Path("/usr/lib").glob("llvm-*/lib/libclang-*.so*"))
        else "no libclang here (Debian's clang)"
    )


def script(name: str) -> list[str]:
    return [PYTHON, str(HERE / name)]


PROGRAMS = {
    "redis": Program(
        "tune",
        ["redis-server", "--port", "{port}", "--save", "", "--appendonly", "no", "--disable-thp", "no"],
        [*script("redis_client.py"), "{port}"],
        on_path("redis-server"),
    ),
    "sqlite": Program("tune", script("sqlite.py"), needs=importable("sqlite3")),
    "lua": Program("tune", ["lua5.4", str(HERE / "tables.lua")], needs=on_path("lua5.4")),
    "nginx": Program(
        "tune", [*script("nginx_server.py"), "{port}"], [*script("nginx_client.py"), "{port}"], on_path("nginx")
    ),
    "libclang": Program("tune", script("translation_units.py"), needs=libclang),
    "python": Program("report", script("sessions.py")),
    "python, malloc": Program("report", ["env", "PYTHONMALLOC=malloc", *script("sessions.py")]),
    "node": Program("report", ["node", "--expose-gc", str(HERE / "cache.js")], needs=on_path("node")),
    "perl": Program("report", ["perl", str(HERE / "index.pl")], needs=on_path("perl")),
    "lxml": Program("report", script("documents.py"), needs=importable("lxml")),
    "leveldb": Program("report", script("store.py"), needs=importable("plyvel")),
    "torch": Program("report", script("inference.py"), needs=importable("torch")),
}  # fmt: skip


@dataclass
class Figures:
    """Geometric means over the replicates of one program under one allocator."""

    settled: float  # bytes, the mean over the drops
    peak: float  # bytes, of the largest process: PSS would count memory that a vforked child shares twice
    cpu: float  # seconds
    runs: int


def measure(program: Program, allocators: str, replicates: int, folder: Path) -> dict[str, Figures]:
    options = ["-n", str(replicates), "--warmup", "0", "--memory", "--no-pictures", "--timeout", "600s"]
    bench = [PYTHON, "-m", "memoir", "bench", allocators, *options, "-o", str(folder)]
    if program.client is None:
        bench += ["--", *program.command]
    else:
        bench += ["--server", shlex.join(program.command), "--client", shlex.join(program.client)]
    done = subprocess.run(bench, capture_output=True, text=True)
    journal = folder / "runs.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    found = figures(rows)
    if done.returncode != 0 or not found:
        print("\n".join((done.stdout + done.stderr).strip().splitlines()[-6:]), file=sys.stderr)
    for row in rows:
        if "allocator" in row and row["allocator"] not in found:
            print(f"{row['allocator']}: {row['status']}, no settled memory", file=sys.stderr)
    return found


def figures(rows: Iterable[dict[str, Any]]) -> dict[str, Figures]:
    """Of a journal of `memoir bench`; runs that failed are left out."""
    runs = defaultdict(list)
    for row in rows:
        settled = [value for name, value in row.items() if SETTLED.fullmatch(name)]
        if row.get("status") == "ok" and settled:
            runs[row["allocator"]].append((mean(settled), row["largest_rss"], row["user"] + row["system"]))
    return {
        name: Figures(*(geometric_mean(column) for column in zip(*values, strict=True)), len(values))
        for name, values in runs.items()
    }


def row_of(name: str, found: dict[str, Figures], of: str) -> dict[str, Any] | None:
    """What `of` has against the best of its peers; None where one of the two sides has no run."""
    peers = {peer: values for peer, values in found.items() if peer != of}
    if of not in found or not peers:
        return None
    best = min(peers, key=lambda peer: peers[peer].settled)
    fast = {peer: values for peer, values in peers.items() if peer in FAST} or peers
    fastest = min(fast, key=lambda peer: fast[peer].cpu)
    mine = found[of]
    return {
        "program": name,
        "half": PROGRAMS[name].half,
        "settled": mine.settled / peers[best].settled,
        "best": best,
        "cpu": mine.cpu / fast[fastest].cpu,
        "fastest": fastest,
        "peak": mine.peak / min(values.peak for values in peers.values()),
        "allocators": {allocator: vars(values) for allocator, values in found.items()},
    }


def table(rows: list[dict[str, Any]], of: str) -> list[str]:
    names = sorted({name for row in rows for name in row["allocators"]}, key=lambda name: (name != of, name))
    lines = [
        f"| program | half | {of} over the best, settled | CPU over the fastest | peak over the smallest | "
        + " | ".join(f"{name}, MiB" for name in names)
        + " |",
        "|---" * (5 + len(names)) + "|",
    ]
    for row in rows:
        held = [row["allocators"].get(name) for name in names]
        lines.append(
            f"| {row['program']} | {row['half']} | {row['settled']:.2f} ({row['best']}) | "
            f"{row['cpu']:.2f} ({row['fastest']}) | {row['peak']:.2f} | "
            + " | ".join("-" if values is None else f"{values['settled'] / MIB:.0f}" for values in held)
            + " |"
        )
    for half in ("tune", "report"):
        some = [row for row in rows if row["half"] == half]
        if some:
            means = [geometric_mean(row[what] for row in some) for what in ("settled", "cpu", "peak")]
            lines.append(
                f"| geometric mean | {half} | {means[0]:.2f} | {means[1]:.2f} | {means[2]:.2f} |"
                + " |" * len(names)
            )
    return lines


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; all")
    arguments.add_argument(
        "--allocators", default="memoir,system,jemalloc,mimalloc,tcmalloc", help="%(default)s"
    )
    arguments.add_argument("--of", default="memoir", help="which of them is compared with the others")
    arguments.add_argument("--replicates", type=int, default=3, help="%(default)s")
    arguments.add_argument("--half", choices=["tune", "report"])
    arguments.add_argument("--json", type=Path, help="the figures of all runs")
    arguments.add_argument("--smoke", action="store_true")
    options = arguments.parse_args()
    if unknown := set(options.programs) - set(PROGRAMS):
        arguments.error(f"not among the programs: {', '.join(sorted(unknown))}")
    if options.smoke:
        os.environ.update(LOAD_DROP_SCALE="0.01", LOAD_DROP_SETTLE="0.3", LOAD_DROP_CYCLES="1")
        options.programs = options.programs or ["sqlite", "lua", "python"]
        options.allocators, options.replicates = "memoir,system", 1
    rows = []
    for name in options.programs or PROGRAMS:
        program = PROGRAMS[name]
        if options.half not in (None, program.half):
            continue
        if missing := program.needs():
            print(f"{name}: skipped, {missing}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = measure(program, options.allocators, options.replicates, Path(folder) / "bench")
        if row := row_of(name, found, options.of):
            rows.append(row)
            print(f"{name}: {row['settled']:.2f} of {row['best']} settled", file=sys.stderr, flush=True)
        else:
            print(f"{name}: no result", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(table(rows, options.of)))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
