# SPDX-License-Identifier: Apache-2.0
"""What people type for bench and diff, as values."""

from __future__ import annotations

import os
import re
import shutil

from memoir._core import Error


def percent(option: str, text: str) -> float:
    """95%, 95 % and 0.95 are the same."""
    match = re.fullmatch(r"([0-9.]+)\s*(%?)", text.strip())
    if match is None or match.group(1).count(".") > 1 or match.group(1) == ".":
        raise Error(f"{option} {text}: write it as 2% or 0.02")
    value = float(match.group(1)) / (100 if match.group(2) else 1)
    if not 0 < value < 1:
        raise Error(f"{option} {text}: must be between 0% and 100%")
    return value


def seconds(option: str, text: str) -> float:
    if short := re.fullmatch(r"(\d+)ms", text):
        return int(short.group(1)) / 1000
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:([0-9]+\.?[0-9]*)s?)?", text)
    if not text or not match or not any(match.groups()):
        raise Error(f"{option} {text}: write it as 200ms, 90s, 10m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + rest


def numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise Error(f"{option} {text}: use whole numbers separated by commas, such as 1,2,4") from None


def axis(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise Error(f"--param {text}: write it as NAME=A,B,C")
    return name, tuple(values.split(","))


def forgotten_separator(arguments: list[str], valued: frozenset[str]) -> int | None:
    """Where the command begins in a line without `--`: at the first word after the allocators that is a program.

    valued: the options that take the word after them.
    """
    words = 0
    skip = False
    for index, word in enumerate(arguments):
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in valued
        else:
            words += 1
            program = shutil.which(word) or (os.path.isfile(word) and os.access(word, os.X_OK))
            if (words > 1 or "/" in word) and program:
                return index
    return None
