# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` as it was typed, and what it ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from memoir._core import Error
from memoir.cli.parts.arguments import ParamType
from memoir.cli.parts.constraints import Constraints
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


@dataclass(frozen=True)
class PlanOptions:
    """Every option of memoir/cli/plan.py, which says what each one means."""

    inputs: tuple[str, ...]
    output: str | None
    planner: str
    deadline: float | None  # seconds
    threads: int
    seed: int
    seeds: str | None
    engine: str
    address: str | None
    workers: int | None
    work_limit: int
    tolerance: Tolerance
    capacity: int | None  # bytes
    budget: int | None  # bytes
    bandwidth: int | None  # bytes per tick
    alignment: int | None  # bytes
    device: int | None
    only: str | None
    dims: dict[str, int]
    stream: bool
    guided: bool
    as_json: bool
    force: bool
    said: Constraints

    def is_sweep(self) -> bool:
        return len(self.inputs) > 1 or self.seeds is not None or self.engine != "local"
