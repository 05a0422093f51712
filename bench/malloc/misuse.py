# SPDX-License-Identifier: Apache-2.0
"""What mallocs notice of misuse: each kind of tests/malloc/misuse.c in a process of its own, under each of them.

    python bench/malloc/misuse.py
    python bench/malloc/misuse.py --allocators memoir,secure,system,checks=/path/libsnmallocshim-checks.so

`secure` is memoir's checked build. A malloc says that it found something (a line on stderr, and the program ends by a
signal), or the program ends by a signal without a line (a page that cannot be touched, or by luck), or it runs to its
end. Keys and orders are random: each kind runs several times, and what did not always happen is in the table as a count.
"""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import tempfile
from pathlib import Path

from memoir.bench.process import allocators

from memoir import malloc

SOURCE = Path(__file__).parents[2] / "tests" / "malloc" / "misuse.c"
SECURE = "secure"
NOT_HERE = (
    3  # the program's status when the malloc has no such function, or never puts blocks next to each other
)


def build(folder: Path) -> Path:
    program = folder / "misuse"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-w", "-fno-builtin", "-pthread", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def outcome(program: Path, kind: str, library: Path | None, variables: dict[str, str]) -> str:
    """One of "line", "signal", "missed", "hangs", "-"."""
    environment = {**os.environ, **variables}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    try:
        run = subprocess.run([str(program), kind], env=environment, capture_output=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "hangs"
    if run.returncode == NOT_HERE:
        return "-"
    if run.returncode == 0:
        return "missed"
    return "line" if run.stderr else "signal"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = [name for name in allocators.NAMES if name == allocators.SYSTEM or allocators.find(name)]
    usual = ",".join([allocators.OWN, SECURE, *(name for name in here if name != allocators.OWN)])
    parser.add_argument("--allocators", default=usual, help="as `memoir bench` takes them, and `secure`")
    parser.add_argument("--runs", type=int, default=5, help="of each kind under each malloc")
    parser.add_argument("--smoke", action="store_true", help="three mallocs, one run each")
    options = parser.parse_args()
    if options.smoke:
        options.allocators, options.runs = f"system,memoir,{SECURE}", 1
    words = [
        f"{SECURE}={malloc.library(secure=True)}" if one == SECURE else one
        for one in options.allocators.split(",")
    ]
    chosen = allocators.parse(",".join(words))
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        kinds = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
        print(f"| {'kind':<31} | " + " | ".join(f"{one.name:<10}" for one in chosen) + " |")
        print("|---" * (len(chosen) + 1) + "|")
        found: collections.Counter[str] = collections.Counter()
        for kind in kinds:
            cells = []
            for one in chosen:
                seen = collections.Counter(
                    outcome(program, kind, one.library, dict(one.environment)) for _ in range(options.runs)
                )
                found[one.name] += seen["line"] + seen["signal"] == options.runs
                several = len(seen) > 1
                cells.append(", ".join(f"{what} {n}" if several else what for what, n in seen.most_common()))
            print(f"| {kind:<31} | " + " | ".join(f"{cell:<10}" for cell in cells) + " |", flush=True)
        print(f"| {'found each time':<31} | " + " | ".join(f"{found[one.name]:<10}" for one in chosen) + " |")


if __name__ == "__main__":
    main()
