# SPDX-License-Identifier: Apache-2.0
"""What two lifetime classes cost programs for which they are worth nothing, in memory, over one class.

    python bench/malloc/regret.py                        three kinds, five seeds
    python bench/malloc/regret.py --seeds 20 --mib 200

The programs are made from seeds (regret.c): calls that make long-lived and short-lived objects at random,
calls that change their minds, a program that never shrinks. Each runs under memoir's malloc with `split=1`
and with `split=0`, one after the other; a cell is the geometric mean of the ratios, with the smallest and
the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean

from memoir import malloc

SOURCE = Path(__file__).with_suffix(".c")
KINDS = ("shuffled", "flips", "grows")
FIGURES = ("peak", "settled")


def run(program: Path, kind: str, seed: int, options: argparse.Namespace, split: bool) -> dict[str, int]:
    environment = malloc.environment({"split": str(int(split))})
    command = [str(program), kind, str(seed), str(options.mib), str(options.settle)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seeds", type=int, default=5, help="%(default)s")
    arguments.add_argument("--mib", type=int, default=100, help="of load at the peak, %(default)s")
    arguments.add_argument("--settle", type=int, default=6, help="seconds, %(default)s")
    arguments.add_argument("--smoke", action="store_true")
    options = arguments.parse_args()
    if options.smoke:
        options.seeds, options.mib, options.settle = 1, 20, 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "regret"
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O1", "-fno-optimize-sibling-calls", str(SOURCE), "-o", str(program)], check=True
        )
        print("| kind | peak | settled |\n|---|---|---|")
        for kind in KINDS:
            ratios: dict[str, list[float]] = {figure: [] for figure in FIGURES}
            for seed in range(1, options.seeds + 1):
                two, one = (run(program, kind, seed, options, split) for split in (True, False))
                for figure in FIGURES:
                    ratios[figure].append(two[figure] / one[figure])
            cells = [
                f"{geometric_mean(values):.3f} ({min(values):.2f} to {max(values):.2f})"
                for values in ratios.values()
            ]
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
