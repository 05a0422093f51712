# SPDX-License-Identifier: Apache-2.0
"""The option `--yes` of verbs that read files: without it they have a budget in proportion to these."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from memoir.base.work_budget import within_budget


def limited(function: Callable[..., None]) -> Callable[..., None]:
    """Of a verb's function, below its options. All files and folders among its arguments count, but not what it writes."""

    @click.option(
        "--yes",
        is_flag=True,
        help="Go on where the input asks for much more time or memory than files of its size do.",
    )
    @functools.wraps(function)
    def command(*arguments: Any, yes: bool, **given: Any) -> None:
        inputs = [value for name, value in given.items() if name not in ("output", "page")]
        with within_budget(_paths(inputs), lifted=yes):
            function(*arguments, **given)

    return command


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    for value in values:
        if isinstance(value, (str, os.PathLike)):
            path = Path(value)
            try:
                if value and path.exists():
                    yield path
            except (OSError, ValueError):
                continue
        elif isinstance(value, (tuple, list)):
            yield from _paths(value)
