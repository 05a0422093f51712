# SPDX-License-Identifier: Apache-2.0
"""What a planner is: what it is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memoir._core import Error, Plan, Problem

DEADLINE = 1.0  # seconds, when none is given


@dataclass(frozen=True)
class Outcome:
    """What a planner found, and the floor that it proved (bytes, or 0)."""

    plan: Plan
    lower_bound: int = 0
    maker: str = ""  # the planner that made it, where one planner chose among others
    bound_reason: str = ""  # why no plan is smaller than lower_bound
    interrupted: bool = False  # by Ctrl-C: the best so far
    starved: bool = False  # the deadline ended it, and it had got less than 0.7 of one processor


@dataclass(frozen=True)
class Effort:
    """How long a planner that searches may go on, and with what. The others do not look at it."""

    deadline: float | None = None  # seconds; None: the planner's own
    capacity: int | None = None  # bytes: it may stop once that is met
    threads: int = 0  # 0: one per core
    seed: int = 0
    work_limit: int = 0  # placements tried, instead of a deadline: the same plan on any machine; 0: none

    def check(self) -> None:
        """Raises Error for what cannot be."""
        if self.deadline is not None and not self.deadline >= 0:
            raise Error(f"the deadline must be 0 seconds or more, not {self.deadline}")
        for name, value in (
            ("threads", self.threads),
            ("seed", self.seed),
            ("work limit", self.work_limit),
        ):
            if value < 0:
                raise Error(f"the {name} must be 0 or more, not {value}")
        if self.capacity is not None and self.capacity < 0:
            raise Error(f"the capacity must be 0 bytes or more, not {self.capacity}")


@dataclass(frozen=True)
class Planner:
    name: str
    what: str
    run: Callable[[Problem, Effort], Outcome]
