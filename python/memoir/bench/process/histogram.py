# SPDX-License-Identifier: Apache-2.0
"""Percentiles of latency from a file that a client writes."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from memoir._core import Error

_LARGEST = 64 << 20  # bytes of a file that is read


def percentiles(path: Path, wanted: Iterable[float]) -> list[float]:
    """The values at these percentiles (50.0 is the median), in the file's own unit.

    Understands lines `VALUE COUNT` (white space, comma or semicolon between), lines of one VALUE each, and what
    HdrHistogram prints (`Value Percentile TotalCount ...`, the percentile from 0 to 1). Lines that begin with something
    else are left out. Raises memoir.Error, naming the file, when nothing is in it.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode(errors="replace")
    except OSError as error:
        raise Error(f"histogram {path}: {error.strerror}") from None
    rows = [numbers for line in text.splitlines() if (numbers := _numbers(line))]
    if re.search(r"Value\s+Percentile\s+TotalCount", text):
        table = sorted((row[1] * 100.0, row[0]) for row in rows if len(row) >= 3 and row[1] <= 1.0)
    else:
        counted = sorted((row[0], row[1] if len(row) > 1 else 1.0) for row in rows if row[0] >= 0)
        total = sum(count for _, count in counted)
        sums = itertools.accumulate(count for _, count in counted)
        table = [
            (100.0 * below / total, value) for below, (value, _) in zip(sums, counted, strict=True) if total
        ]
    if not table:
        raise Error(f"histogram {path}: no lines VALUE COUNT in it")
    ranks = [rank for rank, _ in table]
    return [table[min(bisect.bisect_left(ranks, rank - 1e-9), len(table) - 1)][1] for rank in wanted]


def _numbers(line: str) -> list[float]:
    found = []
    for word in re.split(r"[\s,;]+", line.strip()):
        try:
            found.append(float(word))
        except ValueError:
            break
    return found if all(number == number and abs(number) < 1e300 for number in found[:3]) else found[:0]
