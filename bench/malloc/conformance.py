# SPDX-License-Identifier: Apache-2.0
"""What mallocs owe their callers: each case of tests/malloc/conformance.c and operators.cpp under each of them.

    python bench/malloc/conformance.py
    python bench/malloc/conformance.py --allocators memoir,system,mi3=/path/libmimalloc.so.3
    python bench/malloc/conformance.py --json            with the line of each failure

A cell is what went wrong first: the line of the source that did not hold, a signal, or that it did not end in a minute.
Cases about what a malloc need not promise are marked: `aliases` (the C library's inner names), `deep_binding` and
`by_handle` (libraries that find the C library's names first), `idle_gives_back`
(memory without a call within 5 s), `wild_frees` (a free of a foreign pointer is noticed), `information` (mallinfo2),
`part_touched` (blocks that are filled in part take little more than that).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from memoir.bench.process import allocators

TESTS = Path(__file__).resolve().parents[2] / "tests" / "malloc"
OPERATORS = ["new", "nothrow", "aligned", "handler", "containers"]
OF_OURS = {"under_limit": "a part of address_limit"}  # no case of its own
NOT_OWED = {
    "aliases",
    "deep_binding",
    "by_handle",
    "idle_gives_back",
    "wild_frees",
    "information",
    "part_touched",
}
MINUTE = 60


def build(folder: Path) -> dict[str, list[str]]:
    """Case -> command."""
    conformance, operators = folder / "conformance", folder / "operators"
    c, cxx = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
    flags = ["-O1", "-w", "-fno-builtin", "-pthread"]
    subprocess.run([c, *flags, str(TESTS / "conformance.c"), "-o", str(conformance), "-ldl"], check=True)
    shared = ["-shared", "-fPIC", "-o", str(folder / "opened.so")]
    subprocess.run([c, *flags, *shared, str(TESTS / "opened.c")], check=True)
    subprocess.run(
        [cxx, *flags, "-std=c++20", str(TESTS / "operators.cpp"), "-o", str(operators)], check=True
    )
    listed = subprocess.run([str(conformance)], capture_output=True, text=True).stdout.split()
    cases = {case: [str(conformance), case] for case in listed if case not in OF_OURS}
    return cases | {f"operator {case}": [str(operators), case] for case in OPERATORS}


def outcome(
    command: list[str], library: Path | None, variables: dict[str, str], limit: float
) -> tuple[str, str]:
    """What a cell says ("" where all holds), and the line that the case printed."""
    environment = {**os.environ, **variables}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "hangs", ""
    line = (said.strip().splitlines() or [""])[-1]
    if process.returncode == 0:
        return "", line
    if process.returncode < 0:
        return f"signal {-process.returncode}", line
    where = re.match(r"line (\d+): ", line)
    return f"line {where[1]}" if where else "fails", line


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = [name for name in allocators.NAMES if name == allocators.SYSTEM or allocators.find(name)]
    usual = ",".join([allocators.OWN, *(name for name in here if name != allocators.OWN)])
    parser.add_argument("--allocators", default=usual, help="as `memoir bench` takes them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="two mallocs, quick cases")
    options = parser.parse_args()
    if options.smoke:
        options.allocators = "memoir,system"
    chosen = allocators.parse(options.allocators)
    with tempfile.TemporaryDirectory() as folder:
        cases = build(Path(folder))
        if options.smoke:
            cases = {case: cases[case] for case in ("malloc", "realloc", "operator new")}
        found = {
            case: {one.name: outcome(command, one.library, dict(one.environment), MINUTE) for one in chosen}
            for case, command in cases.items()
        }
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    names = [one.name for one in chosen]
    print(f"| case | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for case, row in found.items():
        mark = " (not owed)" if case in NOT_OWED else ""
        print(f"| {case}{mark} | {' | '.join(row[name][0] or 'holds' for name in names)} |")
    failed = {
        name: sum(bool(row[name][0]) for case, row in found.items() if case not in NOT_OWED) for name in names
    }
    print(
        f"| fail, of {len(set(found) - NOT_OWED)} that are owed | {' | '.join(str(failed[name]) for name in names)} |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
