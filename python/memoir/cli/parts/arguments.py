# SPDX-License-Identifier: Apache-2.0
"""What the verbs' arguments and outputs have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from memoir._core import Error
from memoir.base.quantities import BYTE_UNITS, read_amount

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older ones are not generic


class Size(ParamType):
    """Bytes: a whole number, or one with KiB, MiB or GiB (fractions allowed: 1.5GiB)."""

    name = "bytes"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        amount, unit = read_amount(value.replace("_", "")) or (0, None)
        if unit not in BYTE_UNITS:
            self.fail(
                f"'{value}' is not a size: give bytes, or a number with KiB, MiB or GiB", parameter, context
            )
        size = amount * BYTE_UNITS[unit]
        if size.denominator != 1:
            self.fail(f"'{value}' is not a whole number of bytes", parameter, context)
        if size >= 2**63:
            self.fail(f"'{value}' is 2^63 bytes or more", parameter, context)
        return int(size)


class Whole(click.IntRange):
    """A whole number that the core can take: at least `least`, and of `bits` bits at most."""

    def __init__(self, least: int = 0, bits: int = 63):
        super().__init__(min=least)
        self._bits = bits

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        number: int = super().convert(value, parameter, context)
        if number >= 2**self._bits:
            self.fail(f"it is 2^{self._bits} or more", parameter, context)
        return number


class Workers(NamedTuple):
    """What runs a sweep, as memoir.sweep takes it."""

    engine: str = "local"
    workers: int | None = None  # processes; None: one per core
    address: str | None = None  # of a running Ray cluster; None: RAY_ADDRESS, or a Ray of our own


class WorkersOption(ParamType):
    """A number of processes, or `ray`, perhaps with the address of a cluster."""

    name = "N|ray[=HOST:PORT]"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Workers:
        if isinstance(value, Workers):
            return value
        engine, _, address = value.partition("=")
        if engine == "ray":
            return Workers("ray", None, address or None)
        return Workers("local", Whole(1, 31).convert(value, parameter, context))


def workers_option() -> Callable[[Any], Any]:
    """`--workers` of whatever sweeps."""
    return click.option(
        "--workers",
        type=WorkersOption(),
        default=Workers(),
        help="Processes, by default one per core; or Ray, on this machine or a cluster's.",
    )


def check_output(path: Path, suffixes: tuple[str, ...], force: bool) -> None:
    """Before any work: that the suffix tells what to write, and that nothing is overwritten unasked."""
    if path.suffix.lower() not in suffixes:
        raise Error(f"{path}: the suffix says what to write; use one of {', '.join(suffixes)}")
    if path.exists() and not force:
        raise Error(f"{path} exists already; pass -f to overwrite it")
    if not path.absolute().parent.is_dir():
        raise Error(f"{path}: there is no folder {path.parent}; make it first")
