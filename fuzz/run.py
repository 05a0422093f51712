# SPDX-License-Identifier: Apache-2.0
"""Runs every fuzzer for a while, two at a time, and says what each did.

python fuzz/run.py --build build/address --seconds 60
python fuzz/run.py --build build/fuzz --seconds 600 trace_fuzz

A fuzzer is fuzz/NAME_fuzz.cc, which a build makes with libFuzzer (clang) or with driver.cc, or fuzz/NAME_fuzz.py. Its seeds
are fuzz/seeds/NAME_fuzz, its words fuzz/dictionaries/NAME_fuzz.dict. Inputs that fail, and what libFuzzer learns, lie in
BUILD/found/NAME_fuzz. Exit status 1 when a fuzzer failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SPARE = 120  # seconds beyond its time after which a fuzzer hangs in one input


def names() -> list[str]:
    return sorted(path.stem for pattern in ("*_fuzz.cc", "*_fuzz.py") for path in FOLDER.glob(pattern))


def command(name: str, build: Path) -> list[str]:
    """The fuzzer with its seeds and words; callers add --seconds or --rounds, and --seed."""
    if (FOLDER / f"{name}.py").exists():
        return [sys.executable, str(FOLDER / f"{name}.py"), str(FOLDER / "seeds" / name)]
    words = FOLDER / "dictionaries" / f"{name}.dict"
    program = build.resolve() / "fuzz" / name
    return [
        str(program),
        *(["--dictionary", str(words)] if words.exists() else []),
        *(["corpus"] if is_libfuzzer(program) else []),  # the first folder is where it keeps what it learns
        str(FOLDER / "seeds" / name),
    ]


def is_libfuzzer(program: Path) -> bool:
    return b"libFuzzer" in program.read_bytes()


def run(name: str, build: Path, seconds: float, seed: int) -> tuple[str, bool, str]:
    """The fuzzer's name, whether it failed, and what to say of it."""
    folder = build.resolve() / "found" / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    if not (FOLDER / f"{name}.py").exists() and not (build / "fuzz" / name).exists():
        return name, True, f"not built: cmake --build {build} --target {name}"
    begin = time.monotonic()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command(name, build), "--seconds", str(int(seconds)), "--seed", str(seed)],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(seconds + SPARE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it then writes the input down
            process.wait()
            code = -signal.SIGABRT
    text = log.read_text(errors="replace")
    took = f"{time.monotonic() - begin:4.0f} s  "
    if code != 0:
        return name, True, f"{took}failed with {code}; inputs and log in {folder}\n{text[-3000:]}"
    found = re.findall(r"^.* no crash$|^Done \d+ runs in .*$", text, re.MULTILINE)
    return name, False, took + (found[-1] if found else "ended, and said nothing of what it did")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/address"))
    parser.add_argument("--seconds", type=float, default=60, help="of each fuzzer")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="fuzzers at a time")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="else another one each time")
    parser.add_argument("fuzzers", nargs="*", help="else all")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.fuzzers) - set(names()))
    if unknown:
        parser.error(f"no fuzzer {', '.join(unknown)}; there are {', '.join(names())}")
    failed = []
    print(f"seed {arguments.seed}", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        wanted = arguments.fuzzers or names()
        for name, bad, text in pool.map(
            lambda name: run(name, arguments.build, arguments.seconds, arguments.seed), wanted
        ):
            print(f"{name:22} {text}", flush=True)
            failed += [name] if bad else []
    print(f"{len(wanted) - len(failed)} of {len(wanted)} fuzzers found nothing")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
