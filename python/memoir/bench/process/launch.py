# SPDX-License-Identifier: Apache-2.0
"""One run of one command through memoir-launch, which asks the kernel for the whole tree's account."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from memoir._core import Error
from memoir.bench.process import machine

TAIL_LINES = 8  # what a failure shows of the program's last words
_PIECE = 1 << 20  # bytes of output in memory at a time
_SEAM = 1 << 16  # what two pieces share, so that a line between them is seen whole


class Transcript:
    """What a program printed: kept in a file without a name, read in pieces, however much it is."""

    def __init__(self, file: IO[bytes] | None = None, text: str = "") -> None:
        self._file, self._text = file, text

    def pieces(self) -> Iterator[str]:
        """Text in order; each piece begins at the start of a line where lines are not longer than a piece."""
        if self._file is None:
            yield self._text
            return
        self._file.seek(0)
        rest = b""
        while piece := self._file.read(_PIECE):
            piece = rest + piece
            end = piece.rfind(b"\n") + 1 or len(piece)
            yield piece[:end].decode(errors="replace")
            rest = piece[end:] if len(piece) - end <= _PIECE else b""
        if rest:
            yield rest.decode(errors="replace")

    def tail(self, most: int = _SEAM) -> str:
        """The last bytes as text."""
        if self._file is None:
            return self._text[-most:]
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - most))
        return self._file.read().decode(errors="replace")

    def last_lines(self) -> list[str]:
        return self.tail().splitlines()[-TAIL_LINES:]

    def last_number(self, pattern: re.Pattern[str]) -> float | None:
        """The last number that the pattern's first group matches, or None. nan and inf are not numbers."""
        value = None
        for piece in self.pieces():
            found = read_metric(pattern, piece)
            value = value if found is None else found
        return value

    def matches(self, pattern: re.Pattern[str], most: int = 100_000) -> list[tuple[str, ...]]:
        """The groups of every match, up to so many."""
        found: list[tuple[str, ...]] = []
        for piece in self.pieces():
            found += pattern.findall(piece)
            if len(found) >= most:
                break
        return found[:most]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class Measurement:
    """What the kernel said of a run, over its whole process tree. Times in seconds, sizes in bytes."""

    wall: float  # from the start of exec until the command's own end
    user: float
    system: float
    peak_rss: int  # of one process: exact; of several at once: the largest sum seen, or the largest of them
    largest_rss: int  # peak of the largest single process, exact
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    processes: int  # most seen alive together
    leftover: int  # processes that outlived the command and were killed
    exit_code: int | None
    signal: int | None
    timed_out: bool
    asked: bool = False  # it was asked to end: a server
    counters: dict[str, float] = field(default_factory=dict)
    said: Transcript = field(default_factory=Transcript)  # standard output and error together
    memory: list[list[float]] = field(default_factory=list)  # samples: see memory.py
    memory_held: float = 0.0  # seconds in which taking them may have held up the tree
    images: list[dict[str, Any]] = field(default_factory=list)  # what a witness saw: see proof.py

    @property
    def failure(self) -> str | None:
        """Why the run does not count, or None; the exit code is judged by who knows the right one."""
        if self.timed_out:
            return "timeout"
        if self.signal is not None and not (self.asked and self.signal == signal.SIGTERM):
            return (
                signal.Signals(self.signal).name
                if self.signal in list(signal.Signals)
                else f"signal {self.signal}"
            )
        return None

    @property
    def output(self) -> str:
        """The end of what was printed, up to a megabyte."""
        return self.said.tail(_PIECE)

    @property
    def tail(self) -> list[str]:
        return self.said.last_lines()


class Running:
    """A command under way. wait() gives its Measurement; stop() ends it and everything that it started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        cpus: Sequence[int] = (),
        counters: Sequence[str] = (),
        memory: float | None = None,
        witness: str | None = None,
    ) -> None:
        """memory: samples of the tree's memory, at most so many seconds apart; witness: the probe's folder (proof.py)."""
        arguments = []
        if timeout:
            arguments += ["--timeout", repr(float(timeout))]
        if cpus:
            arguments += ["--cpus", ",".join(map(str, cpus))]
        if counters:
            arguments += ["--counters", ",".join(counters)]
        if memory:
            arguments += ["--memory", repr(float(memory))]
        if witness:
            arguments += ["--witness", witness]
        for name, value in (environment or {}).items():
            arguments += ["--env", f"{name}={value}"]
        self._command = list(command)
        self._output = tempfile.TemporaryFile(prefix="memoir-bench-")  # noqa: SIM115 (closed by wait)
        self._report, writer = os.pipe()
        try:
            self._launcher = subprocess.Popen(
                [machine.tool("memoir-launch"), "--report", str(writer), *arguments, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C is for us: we then stop the tree in order
            )
        finally:
            os.close(writer)

    @property
    def process(self) -> int:
        """The launcher's process id: the command is its only child."""
        return self._launcher.pid

    def running(self) -> bool:
        return self._launcher.poll() is None

    def stop(self) -> None:
        """Kills it and everything that it started."""
        self._launcher.terminate()

    def ask_to_end(self) -> None:
        """Sends the command SIGTERM, as a service manager does; ending by it is then no failure."""
        self._launcher.send_signal(signal.SIGUSR1)

    def wait(self) -> Measurement:
        """Blocks until the tree is gone. Raises memoir.Error when the command could not be started at all."""
        try:
            with os.fdopen(self._report, "rb") as report:
                text = report.read()
        except BaseException:
            self.stop()
            self._launcher.wait()
            raise
        self._launcher.wait()
        if not text:
            raise Error(f"{self._command[0]}: the launcher ended without a report")
        report = json.loads(text)
        if "error" in report:
            reason = os.strerror(report["errno"])
            raise Error(f"cannot start {self._command[0]} ({report['error']}): {reason}")
        report.pop("interrupted")
        return Measurement(**report, said=Transcript(self._output))


def launch(command: Sequence[str], **options: Any) -> Measurement:
    """Runs a command to its end; the options are Running's."""
    return Running(command, **options).wait()


def resolve(program: str) -> Path:
    """The file that exec would run. Raises memoir.Error when there is none."""
    candidates = [Path(program)] if "/" in program else [Path(p or ".", program) for p in os.get_exec_path()]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(
            candidate, os.X_OK
        ):  # Path.is_file raises in closed folders
            return candidate
    for candidate in candidates:
        if os.path.isfile(candidate):
            raise Error(f"{candidate} is not executable: chmod +x {candidate}")
    raise Error(f"no program {program}" + ("" if "/" in program else " on the PATH"))


def read_metric(pattern: re.Pattern[str], output: str) -> float | None:
    """The last number that the pattern's first group matches in the output, or None."""
    value = None
    for match in pattern.finditer(output):
        try:
            number = float(match.group(1).replace(",", ""))
        except (ValueError, AttributeError):
            continue
        if math.isfinite(number):
            value = number
    return value
