# SPDX-License-Identifier: Apache-2.0
"""Ratios with intervals that hold at small n: pure numpy, no state, callable from any thread.

The model: what disturbs a run multiplies its time, so all comparisons are made on logarithms, and a ratio is
candidate / baseline of geometric means. Runs are made replicate by replicate, each replicate running every
cell once in random order; such a replicate is a block, and a disturbance that lasts (heat, a neighbour) falls
on a whole block and cancels in the block's own difference.

    block      1      2      3          d_i = log candidate_i - log baseline_i
    baseline   1.00   1.10   1.02       mean(d) +- t(n - 1) * sd(d) / sqrt(n)
    candidate  1.03   1.13   1.06       ratio = exp(mean d)

Methods
    paired_t      Student's t on the d_i (Student 1908). The default: right at any n >= 2 when the d_i are
                  near normal; a difference of two equally distributed noises is symmetric, however skewed
                  each of them is.
    bootstrap_t   the symmetric studentised bootstrap of the d_i (Hall 1988, section 3; Efron & Tibshirani
                  1993, section 12.5): no normality needed; at n < 10 wider than paired_t (covers about 97 %).
                  Its equal-tailed form was tried and covers only 90 % when a tenth of the runs are spikes.
    percentile    the percentile bootstrap of the d_i (section 13.3), as plotting libraries draw it. At n = 6
                  an interval called 95 % covers about 86 %; offered to repeat old figures, not the default.
    welch_t       Welch's t on two unpaired groups (Welch 1947): for results not run block by block. With
                  paired=False the bootstraps draw from each group by itself too, and paired_t becomes welch_t.

Numbers come in steps (a page, a fault, a hundredth of a second in an old file). Where all of a few differences fall on
the same step, their spread is 0 although chance alone may have done it; so no standard error is taken to be smaller
than that of rounding to the step (`step`, in the unit of the measurement).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memoir._core import Error
from memoir.bench.statistics.intervals import (
    RESAMPLES,
    bootstrap_t,
    paired_t,
    percentile,
    unpaired_bootstrap,
    welch_t,
)

Numbers = Sequence[float] | np.ndarray
Labels = Sequence[Any]  # of blocks: whatever can be a key

METHODS = ("paired_t", "bootstrap_t", "percentile", "welch_t")
PERCENTILE_MINIMUM = 20  # below this many blocks a percentile bootstrap covers clearly less than it says
BOOTSTRAP_MINIMUM = 6  # below, too many of the few possible resamples are constant


class Interval(NamedTuple):
    """A ratio (candidate / baseline) and the ends of its interval; 0 and inf when one run cannot say."""

    ratio: float
    low: float
    high: float

    @property
    def includes_one(self) -> bool:
        """True when the data allow that there is no difference: then there is no winner."""
        return self.low <= 1.0 <= self.high

    @property
    def half_width(self) -> float:
        """The longer arm of the interval relative to the ratio: 0.02 is "within 2 %"; inf when unknown."""
        if not (self.low > 0.0 and math.isfinite(self.high)):
            return math.inf
        return max(self.high / self.ratio - 1.0, 1.0 - self.low / self.ratio)


@dataclass(frozen=True)
class Comparison:
    """One candidate against the baseline: what the data say, and how much of it there was."""

    interval: Interval
    p_value: float  # two-sided, of "the ratio is 1"
    n: int  # blocks (paired) or runs of the smaller group (unpaired)
    method: str
    confidence: float


def compare(
    baseline: Numbers,
    candidate: Numbers,
    blocks: Labels | tuple[Labels, Labels] | None = None,
    confidence: float = 0.95,
    method: str = "paired_t",
    resamples: int = RESAMPLES,
    seed: int = 0,
    paired: bool = True,
    step: float = 0.0,
) -> Comparison:
    """Compares two sets of positive measurements.

    blocks: None pairs by position; one sequence labels both; a pair (baseline's labels, candidate's labels)
    matches equal labels, drops labels that one side lacks, and averages the logarithms of repeated ones.
    welch_t ignores it, and so does whatever is not paired.
    Raises memoir.Error for empty, unequal, non-positive or non-finite input, or an unknown method.
    """
    first, second = _logs(baseline, "baseline"), _logs(candidate, "candidate")
    if not 0.0 < confidence < 1.0:
        raise Error(f"confidence {confidence} is not between 0 and 1")
    if method not in METHODS:
        raise Error(f"unknown method {method!r}: use one of {', '.join(METHODS)}")
    if method == "welch_t" or not paired:
        method = "welch_t" if method == "paired_t" else method
        noise = _rounding(step, first), _rounding(step, second)
        n = min(len(first), len(second))
        if method == "welch_t":
            centre, low, high, p_value = welch_t(first, second, confidence, noise)
        else:
            centre, low, high, p_value = unpaired_bootstrap(
                first, second, method, confidence, resamples, seed, noise
            )
    else:
        differences = _differences(first, second, blocks)
        n = len(differences)
        least = _rounding(step, first) + _rounding(step, second)
        if method == "paired_t":
            centre, low, high, p_value = paired_t(differences, confidence, least)
        elif method == "bootstrap_t":
            centre, low, high, p_value = bootstrap_t(differences, confidence, resamples, seed, least)
        else:
            centre, low, high, p_value = percentile(differences, confidence, resamples, seed)
    interval = Interval(_exp(centre), _exp(low), _exp(high))
    return Comparison(interval, float(p_value), n, method, confidence)


def one_sided(comparison: Comparison, above: bool) -> float:
    """p of "the ratio is at most 1" (above), or of "at least 1"."""
    half = comparison.p_value / 2.0
    return half if (comparison.interval.ratio > 1.0) == above else 1.0 - half


def ratio_interval(
    baseline: Numbers,
    candidate: Numbers,
    blocks: Labels | tuple[Labels, Labels] | None = None,
    confidence: float = 0.95,
    method: str = "paired_t",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """candidate / baseline as (ratio, low, high); the arguments are those of compare()."""
    return compare(baseline, candidate, blocks, confidence, method, resamples, seed).interval


def warning(method: str, n: int) -> str | None:
    """What a reader must know before trusting `method` at `n` blocks, or None."""
    if n < 2:
        return "one replicate gives no interval: use -n 6 or more"
    if method == "bootstrap_t" and n < BOOTSTRAP_MINIMUM:
        return (
            f"a studentised bootstrap of {n} replicates says next to nothing: use {BOOTSTRAP_MINIMUM} or more"
        )
    if method == "percentile" and n < PERCENTILE_MINIMUM:
        return (
            f"a percentile bootstrap of {n} replicates covers less than it says (about 86 % at 6): "
            f"use {PERCENTILE_MINIMUM} or more, or paired_t"
        )
    return None


def correct_many(p_values: Numbers, weights: Numbers | None = None) -> np.ndarray:
    """p-values corrected for number (Holm 1979): the chance of any false difference stays under the level.

    weights: the more, the less is a hypothesis corrected (Holm's weighted form); None: all alike.
    """
    p = np.asarray(p_values, dtype=float)
    w = np.ones_like(p) if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(p / w, kind="stable")
    left = np.cumsum(w[order][::-1])[::-1]  # weight of the hypotheses that are not rejected before this one
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] / w[order] * left), 1.0)
    return corrected


def differs(comparison: Comparison, corrected_p: float) -> bool:
    """True only when the interval excludes 1 and the difference survives the correction for many."""
    return not comparison.interval.includes_one and corrected_p <= 1.0 - comparison.confidence


def geometric_mean(values: Numbers) -> float:
    """Of positive values: the mean that ratios need."""
    return float(np.exp(np.mean(np.log(values))))


def mean_interval(values: Numbers, confidence: float = 0.95) -> tuple[float, float, float]:
    """Arithmetic mean with Student's interval, in the unit of the values; one value gives -inf and inf."""
    array = np.asarray(values, dtype=float)
    centre, low, high, _ = paired_t(array, confidence)
    return float(centre), float(low), float(high)


def serial_normalised(times: Numbers, threads: Numbers, groups: Labels) -> np.ndarray:
    """Each time divided by the mean single-threaded time of its group (allocator and load, as in the study).

    1 means that more threads, each with the same load, took no longer; NaN where no single-threaded run is.
    """
    times, threads = np.asarray(times, dtype=float), np.asarray(threads)
    members: dict[Any, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    result = np.full(len(times), np.nan)
    for indices in members.values():
        serial = times[indices][threads[indices] == 1]
        if len(serial):
            result[indices] = times[indices] / serial.mean()
    return result


def throughput(work: Numbers, load: Numbers, times: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """(aggregate, marginal): work per second of all threads together, and load per second of each thread."""
    seconds = np.asarray(times, dtype=float)
    return np.asarray(work, dtype=float) / seconds, np.asarray(load, dtype=float) / seconds


def outliers(values: Numbers, threshold: float = 3.5) -> np.ndarray:
    """Mask of values far from the median: modified z-score (Iglewicz & Hoaglin 1993). Only to be shown."""
    array = np.asarray(values, dtype=float)
    if len(array) < 4:
        return np.zeros(len(array), dtype=bool)
    distance = np.abs(array - np.median(array))
    spread = np.median(distance)
    if spread == 0.0:
        return np.zeros(len(array), dtype=bool)
    return np.asarray(0.6745 * distance / spread > threshold)


def replicates_needed(interval: Interval, n: int, target: float) -> int:
    """About how many blocks bring the half width to `target`: arms shrink as 1 / sqrt(n)."""
    if not math.isfinite(interval.half_width):
        return n + 1
    return max(n, math.ceil(n * (interval.half_width / target) ** 2))


# --- inside ---


def _logs(values: Numbers, what: str) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or len(array) == 0:
        raise Error(f"the {what} has no measurements")
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise Error(
            f"the {what} has a measurement that is not a positive number: ratios need positive numbers"
        )
    return np.asarray(np.log(array))


def _differences(
    first: np.ndarray, second: np.ndarray, blocks: Labels | tuple[Labels, Labels] | None
) -> np.ndarray:
    if blocks is None:
        if len(first) != len(second):
            raise Error(
                f"{len(first)} and {len(second)} measurements do not pair: give blocks, or use welch_t"
            )
        return np.asarray(second - first)
    labels = (
        blocks if isinstance(blocks, tuple) and len(blocks) == 2 and np.ndim(blocks[0]) else (blocks, blocks)
    )
    means = []
    for logs, label in zip((first, second), labels, strict=True):
        if len(logs) != len(label):
            raise Error(f"{len(logs)} measurements have {len(label)} block labels: give one for each")
        sums: dict[Any, list[float]] = {}
        for value, name in zip(logs.tolist(), label, strict=True):
            sums.setdefault(name, []).append(value)
        means.append({name: sum(values) / len(values) for name, values in sums.items()})
    common = [name for name in means[0] if name in means[1]]
    if not common:
        raise Error("no block has both a baseline and a candidate: nothing can be compared")
    return np.array([means[1][name] - means[0][name] for name in common])


def _rounding(step: float, logs: np.ndarray) -> float:
    """The variance that rounding to the step gives to a logarithm."""
    relative: float = step * float(np.exp(-logs.mean()))
    return relative * relative / 4.0  # half of the values on this step, half on the next


def _exp(value: float) -> float:
    return float(np.exp(np.float64(value)))
