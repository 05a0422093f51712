#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every program of bench/ in small, as the table in bench/README.md says: none of them rots.

    bench/smoke.py                   all of them, two at a time
    bench/smoke.py planners gpu      those whose command has one of these words in it

What a program needs and this machine has not is said and skipped. Exit code 1: one failed, or took too long.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

BENCH = Path(__file__).resolve().parent
DEVICE_POOL = BENCH.parent / "build" / "release" / "bench" / "bench_device_pool"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
LAST_LINES = 12  # of what a program said, shown when it fails


class Row(NamedTuple):
    """One program of the table."""

    program: str  # its file, as seen from bench/
    command: str  # what is run in small
    needs: tuple[str, ...]  # names of NEEDS


def table(page: Path = BENCH / "README.md") -> list[Row]:
    """The rows of the page: | `file` | what it measures | `command` | needs |."""
    pattern = r"^\| `([^`]+)` \|[^|]*\| `([^`]+)` \| *([^|]*?) *\|$"
    found = re.findall(pattern, page.read_text(), re.MULTILINE)
    return [
        Row(program, command, tuple(filter(None, needs.split(", ")))) for program, command, needs in found
    ]


# --- what a program needs: None, or why it is not here ---


def _importable(name: str) -> str | None:
    found = importlib.util.find_spec(name)
    return None if found and found.origin else f"{name} is not installed"


def _memoir_torch() -> str | None:
    try:
        import memoir.torch  # noqa: F401
    except ImportError as error:
        return f"memoir.torch cannot be imported: {error}"
    return None


def _gpu() -> str | None:
    if _importable("torch"):
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no NVIDIA GPU here"


def _on_path(*programs: str) -> str | None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    return f"{missing[0]} is not installed" if missing else None


NEEDS: dict[str, Callable[[], str | None]] = {
    "torch": functools.cache(_memoir_torch),
    "torchvision": lambda: _importable("torchvision"),
    "GPU": functools.cache(_gpu),
    "redis": lambda: _on_path("redis-server"),
    "chromium": lambda: None if any(map(shutil.which, CHROMIUM)) else "no Chromium here",
    "compiler": lambda: _on_path("cmake", "ninja", "c++"),
    "make test": lambda: None if DEVICE_POOL.exists() else "make test has not built it",
}


def why_not(row: Row) -> str | None:
    """What is missing for a row, in words; None when it can run."""
    return next((reason for need in row.needs if (reason := NEEDS[need]())), None)


# --- running ---


def arguments_of(command: str) -> list[str]:
    """The words of a command, its program found: a file of bench/, `memoir`, or a tool of the package."""
    program, *words = shlex.split(command)
    if program.endswith(".py"):
        return [sys.executable, str(BENCH / program), *words]
    if program == "memoir":
        return [sys.executable, "-m", "memoir", *words]
    from memoir.bench.process.machine import tool

    return [str(tool(program)), *words]


def run(command: str, timeout: float) -> tuple[float, str | None]:
    """Seconds, and how it failed: its last lines; None when it did not."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memoir-smoke-") as folder, tempfile.TemporaryFile() as output:
        try:
            started = subprocess.Popen(
                arguments_of(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that what it started ends with it
            )
        except Exception as error:  # no such program: said, and the others still run
            return time.monotonic() - began, str(error)
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            return time.monotonic() - began, f"not done after {timeout:g} s"
        seconds = time.monotonic() - began
        if code == 0:
            return seconds, None
        output.seek(0)
        last = output.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        return seconds, "\n".join([f"exit code {code}", *last])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="run only commands with one of these in them")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each (120)")
    parser.add_argument("--table", type=Path, default=BENCH / "README.md", help="the page with the table")
    options = parser.parse_args()
    rows = list({row.command: row for row in table(options.table)}.values())  # some serve two programs
    rows = [row for row in rows if not options.words or any(word in row.command for word in options.words)]
    if not rows:
        parser.error("no command of the table has these words in it")
    reasons = {row: why_not(row) for row in rows}
    for row, reason in reasons.items():
        if reason:
            print(f"skipped           {row.command}: {reason}", flush=True)
    began, failed = time.monotonic(), 0
    chosen = [row for row in rows if not reasons[row]]
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        running = [(row, pool.submit(run, row.command, options.timeout)) for row in chosen]
        for row, future in running:
            seconds, failure = future.result()
            print(f"{'FAILED' if failure else 'ok':8}{seconds:6.1f} s  {row.command}", flush=True)
            if failure:
                failed += 1
                print("    " + failure.replace("\n", "\n    "), flush=True)
    skipped = len(rows) - len(chosen)
    print(
        f"{len(chosen) - failed} ok, {skipped} skipped, {failed} failed in {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
