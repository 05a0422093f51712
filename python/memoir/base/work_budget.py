# SPDX-License-Identifier: Apache-2.0
"""What a command may take for the files that it was given: so much for any, and so much more for each byte of them.

A file of a stranger can be small and ask for much. A command that needs more than its budget ends, with a line that says
so; `--yes` lifts it. What takes time because its user said so (a deadline, another process) adds to the budget with
allow(). A thread looks on, so that it holds also while the core computes; so does a timer of the processor, for what keeps
that thread waiting, such as a regular expression; and each output is looked at before it gets its name, so that none is
published by a command that was quicker than that thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from memoir.base.files import before_finish, making, remove_unfinished, unfinished_bytes
from memoir.base.quantities import bytes_text, printable
from memoir.base.threads import start_without_signals

SECONDS, SECONDS_PER_BYTE = 8.0, 0.1 / 10_000  # of the processor
MEMORY, MEMORY_PER_BYTE = 512 << 20, (4 << 20) / 10_000  # beyond what the process had when it began
OUTPUT, OUTPUT_PER_BYTE = 64 << 20, (4 << 20) / 10_000  # bytes of the files that it writes
EVERY = 0.05  # seconds between two looks
TIMER_LATE = 1.0  # seconds of the processor beyond the budget, until which the thread has had its turn
BAD_INPUT = 2
_MOST_FILES = 10_000  # of a folder that are counted
_PACKED = 4096  # bytes of a file that may take nothing on its disk
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

_active: _Budget | None = None


class _Budget:
    def __init__(self, paths: list[Path]) -> None:
        seen: set[tuple[int, int]] = set()
        sizes = [_size(path, seen) for path in paths]
        self.size = sum(sizes)
        self.name = printable(str(paths[sizes.index(max(sizes))])) if paths else "the input"
        self.seconds = SECONDS + SECONDS_PER_BYTE * self.size
        self.output = OUTPUT + OUTPUT_PER_BYTE * self.size
        self.memory = MEMORY + MEMORY_PER_BYTE * self.size
        self.ended = threading.Event()
        self.paused = False
        self._stopping = threading.RLock()  # never given back: the process ends
        self.charged = 0.0  # seconds that count beside those of the process; below 0: that do not
        self._began = _used()

    def watch(self) -> None:
        while not self.ended.wait(EVERY):
            self.look()

    def set_timer(self) -> None:
        """A signal when the time is over. Of the main thread."""
        left = self.seconds - self.charged - (_used()[0] - self._began[0])
        signal.setitimer(signal.ITIMER_PROF, max(left, 0.0) + TIMER_LATE)

    def on_timer(self, *_: object) -> None:
        self.look()
        if not self.ended.is_set():
            self.set_timer()

    def look(self) -> None:
        """Ends the process where it is beyond its budget. Any thread may call it."""
        seconds, memory = (now - then for now, then in zip(_used(), self._began, strict=True))
        if self.paused or self.ended.is_set():
            return
        if seconds + self.charged > self.seconds:
            self._stop(f"{self.seconds:.0f} s of the processor")
        if memory > self.memory:
            self._stop(f"{bytes_text(int(self.memory))} of memory")
        if unfinished_bytes() > self.output:
            self._stop(f"{bytes_text(int(self.output))} of output")

    def _stop(self, what: str) -> NoReturn:
        line = f"memoir: {self.name} asks for more than {what}, which is much for {bytes_text(self.size)}: pass --yes to go on"
        self._stopping.acquire()
        making.acquire()
        remove_unfinished()
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="replace"))
        os._exit(BAD_INPUT)  # the thread that computes cannot be asked


@contextlib.contextmanager
def within_budget(paths: Iterable[str | os.PathLike[str]], *, lifted: bool = False) -> Iterator[None]:
    """Ends the process, with a line, when what runs inside takes more than these files allow; unless it is lifted."""
    global _active
    if lifted or _active is not None:
        yield
        return
    _active = budget = _Budget([Path(path) for path in paths])
    start_without_signals(threading.Thread(target=budget.watch, name="memoir-budget", daemon=True))
    before_finish.append(budget.look)
    with _timer(budget):
        try:
            yield
        finally:
            budget.ended.set()
            before_finish.remove(budget.look)
            _active = None


@contextlib.contextmanager
def _timer(budget: _Budget) -> Iterator[None]:
    """Nothing where signals are not ours: in other threads, and where a profiler has that one."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGPROF, budget.on_timer)
    signal.siginterrupt(signal.SIGPROF, False)
    budget.set_timer()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def allow(seconds: float, memory: int = 0) -> None:
    """So much more for the command that runs, if it has a budget."""
    if _active is not None:
        _active.seconds += seconds
        _active.memory += memory


def charge(seconds: float) -> None:
    """So much of what was taken outside() counts after all. Ends the process as look() does."""
    if _active is not None:
        _active.charged += seconds
        _active.look()


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """What this process and its children take inside is not of the budget: it has limits of its own."""
    budget = _active
    if budget is None:
        yield
        return
    budget.paused = True
    before = _used()
    try:
        yield
    finally:
        seconds, memory = (now - then for now, then in zip(_used(), before, strict=True))
        budget.charged -= seconds
        budget.memory += max(memory, 0)
        budget.paused = False


def lift() -> None:
    """No budget from here on, for what goes on until it is stopped."""
    if _active is not None:
        _active.ended.set()


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    """Bytes that a file takes; of a folder those of the files in it, not of what its links lead to. Each counts once."""
    try:
        if not path.is_dir():
            return _taken(path.stat(), seen)
        found = 0
        for number, one in enumerate(path.iterdir()):
            if number >= _MOST_FILES:
                break
            found += _taken(one.lstat(), seen)
        return found
    except (OSError, ValueError):
        return 0


def _taken(status: os.stat_result, seen: set[tuple[int, int]]) -> int:
    """Without holes: who makes one writes nothing. File systems may pack what is small, or all a little."""
    if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
        return 0
    seen.add((status.st_dev, status.st_ino))
    return min(status.st_size, max(4 * 512 * status.st_blocks, _PACKED))


def _used() -> tuple[float, float]:
    """(seconds of the processor, bytes of memory of its own) of this process and those that it started."""
    ended = os.times()
    seconds, memory = time.process_time() + ended.children_user + ended.children_system, _own_memory("self")
    for child in _children():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
            memory += _own_memory(str(child))
    return seconds, memory


def _own_memory(process: str) -> float:
    """Without pages of files, which are the input itself and libraries."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except OSError:
        return 0.0
    return float((int(fields[1]) - int(fields[2])) * _PAGE)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError):
                found += map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    return found
