# SPDX-License-Identifier: Apache-2.0
"""What it costs to look an allocation's lifetime class up: nanoseconds of malloc and free with two classes, over one.

    python bench/malloc/class_lookup.py              ten runs of each, interleaved, on one core
    python bench/malloc/class_lookup.py --smoke

The program (class_lookup.c) runs until the malloc tells two classes apart, and then times the same loops as with
`split=0`, where no hash is made and nothing is sampled. Each cell is the fastest of all rounds of all runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from memoir import malloc

SOURCE = Path(__file__).with_suffix(".c")


def run(program: Path, split: bool, short: bool) -> list[float]:
    """Nanoseconds of a dependent pair, and in the mixed load."""
    environment = malloc.environment({"split": str(int(split))})
    command = [str(program), *(["short"] if short else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if not short and split and "two classes" not in done.stderr:
        sys.exit(f"the malloc did not split:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--runs", type=int, default=10, help="%(default)s")
    arguments.add_argument("--smoke", action="store_true")
    options = arguments.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "class_lookup"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-fno-builtin", str(SOURCE), "-o", str(program)], check=True)
        times: dict[bool, list[list[float]]] = {True: [], False: []}
        for _ in range(1 if options.smoke else options.runs):
            for split in (True, False):
                times[split].append(run(program, split, options.smoke))
    best = {split: [min(column) for column in zip(*rows, strict=True)] for split, rows in times.items()}
    print("| | two classes, ns | one | difference |\n|---|---|---|---|")
    for name, two, one in zip(("dependent pair", "mixed load"), best[True], best[False], strict=True):
        print(f"| {name} | {two:.2f} | {one:.2f} | {two - one:+.2f} |")


if __name__ == "__main__":
    main()
