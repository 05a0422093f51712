# SPDX-License-Identifier: Apache-2.0
"""The long run before a release: random operations, hostile input, kills, and mutants, against goals.

make soak                                    goes on where it stopped, until every goal is met
make soak SOAK="--seconds 600"               ten minutes of it
make soak SOAK="--share 0.01"                a hundredth of each goal
.venv/bin/python tests/soak/soak.py --report                           keeps what was done, without running anything

The work is cut into slices of seconds. Each finished slice is a line of build/soak/journal.jsonl, so a stop at any moment,
a kill too, loses the slices that run. Slices have seeds of their own and are counted in order; the part that lacks most
goes next, so that all goals come nearer alike. A failure is kept in build/soak/failures and ends with exit status 1.

--report adds the journal up in tests/soak/soaked.jsonl, a line for each part and commit, empties it, and writes the table
tests/soak/soaked.md. Both are committed, so that the next checkout goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fuzz"))

import run as fuzz_run  # noqa: E402 (fuzz/run.py)

from memoir import malloc  # noqa: E402

STATE = ROOT / "build" / "soak"
JOURNAL = STATE / "journal.jsonl"
RESULTS = ROOT / "tests" / "soak" / "soaked.jsonl"

# A third quicker: a report of a sanitizer names the innermost call alone, and memory that was freed is kept apart for 16 MiB
# of later frees, more than an input makes. The input of a failure is kept; run by itself it says the rest.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "malloc_context_size=1:quarantine_size_mb=16"}


@dataclass(frozen=True)
class Part:
    name: str
    what: str  # for the table
    goal: int
    slice: int  # units of one run of the program
    command: Callable[[int, int], list[str]]  # (units, number of the slice)
    done: Callable[[str], int]  # units, from what the program printed


def json_done(text: str) -> int:
    return int(json.loads(text.strip().splitlines()[-1])["done"])


def rounds_done(text: str) -> int:
    return int(re.search(r"(\d+) mutations, no crash", text)[1])


def reader(fuzzer: str, what: str, goal: int, slice: int) -> Part:
    def command(units: int, number: int) -> list[str]:
        build = ROOT / "build" / "address"
        return [*fuzz_run.command(fuzzer, build), "--rounds", str(units), "--seed", str(1000 + number)]

    return Part(fuzzer, what, goal, slice, command, rounds_done)


def soak_program(name: str) -> str:
    return str(ROOT / "build" / "release" / "tests" / "soak" / name)


# How the malloc is set in its slices, in turn: as it comes; all that waits for a large heap at once; with checks.
MALLOC_SETTINGS = (
    {},
    {"background_from": "1MiB", "split_from": "1MiB", "sample": "16KiB"},
    {"secure": "1", "background_from": "1MiB"},
)


def stressed_malloc(units: int, number: int) -> list[str]:
    under = malloc.environment(MALLOC_SETTINGS[number % len(MALLOC_SETTINGS)], {})
    command = [
        soak_program("soak_malloc"),
        "--operations",
        str(units),
        "--first-seed",
        str(1_000_000 * number),
    ]
    return ["env", *(f"{name}={value}" for name, value in under.items()), *command]


def parts() -> list[Part]:
    found = [
        Part(
            "operations",
            "random operations, spread evenly over every heap on every arena; none may overlap",
            10**9,
            4_800_000,
            lambda units, number: [
                soak_program("soak_heaps"), "--operations", str(units), "--first-seed", str(1_000_000 * number),
            ],
            json_done,
        ),
        Part(
            "malloc",
            "operations of the malloc: threads that are born and die, each other's blocks, forks; all contents looked at",
            10**9,
            20_000_000,
            stressed_malloc,
            json_done,
        ),
        reader("trace_fuzz", "traces", 10**7, 50_000),
        reader("plan_file_fuzz", "plan files", 10**7, 200_000),
        reader("lifetimes_fuzz", "lifetime profiles", 10**7, 100_000),
        reader("model_fuzz", "models", 10**7, 200_000),
        reader("csv_problem_fuzz", "CSV problems", 10**7, 50_000),
        reader("snapshot_fuzz", "PyTorch snapshots", 10**6, 10_000),
        reader("settings_json_fuzz", "JSON settings", 10**7, 200_000),
        reader("bench_journal_fuzz", "bench journals (in Python: without sanitizers)", 10**7, 200_000),
        reader("policy_text_fuzz", "policy texts", 10**6, 20_000),
        Part(
            "reports",
            "reports of equal allocators: at most 5 % of them assert anything (each slice within three deviations)",
            20_000,
            500,
            lambda units, number: [
                sys.executable, str(ROOT / "tests" / "bench" / "equal_allocators.py"),
                "--reports", str(units), "--seed", str(number),
            ],
            json_done,
        ),
        Part(
            "kills",
            "kill -9 of recordings; the file is readable and holds every event recorded before",
            1000,
            50,
            lambda units, number: [
                soak_program("soak_kill"), "--kills", str(units), "--seed", str(number), "--folder", str(STATE),
            ],
            json_done,
        ),
    ]  # fmt: skip
    mutants = ROOT / "tests" / "mutants.py"
    if mutants.exists():
        found.append(
            Part(
                "mutants",
                "mutants, each killed by a test",
                8,
                8,
                lambda units, number: [sys.executable, str(mutants)],
                lambda text: int(re.search(r"(\d+) of \d+ mutants killed", text)[1]),
            )
        )
    return found


def commit() -> str:
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    return name + ("+" if changed else "")


def read_journal() -> list[dict]:
    """The slices of this checkout after what was kept of earlier ones."""
    lines = []
    for path in (RESULTS, JOURNAL):
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue  # torn by a kill
    return lines


def added_up(lines: list[dict]) -> list[dict]:
    """One line for each part and commit, with its last slice and last day."""
    sums: dict[tuple[str, str], dict] = {}
    for line in lines:
        kept = sums.setdefault(
            (line["part"], line["commit"]), {**line, "done": 0, "failures": 0, "seconds": 0}
        )
        for figure in ("done", "failures", "seconds"):
            kept[figure] = round(kept[figure] + line[figure], 2)
        kept["slice"] = max(kept["slice"], line["slice"])
        kept["date"] = max(kept["date"], line["date"])
    return list(sums.values())


def keep() -> None:
    """Adds the journal up in RESULTS and writes the table."""
    lines = added_up(read_journal())
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    JOURNAL.unlink(missing_ok=True)
    RESULTS.with_suffix(".md").write_text(report())


class Soak:
    """What was done, and what is being done. Thread-safe: one lock."""

    def __init__(self, share: float, only: list[str]) -> None:
        self.lock = threading.Lock()
        self.parts = [part for part in parts() if not only or part.name in only]
        self.goals = {part.name: max(1, round(part.goal * share)) for part in self.parts}
        self.done = {part.name: 0 for part in self.parts}
        self.slices = dict(self.done)
        for line in read_journal():
            if line["part"] in self.done:
                self.done[line["part"]] += line["done"]
                self.slices[line["part"]] = max(self.slices[line["part"]], line["slice"] + 1)
        self.begun = dict(self.done)
        self.commit = commit()
        self.failures = 0

    def next(self) -> tuple[Part, int, int] | None:
        """The part that lacks most, how many units, and the slice's number."""
        with self.lock:
            open_parts = [part for part in self.parts if self.begun[part.name] < self.goals[part.name]]
            if not open_parts:
                return None
            part = min(open_parts, key=lambda p: self.begun[p.name] / self.goals[p.name])
            units = min(part.slice, self.goals[part.name] - self.begun[part.name])
            number = self.slices[part.name]
            self.slices[part.name] += 1
            self.begun[part.name] += units
            return part, units, number

    def run(self, part: Part, units: int, number: int) -> None:
        process = subprocess.Popen(
            part.command(units, number),
            cwd=STATE,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        failed = code != 0
        try:
            done = part.done(text)
        except (ValueError, TypeError, KeyError, IndexError):
            done, failed = 0, True
        with self.lock:
            line = {
                "part": part.name,
                "slice": number,
                "done": done,
                "failures": int(failed),
                "seconds": round(usage.ru_utime + usage.ru_stime, 2),
                "commit": self.commit,
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            }
            with JOURNAL.open("a") as journal:
                journal.write(json.dumps(line) + "\n")
            self.done[part.name] += done
            if done:  # else it is not tried again for long
                self.begun[part.name] += done - units
            share = self.done[part.name] / self.goals[part.name]
            print(
                f"{part.name:20} slice {number:5}: {done:>11,} in {line['seconds']:7.1f} s, {share:6.1%}",
                flush=True,
            )
            if failed:
                self.failures += 1
                (STATE / "failures").mkdir(exist_ok=True)
                (STATE / "failures" / f"{part.name}-{number}.log").write_text(text)
                print(
                    f"  FAILED with {code}: {STATE / 'failures' / f'{part.name}-{number}.log'}\n{text[-2000:]}"
                )


def work(soak: Soak, end: float) -> None:
    while time.monotonic() < end and soak.failures < 20:
        slice = soak.next()
        if slice is None:
            return
        soak.run(*slice)


def report() -> str:
    """The table, of all that the journal holds."""
    lines = read_journal()
    rows = []
    for part in parts():
        mine = [line for line in lines if line["part"] == part.name]
        done, failures = sum(line["done"] for line in mine), sum(line["failures"] for line in mine)
        commits = list(dict.fromkeys(line["commit"] for line in mine))
        dates = sorted({line["date"] for line in mine})
        rows.append(
            f"| {part.what} | {part.goal:,} | {done:,} | {failures} | {sum(line['seconds'] for line in mine):,.0f} "
            f"| {', '.join(commits) or '-'} | {' to '.join(dict.fromkeys((dates[0], dates[-1]))) if dates else '-'} |"
        )
    return "\n".join(
        [
            "# What the soak found",
            "",
            "`make soak` (tests/soak/soak.py) writes this table from the journal of its slices. Counts are summed",
            "over the commits that are named; `+` is a commit with changes. Seconds are of one core. A failure is",
            "a slice in which something was wrong. Readers run under the address and undefined-behaviour",
            "sanitizers.",
            "",
            "| what | goal | done | failures | seconds | commits | dates |",
            "|---|---:|---:|---:|---:|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, help="of the clock, then the running slices end")
    parser.add_argument("--share", type=float, default=1, help="of each goal")
    parser.add_argument("--jobs", type=int, default=1, help="slices at a time")
    parser.add_argument("--only", action="append", default=[], help="a part; may be given several times")
    parser.add_argument("--report", action="store_true", help="keep what was done in tests/soak, and end")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - {part.name for part in parts()}
    if unknown:
        parser.error(
            f"no part {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in parts())}"
        )
    STATE.mkdir(parents=True, exist_ok=True)
    lock = (STATE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another soak of this checkout is running; two would take the same slices", file=sys.stderr)
        return 2
    if arguments.report:
        keep()
        return 0
    soak = Soak(arguments.share, arguments.only)
    end = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")
    workers = [threading.Thread(target=work, args=(soak, end)) for _ in range(arguments.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(report())
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
