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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memoir import _core


@dataclass(frozen=True)
class Found:
    """What a solver came to know until it ended, or was ended."""

    offsets: list[float] | None  # of the last solution
    bound: int  # 0: none
    interrupted: bool  # by Ctrl-C


def solve(module: str, task: dict[str, Any], until: float) -> Found:
    """Runs `python -m module` until `until`, of the clock time.time(). Raises Error when the process fails by itself."""
    interrupted = False
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        json.dump({**task, "until": until}, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is ours
        )
        ended = True
        try:
            process.wait(max(until - time.time(), 0))
        except KeyboardInterrupt:
            interrupted, ended = True, False
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            process.kill()
            code = process.wait()
        output.seek(0)
        # The last line may be cut off.
        lines = [json.loads(line) for line in output.read().splitlines(True) if line.endswith("\n")]
        if ended and code != 0:
            errors.seek(0)
            reason = (errors.read().strip().splitlines() or ["no reason given"])[-1]
            raise _core.Error(f"{module.rpartition('.')[2]}: failed with {code}: {reason}")
    for line in lines:
        if "error" in line:
            raise _core.Error(line["error"])
    offsets = [line["offsets"] for line in lines if "offsets" in line]
    bounds = [line["bound"] for line in lines if "bound" in line]
    return Found(offsets[-1] if offsets else None, max(bounds, default=0), interrupted)


def serve(work: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]) -> None:
    """The process' side: calls work(task, tell). What the solver prints itself goes to stderr."""
    task = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)

        def tell(line: dict[str, Any]) -> None:
            told.write(json.dumps(line) + "\n")
            told.flush()

        work(task, tell)
