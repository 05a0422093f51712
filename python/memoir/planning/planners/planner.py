# SPDX-License-Identifier: Apache-2.0
"""What a planner is: what it is given, and what it answers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from memoir._core import Error, Plan, Problem
from memoir.base import work_budget
from memoir.base.quantities import BYTE_UNITS, read_amount

DEADLINE = 1.0  # seconds, when none is given
_LONGEST_DEADLINE = 10.0  # of any planner


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
class Tolerance:
    """How far above the proven bound a plan may be for a search to stop."""

    bytes: int = 0
    share: float = 0.0  # of the bound

    @staticmethod
    def of(value: int | str | Tolerance) -> Tolerance:
        """4096, '64KiB' or '0.5%'. Raises Error for what is none of these."""
        if isinstance(value, Tolerance):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value < 2**63:
                raise Error(f"the tolerance must be 0 bytes or more and below 2^63, not {value}")
            return Tolerance(bytes=value)
        amount = None
        if isinstance(value, str):
            text = value.strip().replace("_", "")
            amount = read_amount(text.removesuffix("%"))
            if amount is not None and text.endswith("%") and amount[1] == "":
                return Tolerance(share=min(float(amount[0] / 100), 1e9))
            if amount is not None and not text.endswith("%") and amount[1] in BYTE_UNITS:
                size = amount[0] * BYTE_UNITS[amount[1]]
                if size.denominator == 1 and size < 2**63:
                    return Tolerance(bytes=int(size))
        raise Error(
            f"the tolerance {value!r} is neither bytes (4096, '64KiB') nor a share of the bound ('0.5%')"
        )

    def above(self, bound: int) -> int:
        """The largest arena that is close enough to this bound, bytes."""
        return bound + max(self.bytes, math.floor(self.share * bound))

    @property
    def pair(self) -> tuple[int, float]:
        """As the core takes it."""
        return self.bytes, self.share


NO_TOLERANCE = Tolerance()


@dataclass(frozen=True)
class Effort:
    """How long a planner that searches may go on, and with what. The others do not look at it."""

    deadline: float | None = None  # seconds; None: the planner's own
    capacity: int | None = None  # bytes: it may stop once that is met
    threads: int = 0  # 0: one per core
    seed: int = 0
    work_limit: int = 0  # placements tried, instead of a deadline: the same plan on any machine; 0: none
    tolerance: Tolerance = NO_TOLERANCE  # without a capacity: it may stop that close to its bound

    def enough(self, floor: int) -> int:
        """The largest arena that is good enough where no plan is smaller than `floor`, bytes."""
        return self.tolerance.above(floor) if self.capacity is None else max(floor, self.capacity)

    def allow(self, times: int = 1) -> None:
        """So many searches are meant to take their time, whatever the size of the command's input."""
        if self.work_limit:
            work_budget.lift()
        else:
            longest = _LONGEST_DEADLINE if self.deadline is None else self.deadline
            work_budget.allow(times * longest * (self.threads or os.cpu_count() or 1))

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
    shown: bool = True  # in lists, and of those that `all` compares
