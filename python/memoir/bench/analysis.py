# SPDX-License-Identifier: Apache-2.0
"""From rows to statements: what each allocator did in each group of cells, and what may be said of it.

report = analyse_all(result)            every quantity, all claims corrected together
report["wall"].overall["jemalloc"]      the ratio over all groups, its interval, and the verdict
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from memoir._core import Error
from memoir.bench import statistics
from memoir.bench.draft import Draft
from memoir.bench.results import Result
from memoir.bench.statistics.claims import Family
from memoir.bench.values import quantities
from memoir.bench.verdicts import SAME, Analysis


def analyse(result: Result, quantity: str = "wall", **judge: Any) -> Analysis:
    """One quantity alone, corrected for its own claims only; the options are analyse_all()'s."""
    return analyse_all(result, [quantity], **judge)[quantity]


def analyse_all(
    result: Result,
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    method: str = "paired_t",
    confidence: float = 0.95,
    same: float = SAME,
) -> dict[str, Analysis]:
    """Compares every allocator with the baseline (the first one) in every group, for every quantity (or these).

    All claims are corrected together. Runs that were not interleaved are compared unpaired: their replicates are no
    blocks. Raises memoir.Error for an unknown baseline.
    """
    known = result.allocators
    baseline = known[0] if baseline is None and known else baseline
    if baseline is None:
        raise Error("nothing to compare: there is neither an allocator nor a run")
    if baseline not in known:
        raise Error(f"baseline {baseline!r} is not among {', '.join(known)}")
    if method == "paired_t" and not result.interleaved:
        method = "welch_t"
    wanted = (quantities(result) or ["wall"]) if names is None else list(names)
    family = Family()
    drafts = [Draft(result, name, baseline, method, confidence, same, family) for name in wanted]
    corrected = family.corrected()
    return {draft.quantity: draft.finish(corrected, family) for draft in drafts}


def widest(result: Result, **judge: Any) -> float:
    """The largest half width of all ratios of time and printed metrics: what --until watches.

    With one allocator there are no ratios, and the means' own intervals count. inf while one knows nothing.
    """
    return _widest(result, **judge)[0]


def replicates_needed(result: Result, target: float, **judge: Any) -> int:
    """About how many replicates bring the widest interval to the target."""
    width, n = _widest(result, **judge)
    return statistics.replicates_needed(statistics.Interval(1.0, 1.0 / (1.0 + width), 1.0 + width), n, target)


def _widest(result: Result, **judge: Any) -> tuple[float, int]:
    widths = []
    for a in analyse_all(result, ["wall", *(metric.name for metric in result.metrics)], **judge).values():
        lines = [line for line in a.lines() if line.n]
        ratios = [
            (line.comparison.interval.half_width, line.n) for line in lines if line.comparison is not None
        ]
        widths += ratios or [
            ((line.high - line.mean) / abs(line.mean), line.n) for line in lines if line.mean
        ]
    return max(widths, default=(math.inf, 1))
