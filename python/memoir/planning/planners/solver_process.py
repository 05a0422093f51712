# SPDX-License-Identifier: Apache-2.0
"""A solver of others in a process of its own, which ends at the deadline whatever the solver thinks of it: solvers look at
the clock now and then, and loading one takes a good part of a second. The process gets a task as JSON on stdin, and
writes lines of JSON to stdout as it comes to know more:

    {"offsets": [...]}    a better solution, an offset for each buffer
    {"bound": 7}          no solution is smaller
    {"error": "..."}      why it cannot be done; the last line then
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from memoir import _core
from memoir.base import work_budget

# It finds modules where we do. `python -m` would look in the current folder first, which may hold a stranger's json.py;
# `-c` does as well, so the path is replaced before anything is imported from it.
_START = (
    "import sys; module, sys.path[:] = sys.argv[1], sys.argv[2:]; "
    "import runpy; runpy.run_module(module, run_name='__main__')"
)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Found:
    """What a solver came to know until it ended, or was ended."""

    offsets: list[float] | None  # of the last solution
    bound: int  # 0: none
    interrupted: bool  # by Ctrl-C


def solve(name: str, module: str, task: dict[str, Any], until: float) -> Found:
    """Runs the module until `until`, of the clock time.monotonic(). The name is that of the planner and its solver, for
    errors. What the solver told before a signal ended it counts. Raises Error when it fails by itself, and when a
    signal ends it before it tells anything."""
    work_budget.allow(seconds=2.0, memory=1 << 30)  # what a solver takes to begin
    interrupted = False
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        json.dump({**task, "until": until, "parent": os.getpid()}, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _START, module, *(place for place in sys.path if place)],
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is ours
        )
        ended = True
        try:
            process.wait(max(until - time.monotonic(), 0))
        except KeyboardInterrupt:
            interrupted, ended = True, False
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            process.kill()
            code = process.wait()
        output.seek(0)
        offsets, bound, error = _read(output)
        if error is not None:
            raise _core.Error(error)
        if ended and code < 0 and offsets is None and bound == 0:
            raise _core.Error(
                f"{name} was ended by {signal.Signals(-code).name} before it found anything; when memory is short, "
                "use another planner"
            )
        if ended and code > 0:
            errors.seek(0)
            reason = (errors.read().strip().splitlines() or ["no reason given"])[-1]
            raise _core.Error(f"{name} failed with {code}: {reason}")
    return Found(offsets, bound, interrupted)


def _read(lines: Iterable[str]) -> tuple[list[float] | None, int, str | None]:
    """The last offsets, the best bound, and the error. Of many long lines of offsets only the last one is parsed."""
    offsets, bound = None, 0
    for line in lines:
        if not line.endswith("\n"):  # cut off
            break
        if line.startswith('{"offsets"'):
            offsets = line
            continue
        told = json.loads(line)
        if "error" in told:
            return None, 0, told["error"]
        bound = max(bound, told["bound"])
    return None if offsets is None else json.loads(offsets)["offsets"], bound, None


def serve(work: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]) -> None:
    """The process' side: calls work(task, tell). What the solver prints itself goes to stderr."""
    import ctypes  # not in the parent, which starts sooner without it

    # When the parent is killed, so are we. The kernel does so when the thread that started us ends, and solve() waits
    # in that thread. Whoever has another parent by now came too late for that.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    task = json.load(sys.stdin)
    if os.getppid() != task["parent"]:
        return
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)

        def tell(line: dict[str, Any]) -> None:
            told.write(json.dumps(line) + "\n")
            told.flush()

        work(task, tell)
