# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` as it was typed, and what it ends with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import click

from memoir._core import Error
from memoir.cli.parts.arguments import ParamType, Workers
from memoir.planning.planners.planner import Tolerance

FITS, INFEASIBLE, NOT_FOUND = 0, 1, 3  # exit codes; 2 is bad input


class ToleranceOption(ParamType):
    """Bytes (4096, 64KiB), or a share of the bound (0.5%)."""

    name = "BYTES|PERCENT"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Tolerance:
        try:
            return Tolerance.of(value)
        except Error as error:
            self.fail(str(error), parameter, context)


_MOST_SEEDS = 100_000


def seeds_of(text: str) -> list[int]:
    """`3`, `1-8`, `1,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,40})(?:-(\d{1,40}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise Error(f"--seed {text}: give numbers and ranges, such as 1-8 or 1,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= 2**63 or last - first >= _MOST_SEEDS - len(seeds):
            raise Error(f"--seed {text}: give at most {_MOST_SEEDS:,} numbers, each below 2^63")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


@dataclass(frozen=True)
class PlanOptions:
    """Every option of memoir/cli/plan.py, which says what each one means."""

    inputs: tuple[str, ...]
    output: str | None
    planner: str
    deadline: float | None  # seconds
    threads: int
    seeds: list[int]
    workers: Workers
    work_limit: int
    tolerance: Tolerance
    capacity: int | None  # bytes
    alignment: int | None  # bytes
    device: int | None
    only: str | None
    dims: dict[str, int]
    as_json: bool
    force: bool

    def is_sweep(self) -> bool:
        return len(self.inputs) > 1 or len(self.seeds) > 1 or self.workers.engine != "local"
