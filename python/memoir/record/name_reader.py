# SPDX-License-Identifier: Apache-2.0
"""Reading names in a process of its own, which may end: files of debug information are anybody's, and what reads them and
names is other people's code. Time, of the processor and of the clock, and memory are limited in proportion to the files.
symbols_process.py is that process.

with NameReader() as reader:
    found, why = reader.find_lines(Path("/usr/bin/x"), build_id, offsets)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from memoir._core import Error
from memoir.base import work_budget

Line = tuple[str, str, int]  # function, file, line; "" and 0: unknown
# Of the processor, for a file that is read, beside the budget of the command; and for each byte of it.
FREE, SECONDS_PER_BYTE = 0.5, 1 / 10_000_000
_START = (  # as `python -m` would, but without looking in the current folder, which may be a stranger's
    "import sys; sys.path[:] = sys.argv[1:]; "
    "import runpy; runpy.run_module('memoir.record.symbols_process', run_name='__main__')"
)


class NameReader:
    """Use it with `with`. The process begins with the first question, and again after one that ended it. Not thread-safe."""

    def __init__(self, seconds: float = 10.0, patience: float = 10.0) -> None:
        """seconds: of the processor for any module, beside what its files' bytes add. patience: seconds that it may wait
        beyond four times that; each server may take 180 times as long."""
        self._limits = {"seconds": seconds, "patience": patience}
        self._process: subprocess.Popen[str] | None = None
        self._late = False
        self._known: set[tuple[int, int]] = set()  # files that were asked about

    def __enter__(self) -> NameReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()  # Ctrl-C may have left it in the middle of something
            self._process.communicate()

    def find_lines(
        self,
        path: Path,
        build_id: str,
        offsets: Iterable[int],
        servers: Sequence[str] = (),
        written_by: int | None = None,
    ) -> tuple[dict[int, list[Line]], str]:
        """symbols.find_lines(). Where debug information takes too much or ends its reader, the names of the symbol tables
        as they are. Raises memoir.Error, which says why, where these cannot be read either."""
        task: dict[str, Any] = {"path": str(path), "build_id": build_id, "offsets": sorted(offsets)}
        task |= {"servers": list(servers), "written_by": written_by}
        if self._late:
            task |= {"plain": True, "servers": []}
        answer, ended = self._ask(task)
        if ended:
            answer, again = self._ask(task | {"plain": True, "servers": []})
            if again:
                raise Error(f"cannot be read: its reader {again}")
            ended = f"its debug information cannot be read: the reader {ended}"
        elif self._late:
            ended = "its debug information is not read: that of another module took too long"
        if "error" in answer:
            raise Error(answer["error"])
        found = {int(offset): [(a, b, c) for a, b, c in lines] for offset, lines in answer["found"]}
        return found, "; ".join(filter(None, (answer["why"], ended)))

    def demangle(self, names: Sequence[str]) -> list[str]:
        """As they are where that takes too much."""
        answer, ended = self._ask({"names": list(names)})
        return list(names) if ended or "error" in answer else list(answer["names"])

    def _ask(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """(the answer, what became of the process where there is none)"""
        taken = time.process_time() + sum(os.times()[2:4])
        with work_budget.outside():
            answer, ended = self._answer(task)
        # A file may take what its bytes are worth, once; more is what a stranger's trace makes of it.
        seconds = answer.get("seconds", time.process_time() + sum(os.times()[2:4]) - taken)
        if self._is_new(task.get("path")):
            seconds -= FREE + answer.get("size", 0) * SECONDS_PER_BYTE
        work_budget.charge(max(seconds, 0.0))
        return answer, ended

    def _is_new(self, path: str | None) -> bool:
        try:
            status = os.stat(path) if path is not None else None
        except (OSError, ValueError):
            return False
        if status is None or (status.st_dev, status.st_ino) in self._known:
            return False
        self._known.add((status.st_dev, status.st_ino))
        return True

    def _answer(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *(place for place in sys.path if place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # a library that ends tells at length where
                text=True,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task | self._limits) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()  # it ends itself where that takes too long
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer, answer.get("ended", "")
        self._process = None
        process.kill()
        code = process.wait()
        self._late |= code == -signal.SIGALRM  # it waited for somebody: the others are not to wait as well
        with contextlib.suppress(BrokenPipeError):
            process.communicate()
        return {}, _ending(code)


def _ending(code: int) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL):
        return "took more time than files of this size do"
    if code == -signal.SIGABRT:
        return "took more memory than files of this size do"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
