#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that were once put into the core and that no test noticed. Each is put in again, in a copy of the sources, and
its test must fail.

    python tests/mutants.py              all of them; the exit status is 0 when every one is killed
    python tests/mutants.py wrap size    those with one of the words in their name

A line per mutant goes to stdout, notes to stderr. The copy is built without optimisation; a compiler cache in
CMAKE_CXX_COMPILER_LAUNCHER is used."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # below src/memoir
    old: str  # occurs exactly once in the file
    new: str
    test: str  # the test program
    case: str  # doctest's filter


MUTANTS = [
    Mutant(
        "plan cursor: a near match does not end the row of misses",
        "heap/planned/plan_cursor.cc",
        "  next_ = index + 1;\n  misses_ = 0;\n",
        "  next_ = index + 1;\n",
        "test_heap",
        "*near*,*far match*",
    ),
    Mutant(
        "slab: a plan of any size is leased",
        "remember/slab/slab.cc",
        "    if (layout->arena_size() > room_.load(std::memory_order_relaxed)) return false;\n",
        "",
        "test_remember",
        "a slab refuses a plan*",
    ),
    Mutant(
        "slab set: a slab made while all were retired is not",
        "remember/slab/slab_set.cc",
        "    slab->retire();  // all was retired meanwhile",
        "    // all was retired meanwhile",
        "test_remember",
        "a slab that was being made*",
    ),
    Mutant(
        "door to PyTorch: what a plan does not serve is recorded as another thread's",
        "remember/torch/allocator.cc",
        "  if (planned || pass.slab != nullptr) return;  // other threads do not plan",
        "  if (planned) return;  // other threads do not plan",
        "test_remember_torch",
        "a thread that follows a plan*",
    ),
    Mutant(
        "door to PyTorch: the profiler is not told of memory apart",
        "remember/torch/allocator.cc",
        "        if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().New(pointer, size);\n        tell",
        "        tell",
        "test_remember_torch",
        "the memory profiler*",
    ),
    Mutant(
        "address space: a row of windows goes on at the wrap",
        "remember/slab/address_space.cc",
        "window = run = 0;",
        "window = 0;",
        "test_remember",
        "free windows at the end*",
    ),
    Mutant(
        "recorder: an object whose record was dropped stays known",
        "remember/slab/recorder.cc",
        "  } else {\n    live_.take(address);\n  }\n",
        "  }\n",
        "test_remember",
        "an object whose record was dropped*",
    ),
    Mutant(
        "event checker: a free leaves the live bytes as they were",
        "trace/objects/event_checker.cc",
        "    live_ -= allocation.size;\n",
        "",
        "test_trace",
        "2^56 bytes*",
    ),
]


def copy_sources(to: Path) -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def configure(sources: Path) -> None:
    command = ["cmake", "-S", str(sources), "-B", str(sources / "build/mutants"), "-G", "Ninja"]
    command += ["-DMEMOIR_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0"]
    ninja = shutil.which("ninja")
    if ninja is not None:
        command.append(f"-DCMAKE_MAKE_PROGRAM={ninja}")
    subprocess.run(command, check=True, stdout=sys.stderr)


def build(sources: Path, tests: set[str]) -> None:
    command = ["cmake", "--build", str(sources / "build/mutants"), "--target", *sorted(tests)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def passes(sources: Path, mutant: Mutant) -> bool:
    """Whether the test passes. One that finds no case to run, or hangs, has not."""
    program = sources / "build/mutants/tests" / mutant.test
    command = [str(program), f"--test-case={mutant.case}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0 and "test cases: 0 " not in " ".join(run.stdout.split())


def survives(sources: Path, mutant: Mutant) -> bool:
    path = sources / "src/memoir" / mutant.file
    before = path.read_text()
    if before.count(mutant.old) != 1:
        sys.exit(
            f"mutants: {mutant.file} holds the text of '{mutant.name}' {before.count(mutant.old)} times, not once"
        )
    try:
        path.write_text(before.replace(mutant.old, mutant.new))
        build(sources, {mutant.test})
        return passes(sources, mutant)
    finally:
        path.write_text(before)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only mutants with one of these in their name or file")
    words = parser.parse_args().words
    chosen = [m for m in MUTANTS if not words or any(word in m.name or word in m.file for word in words)]
    if not chosen:
        sys.exit("mutants: none has such a word; without words all are tried")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="memoir-mutants-") as folder:
        sources = Path(folder)
        copy_sources(sources)
        configure(sources)
        build(sources, {m.test for m in chosen})
        survivors = 0
        for mutant in chosen:
            if not passes(sources, mutant):
                sys.exit(f"mutants: {mutant.test} fails before anything is changed: {mutant.case}")
            alive = survives(sources, mutant)
            survivors += alive
            print(
                f"{'SURVIVED' if alive else 'killed  '}  {mutant.name} ({mutant.file}, {mutant.test})",
                flush=True,
            )
        print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
