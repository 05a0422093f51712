# SPDX-License-Identifier: Apache-2.0
"""How often and how a grid is run."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass

from memoir._core import Error


@dataclass(frozen=True)
class Options:
    """How the grid is run. Times in seconds."""

    replicates: int = 10
    warmup: int = 1  # unmeasured runs of every cell before the first replicate
    seed: int | None = None  # of every random choice; None: drawn now, and recorded
    sessions: int = (
        1  # the whole, so many times, with warm-ups of its own; then sessions are what intervals are of
    )
    pause: float = 0.0  # between two sessions
    pin: str | None = None  # None: not pinned; "auto": the first {threads} cores; else a list such as 0,2-3
    timeout: float | None = None
    exit_code: int = 0  # what a run must end with to count
    prepare: str | None = None  # shell command before every run, unmeasured
    until: float | None = None  # half width of the intervals that is narrow enough, as a fraction
    budget: float = 600.0  # with until: no replicate starts after this
    memory: bool = False  # sample the tree's memory over time
    counters: tuple[str, ...] = ("cycles", "instructions", "dtlb_load_misses", "dtlb_store_misses")

    def __post_init__(self) -> None:
        if self.seed is None:
            object.__setattr__(self, "seed", secrets.randbelow(1 << 31))
        if self.sessions < 1:
            raise Error(f"--sessions {self.sessions}: must be 1 or more")
        if self.sessions > 1 and self.until is not None:
            raise Error("--until adds replicates to one session: leave out --sessions, or choose -n")
        if self.pause < 0:
            raise Error(f"a pause of {self.pause}: must be 0 or more")
        if self.replicates < 1:
            raise Error(f"-n {self.replicates}: must be 1 or more")
        if self.warmup < 0:
            raise Error(f"--warmup {self.warmup}: must be 0 or more")
        if self.timeout is not None and self.timeout <= 0:
            raise Error(f"--timeout {self.timeout}: must be more than 0")
        if self.until is not None and not 0 < self.until < 1:
            raise Error(f"--until {self.until:.0%}: must be between 0 % and 100 %")
        cpus_for(self.pin, 1)


def cpus_for(pin: str | None, threads: int) -> list[int]:
    """The cores of a run; empty: not pinned. Raises memoir.Error for what is not a core here."""
    allowed = sorted(os.sched_getaffinity(0))
    if pin is None:
        return []
    if pin == "auto":
        return allowed[:threads]
    cpus: list[int] = []
    for part in pin.split(","):
        if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise Error(f"--pin {pin}: use a list of cores such as 0,2-3, or nothing for the first ones")
        first, last = (int(number[:9]) for number in (match.group(1), match.group(2) or match.group(1)))
        for cpu in range(first, last + 1):
            if cpu not in allowed:
                raise Error(f"--pin {pin}: core {cpu} is not among {','.join(map(str, allowed))}")
            cpus.append(cpu)
    if not cpus:
        raise Error(f"--pin {pin}: no core named")
    return cpus
