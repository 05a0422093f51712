# SPDX-License-Identifier: Apache-2.0
"""The gates of this repository, each with a budget of seconds on two cores without a compiler cache.

Runs them one after another, stops at the first that fails, and ends with a line for each: its seconds, its budget, and the
summary lines that its own runners printed. What a gate needs and is not here is said in words. A gate that takes longer
than its budget is named, and passes: clocks fail nothing. One whose budget is more than what is left of the 25 minutes is
skipped, in words.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / "build" / "gates"
LIMIT = 25 * 60  # seconds: all budgets of the default gates together
CLANG_PACKAGES = ("clang", "libclang-rt-14-dev")

# What runners say last.
SUMMARY = re.compile(
    "|".join(
        (
            r"\d+% tests passed.*|Total Test time.*",  # ctest
            r"(=+ )?\d+ (passed|failed|skipped).* in [\d.]+s.*",  # pytest
            r"All checks passed!|\d+ files? already formatted",  # ruff
            r"Success: no issues.*|Found \d+ errors? .*",  # mypy
            r"\d+ of \d+ (fuzzers|mutants|surroundings) .*",  # fuzz/run.py, tests/mutants.py, .ci/surroundings.py
            r"\d+ ok, \d+ skipped, \d+ failed .*",  # bench/smoke.py
        )
    )
)


class Missing(Exception):
    """A gate cannot run here; the text says what it lacks."""


@dataclass(frozen=True)
class Gate:
    name: str
    what: str  # for people
    budget: int  # seconds on two cores
    steps: Callable[[], Iterator[list[str]]]  # yields commands; raises Missing
    full: bool = False  # only with --full
    compiles: bool = False  # most of it: as much slower than its budget as `make test` was


def preset(
    name: str, *targets: str, tests: bool = True, options: tuple[str, ...] = ()
) -> Iterator[list[str]]:
    """Configure, build, test."""
    cmake = str(BIN / "cmake")
    yield [cmake, "--preset", name, f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}", *options]
    yield [cmake, "--build", "--preset", name, *(["--target", *targets] if targets else [])]
    if tests:
        yield [str(BIN / "ctest"), "--preset", name]


@functools.cache
def has_clang() -> bool:
    """Whether clang++ is here with libFuzzer and the sanitizers' runtime."""
    if shutil.which("clang++") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "x.cc")
        source.write_text('extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }')
        command = ["clang++", "-fsanitize=fuzzer,address", str(source), "-o", str(Path(folder, "x"))]
        return subprocess.run(command, capture_output=True).returncode == 0


def need_clang() -> None:
    """Installs clang where that is allowed (root, apt-get) and it is not here."""
    if has_clang():
        return
    wanted = f"apt-get install {' '.join(CLANG_PACKAGES)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"no clang++ with libFuzzer here ({wanted})")
    print(f"clang++ with libFuzzer is not here: {wanted}", flush=True)
    for command in (["apt-get", "install"], ["apt-get", "update"], ["apt-get", "install"]):
        packages = ["-y", "--no-install-recommends", *CLANG_PACKAGES] if command[-1] == "install" else []
        try:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run([*command, *packages], env=environment, capture_output=True, timeout=180)
        except subprocess.TimeoutExpired:
            break
        has_clang.cache_clear()
        if has_clang():
            return
    raise Missing(f"no clang++ with libFuzzer here, and `{wanted}` failed")


def need_browser() -> None:
    """Installs Chromium for the tests of pages where that is allowed and none is here; they are skipped without it."""
    if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        return
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        print("chromium is not here: apt-get install chromium", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update"],
            ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],
        ):
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, env=environment, capture_output=True, timeout=180)
    if shutil.which("chromium") is None:
        print("no chromium here: the tests of pages in a browser will be skipped", flush=True)


def test() -> Iterator[list[str]]:
    yield ["make", "test"]


def lint() -> Iterator[list[str]]:
    yield ["make", "lint"]


def address() -> Iterator[list[str]]:
    yield from preset("address", "all_tests", "fuzzers")


def thread() -> Iterator[list[str]]:
    yield from preset("thread", "all_tests")


def libfuzzers(seconds: int) -> Iterator[list[str]]:
    need_clang()
    yield from preset("fuzz", "fuzzers", tests=False)
    run_all = ["fuzz/run.py", "--build", str(ROOT / "build" / "fuzz"), "--seconds", str(seconds)]
    yield [str(BIN / "python"), *run_all]


def clang() -> Iterator[list[str]]:
    yield from libfuzzers(5)


def fuzz() -> Iterator[list[str]]:
    # fuzz/driver.cc mutates the seeds, blind to what they reach; libFuzzer, with --full, sees it.
    yield from preset("address", "fuzzers", tests=False)
    yield [str(BIN / "python"), "fuzz/run.py", "--build", str(ROOT / "build" / "address"), "--seconds", "20"]


def fuzz_long() -> Iterator[list[str]]:
    yield from libfuzzers(600)


def smoke() -> Iterator[list[str]]:
    yield [str(BIN / "python"), "bench/smoke.py"]


def clang_tests() -> Iterator[list[str]]:
    need_clang()
    yield from preset("clang")


def marked_full() -> Iterator[list[str]]:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.full" in path.read_text()]
    if not marked:
        raise Missing("no test is marked `full`")
    need_browser()
    patience = ["-o", "faulthandler_timeout=3000"]  # for what downloads or compiles
    yield [str(BIN / "python"), "-m", "pytest", "-q", "-m", "full", *patience, *map(str, marked)]


def mutants() -> Iterator[list[str]]:
    if not (ROOT / "tests" / "mutants.py").exists():
        raise Missing("tests/mutants.py is not there")
    yield [str(BIN / "python"), "tests/mutants.py"]


def surroundings() -> Iterator[list[str]]:
    yield [str(BIN / "python"), ".ci/surroundings.py"]


GATES = (
    Gate("test", "`make test`: every C++ and Python test", 480, test),
    Gate("lint", "`make lint`: ruff, clang-format, mypy", 30, lint),
    Gate(
        "address",
        "C++ tests under the address and undefined-behaviour sanitizers; a warning is an error",
        420,
        address,
        compiles=True,
    ),
    Gate("fuzz", "20 s of each fuzzer, two at a time", 130, fuzz, compiles=True),
    Gate("smoke", "each program in `bench/` runs", 120, smoke),
    Gate(
        "thread",
        "C++ tests with threads under the thread sanitizer; a warning is an error",
        280,
        thread,
        compiles=True,
    ),
    Gate(
        "clang",
        "clang builds the core and the fuzzers under its sanitizers, warnings as errors; 5 s of each fuzzer",
        190,
        clang,
        full=True,
    ),
    Gate("clang-tests", "clang builds everything, and every C++ test passes", 600, clang_tests, full=True),
    Gate("fuzz-long", "ten minutes of each fuzzer, two at a time", 3200, fuzz_long, full=True),
    Gate(
        "full-tests",
        "Python tests marked `full`: wheels, other versions, other frameworks, a browser",
        1200,
        marked_full,
        full=True,
    ),
    Gate("mutants", "each mutant is killed by a test", 900, mutants, full=True),
    Gate(
        "surroundings",
        "Python tests on other processors, in other languages, orders and folders, as another user, under load",
        4800,
        surroundings,
        full=True,
    ),
)


def table() -> str:
    rows = [
        f"| `{gate.name}` | {gate.what} | {gate.budget:,} | {'--full' if gate.full else ''} |"
        for gate in GATES
    ]
    return "\n".join(["| gate | what | budget, s | |", "|---|---|---:|---|", *rows])


@dataclass
class Outcome:
    gate: Gate
    status: str  # "passed", "FAILED", "skipped: why"
    seconds: float = 0
    cpu: float = 0
    said: tuple[str, ...] = ()


def stream(command: list[str], log: Path) -> tuple[int, list[str]]:
    """Runs it; all that it prints goes to our output and the log. Its status and its summary lines."""
    said = []
    print(f"$ {' '.join(command)}".replace(f"{ROOT}/", ""), flush=True)
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with log.open("a") as file:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            file.write(line)
            if SUMMARY.fullmatch(line.strip()):
                said.append(line.strip())
    return process.wait(), said


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(gate: Gate) -> Outcome:
    print(f"\n=== {gate.name}: {gate.what}", flush=True)
    log = LOGS / f"{gate.name}.log"
    log.unlink(missing_ok=True)
    begin, cpu, said = time.monotonic(), cpu_seconds(), []
    status = "passed"
    try:
        for command in gate.steps():
            code, lines = stream(command, log)
            said += lines
            if code != 0:
                status = f"FAILED ({command[0].removeprefix(str(ROOT) + '/')} ended with {code}; {log.relative_to(ROOT)})"
                break
    except Missing as missing:
        status = f"skipped: {missing}"
        print(status, flush=True)
    return Outcome(gate, status, time.monotonic() - begin, cpu_seconds() - cpu, tuple(said))


def pace(outcomes: list[Outcome]) -> float:
    """How much slower this machine is than the one of the budgets, by the first gate."""
    return max(1.0, outcomes[0].seconds / outcomes[0].gate.budget) if outcomes else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="also the gates that take long")
    parser.add_argument("--keep-going", action="store_true", help="after a gate that fails, too")
    parser.add_argument("--list", action="store_true", help="print the table of gates, and end")
    parser.add_argument("gates", nargs="*", metavar="GATE", help="these alone")
    arguments = parser.parse_args()
    if arguments.list:
        print(table())
        return 0
    unknown = set(arguments.gates) - {gate.name for gate in GATES}
    if unknown:
        parser.error(f"no gate {', '.join(sorted(unknown))}; --list names them")
    LOGS.mkdir(parents=True, exist_ok=True)
    wanted = [
        gate
        for gate in GATES
        if (gate.name in arguments.gates if arguments.gates else arguments.full or not gate.full)
    ]
    if wanted[0].name != "test" and not (BIN / "ninja").exists():  # make test sets everything up itself
        code = subprocess.run(["make", "dev"], cwd=ROOT).returncode
        if code != 0:
            return code
    outcomes: list[Outcome] = []
    for gate in wanted:
        left = LIMIT - sum(outcome.seconds for outcome in outcomes)
        wants = gate.budget * (pace(outcomes) if gate.compiles else 1)
        if wants > left and not arguments.gates and not arguments.full:
            why = (
                f"skipped: it may take {wants:.0f} s here, and {left:.0f} s of the {LIMIT // 60} minutes are left; "
                f".ci/run {gate.name} runs it alone"
            )
            print(f"\n=== {gate.name}: {why}", flush=True)
            outcomes.append(Outcome(gate, why))
            continue
        outcomes.append(run(gate))
        if outcomes[-1].status.startswith("FAILED") and not arguments.keep_going:
            break
    print("\n=== what the runners said")
    for outcome in outcomes:
        for line in outcome.said:
            print(f"{outcome.gate.name:12} {line}")
    print("\n=== gate       seconds  budget  of CPU")
    for outcome in outcomes:
        over = ", over its budget" if outcome.seconds > outcome.gate.budget else ""
        print(
            f"{outcome.gate.name:12} {outcome.seconds:9.0f} {outcome.gate.budget:7} {outcome.cpu:7.0f}  {outcome.status}{over}"
        )
    for gate in wanted[len(outcomes) :]:
        print(f"{gate.name:12} {'':9} {gate.budget:7} {'':7}  not run: a gate before it failed")
    total = sum(outcome.seconds for outcome in outcomes)
    print(f"{'together':12} {total:9.0f} {sum(gate.budget for gate in wanted):7}")
    return 1 if any(outcome.status.startswith("FAILED") for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
