# SPDX-License-Identifier: Apache-2.0
"""What the verbs' arguments and outputs have in common."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
                f"'{value}' is no size: give bytes, or a number with KiB, MiB or GiB", parameter, context
            )
        size = amount * BYTE_UNITS[unit]
        if size.denominator != 1:
            self.fail(f"'{value}' is not a whole number of bytes", parameter, context)
        if size >= 2**63:
            self.fail(f"'{value}' is 2^63 bytes or more", parameter, context)
        return int(size)


def check_output(path: Path, suffixes: tuple[str, ...], force: bool) -> None:
    """Before any work: that the suffix tells what to write, and that nothing is overwritten unasked."""
    if path.suffix.lower() not in suffixes:
        raise Error(f"{path}: what to write is told by its suffix; give it one of {', '.join(suffixes)}")
    if path.exists() and not force:
        raise Error(f"{path} exists already; pass -f to overwrite it")
    if not path.absolute().parent.is_dir():
        raise Error(f"{path}: there is no folder {path.parent}; make it first")


@contextlib.contextmanager
def finished_output(path: Path, force: bool) -> Iterator[Path]:
    """All or nothing: the name of a new file in the same folder, which becomes `path` when all went well."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        if force:
            unfinished.replace(path)
        else:  # fails where the file has come up meanwhile
            os.link(unfinished, path)
    except FileExistsError:
        raise Error(f"{path} exists already; pass -f to overwrite it") from None
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def write_output(path: Path, content: bytes, force: bool) -> None:
    """All or nothing: to a file of the same folder first, which is then renamed."""
    with finished_output(path, force) as unfinished:
        unfinished.write_bytes(content)
