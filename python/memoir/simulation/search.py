# SPDX-License-Identifier: Apache-2.0
"""The settings of PyTorch's allocator that take least memory for a recorded program, searched for a while.

Every setting is tried alone first; then, from the best so far, one setting after another takes the value that is best,
until none gets better; then the same from settings at random. So the best that is known is always one whose neighbours
were tried, unless time ran out, and from these it is known which settings do not matter there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from memoir import _core
from memoir._core import Error, Workload
from memoir.sweep import cores

# Values as PYTORCH_CUDA_ALLOC_CONF takes them; None leaves the setting out.
SPACE: dict[str, tuple[str | None, ...]] = {
    "expandable_segments": (None, "True"),
    "max_split_size_mb": (None, "20", "32", "64", "128", "256", "512", "1024"),
    "max_non_split_rounding_mb": (None, "20", "64", "200"),
    "roundup_power2_divisions": (None, "1", "2", "4", "8", "16", "32"),
    "large_segment_size_mb": (None, "12", "32", "64", "128", "256"),
    "garbage_collection_threshold": (None, "0.6", "0.8", "0.9"),
}
GOALS = ("reserved", "calls")
_SAME = 0.001  # a share of the best: less does not count as a difference

_Choice = tuple["str | None", ...]  # a value for each of SPACE


@dataclass(frozen=True)
class _Tried:
    completed: bool
    reserved: int
    calls: int

    def key(self, goal: str) -> tuple[Any, ...]:
        both = (self.reserved, self.calls) if goal == "reserved" else (self.calls, self.reserved)
        return (not self.completed, *both)


def settings_text(choice: _Choice) -> str:
    """For PYTORCH_CUDA_ALLOC_CONF; "" for the defaults."""
    parts = [f"{name}:{value}" for name, value in zip(SPACE, choice, strict=True) if value is not None]
    if any(part.startswith("garbage") for part in parts):
        parts.append("per_process_memory_fraction:1.0")  # without it PyTorch knows no share to collect above
    return ",".join(parts)


def search(
    workload: Workload,
    seconds: float,
    *,
    goal: str = "reserved",
    cap: int | None = None,
    recorded: str = "",
    seed: int = 1,
    workers: int | None = None,
    tell: Callable[[float, int, int | None], None] | None = None,
) -> dict[str, Any]:
    """For so many seconds at most. `goal`: "reserved" (bytes at the peak) or "calls" (to the device). `cap`, `recorded`: as
    _core.simulate takes them; under a cap what completes is better than what does not. `tell(elapsed, tried, best)`
    is called now and then. An interruption by Ctrl-C ends the search early. Raises Error for a goal that is none."""
    if goal not in GOALS:
        raise Error(f"'{goal}' is not a goal of a search: give one of {', '.join(GOALS)}")
    if seconds <= 0:
        raise Error(f"{seconds} seconds: the time to search must be above 0")
    names = [name for name in SPACE if cap is not None or not name.startswith("garbage")]
    run = _Search(workload, seconds, goal, cap, recorded, workers or cores(), names, tell)
    exhausted = interrupted = False
    try:
        exhausted = run.run(random.Random(seed))
    except KeyboardInterrupt:
        interrupted = True
    return run.result() | {"complete": exhausted, "interrupted": interrupted}


class _Search:
    def __init__(
        self,
        workload: Workload,
        seconds: float,
        goal: str,
        cap: int | None,
        recorded: str,
        workers: int,
        names: list[str],
        tell: Callable[[float, int, int | None], None] | None,
    ):
        self._workload, self._goal, self._cap, self._recorded = workload, goal, cap, recorded
        self._began, self._seconds, self._tell = time.monotonic(), seconds, tell
        self._at = {name: list(SPACE).index(name) for name in names}
        self._workers = workers
        self._tried: dict[_Choice, _Tried | None] = {}  # None: refused
        self._default: _Choice = (None,) * len(SPACE)
        self._best: _Choice = self._default

    def run(self, draw: random.Random) -> bool:
        """Whether everything was tried that there is."""
        everything = 1
        for name in self._at:
            everything *= len(SPACE[name])
        if not self._try([self._default]):
            return False
        if not self._try(list(self._neighbours(self._default))):
            return False
        start: _Choice = self._best
        while len(self._tried) < everything:
            if not self._descend(start):
                return False
            drawn = {self._at[name]: draw.choice(SPACE[name]) for name in self._at}
            start = tuple(drawn.get(index) for index in range(len(SPACE)))
            if not self._try([start]):
                return False
        return True

    def _descend(self, start: _Choice) -> bool:
        """To settings whose neighbours are not better; false when time is up."""
        at = start
        while True:
            before = at
            for name in self._at:
                line = list(self._line(at, name))
                if not self._try(line):
                    return False
                at = min(line, key=self._key)
            if self._key(at) >= self._key(before):
                return True

    def _line(self, choice: _Choice, name: str) -> Iterator[_Choice]:
        """The settings with every value of one, what they are first: equals do not move."""
        index = self._at[name]
        yield choice
        for value in SPACE[name]:
            if value != choice[index]:
                yield (*choice[:index], value, *choice[index + 1 :])

    def _neighbours(self, choice: _Choice) -> Iterator[_Choice]:
        for name in self._at:
            yield from list(self._line(choice, name))[1:]

    def _try(self, choices: list[_Choice]) -> bool:
        """False when time was up before all were tried."""
        new = [choice for choice in dict.fromkeys(choices) if choice not in self._tried]
        with ThreadPoolExecutor(self._workers) as pool:  # the core works without Python's lock
            for at in range(0, len(new), self._workers):
                if self._tried and time.monotonic() - self._began >= self._seconds:
                    return False
                part = new[at : at + self._workers]
                for choice, tried in zip(part, pool.map(self._simulate, part), strict=True):
                    self._tried[choice] = tried
                    if self._key(choice) < self._key(self._best):
                        self._best = choice
                if self._tell is not None:
                    best = self._tried[self._best]
                    value = None if best is None or not best.completed else self._value(best)
                    self._tell(time.monotonic() - self._began, len(self._tried), value)
        return True

    def _simulate(self, choice: _Choice) -> _Tried | None:
        settings = settings_text(choice)
        policy = f"pytorch:{settings}" if settings else "pytorch"
        try:
            _core.check_policy(policy)
            done = _core.simulate(self._workload, policy, self._cap, True, 0, False, False, self._recorded)
        except Error:
            return None
        return _Tried(done.completed, done.peak_reserved, done.calls.all)

    def _key(self, choice: _Choice) -> tuple[Any, ...]:
        tried = self._tried.get(choice)
        known = (True, 0, 0) if tried is None else tried.key(self._goal)
        return (tried is None, *known, sum(value is not None for value in choice))

    def _value(self, tried: _Tried) -> int:
        return tried.reserved if self._goal == "reserved" else tried.calls

    def result(self) -> dict[str, Any]:
        best, default = self._tried.get(self._best), self._tried.get(self._default)
        return {
            "goal": self._goal,
            "cap": self._cap,
            "tried": len(self._tried),
            "refused": sum(tried is None for tried in self._tried.values()),
            "seconds": time.monotonic() - self._began,
            "settings": settings_text(self._best),
            "best": None if best is None else vars(best),
            "default": None if default is None else vars(default),
            "matters": {name: self._matters(name) for name in self._at},
        }

    def _matters(self, name: str) -> dict[str, Any]:
        """What each value of a setting does to the best settings. `matters` is None where not all values were tried."""
        index = self._at[name]
        line = list(self._line(self._best, name))
        known = {choice: self._tried[choice] for choice in line if choice in self._tried}
        values = {choice[index] or "default": self._told(tried) for choice, tried in known.items()}
        matters = None
        served = [tried for tried in known.values() if tried is not None]
        if len(known) == len(line) and served:
            numbers = [self._value(tried) for tried in served]
            alike = len({tried.completed for tried in served}) == 1
            matters = not alike or max(numbers) - min(numbers) > _SAME * max(min(numbers), 1)
        return {"matters": matters, "values": values}

    def _told(self, tried: _Tried | None) -> int | None:
        return None if tried is None or not tried.completed else self._value(tried)
