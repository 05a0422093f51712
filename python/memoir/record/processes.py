# SPDX-License-Identifier: Apache-2.0
"""What is seen of recorded processes from outside, while they run: their mappings and the names of their threads, from
/proc. It goes into their traces once they have ended, so nothing of it costs the programs an instruction; reading the
mappings of a process holds up its own mappings and page faults for that long, so it is done rarely.

with native.Clock() as clock, Watcher(trace, clock) as watcher:
    status = run_program(program, environment, watcher.began)
watcher.add_facts()
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from memoir._core import Error, Trace, add_process_facts
from memoir.base.files import open_beside
from memoir.base.threads import start_without_signals
from memoir.record import native
from memoir.record.native import Clock

HEAP, ANONYMOUS, THREAD_STACK, MAIN_STACK, FILE, SHARED, RECORDER, OTHER = range(
    1, 9
)  # regions, as in traces
START, REGULAR, PEAK = 1, 2, 3  # moments

_PAGE = 4096
_LOOK_EVERY = 0.05  # seconds, at resident bytes
_EVERY = 1.0  # seconds, at mappings
_LEAST = 0.1  # seconds between two looks at mappings, however fast a process grows
_MOST_SHARE = 0.02  # of a process's time that it may be held up
_MOST_PROCESSES = 64
_MOST_GROUPS = 200
_MOST_LINES = 1 << 20  # bytes of the index that are read at once


@dataclass
class Group:
    count: int = 0
    mapped: int = 0
    resident: int = 0
    dirty: int = 0
    swapped: int = 0


@dataclass
class _Process:
    pid: int
    trace: Path
    taken: list[tuple[int, int, dict[tuple[int, str], Group]]] = field(
        default_factory=list
    )  # ns, resident, groups
    names: dict[int, str] = field(default_factory=dict)  # of threads, by the kernel's number
    next: float = 0.0
    earliest: float = 0.0
    most: int = 0  # resident bytes, when mappings were looked at


def read_mappings(text: bytes, trace: str) -> dict[tuple[int, str], Group]:
    """Groups by region and file name of /proc/PID/smaps. trace: the absolute path of the recorder's file, whose mappings are
    its own. They keep the name that the file had before it got this one: # and the inode, in the same folder (O_TMPFILE)."""
    groups: dict[tuple[int, str], Group] = defaultdict(Group)
    group = Group()
    before = (0, "", 0)  # end, protection and bytes of the mapping before
    for line in text.split(b"\n"):
        if line[-3:] != b" kB":
            words = line.split(None, 5)
            if len(words) < 5 or b"-" not in words[0]:
                continue
            begin, end = (int(word, 16) for word in words[0].split(b"-"))
            name = words[5].decode(errors="replace") if len(words) == 6 else ""
            nameless = f"{os.path.dirname(trace)}/#{words[4].decode()}"
            region = _region(name, words[1], (trace, nameless))
            guarded = before[0] == begin and before[1] == "---p" and before[2] <= 16 * _PAGE
            if region == ANONYMOUS and guarded:
                region = THREAD_STACK
            group = groups[region, name.removesuffix(" (deleted)") if region in (FILE, SHARED) else ""]
            group.count += 1
            group.mapped += end - begin
            before = (end, words[1].decode(), end - begin)
        elif line.startswith(b"Rss:"):
            group.resident += int(line.split()[1]) * 1024
        elif line.startswith((b"Private_Dirty:", b"Shared_Dirty:")):
            group.dirty += int(line.split()[1]) * 1024
        elif line.startswith(b"Swap:"):
            group.swapped += int(line.split()[1]) * 1024
    return dict(groups)


def _region(name: str, protection: bytes, own: tuple[str, ...]) -> int:
    if name == "[heap]":
        return HEAP
    if name.startswith("[stack"):
        return MAIN_STACK
    if not name or name.startswith("[anon"):
        return SHARED if protection.endswith(b"s") else ANONYMOUS
    if name.startswith("["):
        return OTHER
    plain = name.removesuffix(" (deleted)")
    if plain in own or plain.endswith("/libmemoir_record.so") or "/memoir-clock-" in plain:
        return RECORDER
    if plain.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage")):
        return SHARED
    return FILE


class Watcher:
    """Looks at the recorded processes from `with` to its end: that which `trace` is of, and those that its index lists."""

    def __init__(self, trace: Path, clock: Clock) -> None:
        self._trace = trace
        self._clock = clock
        self._processes: dict[int, _Process] = {}
        self._finished: list[_Process] = []
        self._read = 0  # bytes of the index
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memoir-watch", daemon=True)

    def began(self, pid: int) -> None:
        """The program runs, as process `pid`. Only now is there a thread: it would be in the way of fork()."""
        self._processes[pid] = _Process(pid, self._trace)
        start_without_signals(self._thread)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def add_facts(self) -> None:
        """Adds what was seen to the traces, which are finished. One that cannot be added to stays as it is."""
        for process in [*self._finished, *self._processes.values()]:
            if not native.is_recorded(process.trace):
                continue
            rows = _rows(process)
            try:
                threads = [
                    (row["thread"], row["system_id"], process.names[row["system_id"]])
                    for row in Trace.open(str(process.trace)).threads
                    if not row["name"] and row["system_id"] in process.names
                ]
                if rows or threads:
                    add_process_facts(str(process.trace), rows, threads)
            except Error:
                continue

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_EVERY):
            self._look_for_others()
            for process in list(self._processes.values()):
                self._look_at(process)

    def _look_for_others(self) -> None:
        try:
            with os.fdopen(open_beside(native.index_of(self._trace)), "rb") as file:
                file.seek(self._read)
                text = file.read(_MOST_LINES)
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            row = native.listed_row(self._trace, line)
            if row is None:
                continue
            trace, pid = row
            if (known := self._processes.pop(pid, None)) is not None:  # it became another program
                self._finished.append(known)
            if len(self._processes) < _MOST_PROCESSES:
                self._processes[pid] = _Process(pid, trace)

    def _look_at(self, process: _Process) -> None:
        now = time.monotonic()
        if now < process.earliest:
            return
        folder = Path(f"/proc/{process.pid}")
        try:
            resident = int((folder / "statm").read_bytes().split()[1]) * _PAGE
            if resident == 0:  # it has ended, and nobody has asked how
                return
            if now < process.next and resident < 1.1 * process.most + (1 << 20):
                return
            if not native.is_recorded(process.trace):
                return
            at = self._clock.now()
            began = time.monotonic()
            text = (folder / "smaps").read_bytes()
            spent = time.monotonic() - began
            for thread in (folder / "task").iterdir():
                process.names[int(thread.name)] = (thread / "comm").read_text(errors="replace").strip()
        except (OSError, IndexError, ValueError):
            self._processes.pop(process.pid, None)
            self._finished.append(process)
            return
        if not text:
            return
        groups = read_mappings(text, os.path.abspath(process.trace))
        process.taken.append((at, sum(group.resident for group in groups.values()), groups))
        process.most = max(process.most, resident)
        process.next = now + max(_EVERY, spent / _MOST_SHARE)
        process.earliest = now + max(_LEAST, spent / _MOST_SHARE)


def _rows(process: _Process) -> list[Any]:
    """As add_process_facts() takes them; of two that are close in time and growing, both, since one may be the peak."""
    if not process.taken:
        return []
    peak = max(range(len(process.taken)), key=lambda i: process.taken[i][1])
    rows = []
    for i, (at, resident, groups) in enumerate(process.taken):
        moment = PEAK if i == peak else START if i == 0 else REGULAR
        kept = sorted(groups.items(), key=lambda row: -row[1].resident)
        rest: dict[tuple[int, str], Group] = {}
        for (region, _), group in kept[_MOST_GROUPS:]:
            sum_of = rest.setdefault((region, ""), Group())
            for name in ("count", "mapped", "resident", "dirty", "swapped"):
                setattr(sum_of, name, getattr(sum_of, name) + getattr(group, name))
        rows.append(
            (
                at,
                moment,
                resident,
                [
                    (region, name, group.count, group.mapped, group.resident, group.dirty, group.swapped)
                    for (region, name), group in [*kept[:_MOST_GROUPS], *rest.items()]
                ],
            )
        )
    return rows
