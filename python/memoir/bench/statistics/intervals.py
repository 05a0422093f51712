# SPDX-License-Identifier: Apache-2.0
"""The methods behind statistics.py, on the last axis of an array of differences: (centre, low, high, p of "the mean is 0")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memoir.bench.statistics.student import t_cdf, t_quantile

Estimate = tuple[Any, Any, Any, Any]  # centre, low, high, p: a number each, or an array along the last axis
RESAMPLES = 9999  # odd: its quantiles are then order statistics (Davison & Hinkley 1997, section 4.2.5)


def paired_t(differences: np.ndarray, confidence: float = 0.95, noise: float = 0.0) -> Estimate:
    """Student's interval of the mean along the last axis. noise: the smallest variance of one difference."""
    d = np.asarray(differences, dtype=float)
    n = d.shape[-1]
    centre = d.mean(axis=-1)
    if n < 2:
        return centre, np.full_like(centre, -np.inf), np.full_like(centre, np.inf), np.ones_like(centre)
    error = _standard_error(d, noise)
    arm = t_quantile(0.5 + confidence / 2.0, n - 1) * error
    return centre, centre - arm, centre + arm, _t_p_value(centre, error, n - 1)


def welch_t(
    first: np.ndarray,
    second: np.ndarray,
    confidence: float = 0.95,
    noise: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Welch's interval of mean(second) - mean(first); one-dimensional."""
    centre = second.mean() - first.mean()
    if min(len(first), len(second)) < 2:
        return centre, -np.inf, np.inf, 1.0
    parts = [max(g.var(ddof=1), least) / len(g) for g, least in zip((first, second), noise, strict=True)]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return centre, centre, centre, float(centre == 0.0)
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1))
    arm = t_quantile(0.5 + confidence / 2.0, freedom) * error
    return centre, centre - arm, centre + arm, 2.0 * (1.0 - t_cdf(abs(centre) / error, freedom))


def bootstrap_t(
    differences: np.ndarray,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    noise: float = 0.0,
) -> Estimate:
    """The symmetric studentised bootstrap along the last axis. noise: the smallest variance of one difference."""
    d = np.asarray(differences, dtype=float)
    if d.shape[-1] < 2:
        return paired_t(d, confidence)
    centre, error = d.mean(axis=-1), _standard_error(d, noise)
    means, errors = _resampled(d, resamples, seed)
    errors = np.maximum(errors, math.sqrt(noise / d.shape[-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.abs(means - centre[..., None]) / errors
        observed = np.where(error > 0.0, np.abs(centre) / error, np.where(centre == 0.0, 0.0, np.inf))
    # a resample that drew one value only has no spread: its pivot is infinite, or 0 / 0 when all are equal
    pivots = np.sort(np.nan_to_num(pivots, nan=0.0, posinf=np.inf), axis=-1)
    arm = np.where(error > 0.0, _order_statistic(pivots, confidence), 0.0) * np.where(error > 0.0, error, 1.0)
    p = ((pivots >= observed[..., None]).sum(axis=-1) + 1.0) / (resamples + 1.0)
    return centre, centre - arm, centre + arm, p


def percentile(
    differences: np.ndarray, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The percentile bootstrap along the last axis."""
    d = np.asarray(differences, dtype=float)
    if d.shape[-1] < 2:
        return paired_t(d, confidence)
    means = np.sort(_resampled(d, resamples, seed)[0], axis=-1)
    tail = (1.0 - confidence) / 2.0
    side = np.minimum((means <= 0.0).sum(axis=-1), (means >= 0.0).sum(axis=-1))
    p = np.minimum(1.0, 2.0 * (side + 1.0) / (resamples + 1.0))
    return d.mean(axis=-1), _order_statistic(means, tail), _order_statistic(means, 1.0 - tail), p


def unpaired_bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    method: str,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    noise: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """bootstrap_t or percentile of mean(second) - mean(first), each group drawn from by itself; one-dimensional."""
    if min(len(first), len(second)) < 2:
        return welch_t(first, second, confidence)
    drawn = [_resampled(group, resamples, seed + side) for side, group in enumerate((first, second))]
    means, centre = drawn[1][0] - drawn[0][0], second.mean() - first.mean()
    if method == "percentile":
        ordered, tail = np.sort(means), (1.0 - confidence) / 2.0
        side = min(int((ordered <= 0.0).sum()), int((ordered >= 0.0).sum()))
        p = min(1.0, 2.0 * (side + 1.0) / (resamples + 1.0))
        return centre, _order_statistic(ordered, tail), _order_statistic(ordered, 1.0 - tail), p
    least = math.sqrt(sum(part / len(group) for part, group in zip(noise, (first, second), strict=True)))
    error = max(math.sqrt(sum(group.var(ddof=1) / len(group) for group in (first, second))), least)
    errors = np.maximum(np.hypot(drawn[0][1], drawn[1][1]), least)
    if error == 0.0:
        return centre, centre, centre, float(centre == 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.sort(np.nan_to_num(np.abs(means - centre) / errors, nan=0.0, posinf=np.inf))
    arm = _order_statistic(pivots, confidence) * error
    p = (float((pivots >= abs(centre) / error).sum()) + 1.0) / (resamples + 1.0)
    return centre, centre - arm, centre + arm, p


# --- inside ---


def _standard_error(d: np.ndarray, noise: float = 0.0) -> np.ndarray:
    return np.asarray(np.sqrt(np.maximum(d.var(axis=-1, ddof=1), noise) / d.shape[-1]))


def _t_p_value(centre: np.ndarray, error: np.ndarray, freedom: int) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0.0, np.abs(centre) / error, np.where(centre == 0.0, 0.0, np.inf))
    return np.vectorize(lambda value: 2.0 * (1.0 - t_cdf(value, freedom)), otypes=[float])(t)


def _resampled(d: np.ndarray, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of resamples along the last axis; the same draws serve every row."""
    n = d.shape[-1]
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(float)
    shifted = d - d.mean(axis=-1, keepdims=True)  # so that the subtraction below keeps its digits
    means = shifted @ counts.T / n
    variances = np.maximum((shifted**2) @ counts.T / n - means**2, 0.0)
    variances[variances < 1e-12 * (shifted**2).mean(axis=-1, keepdims=True)] = (
        0.0  # rounding of a constant resample
    )
    return means + d.mean(axis=-1)[..., None], np.sqrt(variances / (n - 1))


def _order_statistic(ordered: np.ndarray, p: float) -> np.ndarray:
    index = math.floor(p * (ordered.shape[-1] + 1) + 0.5) - 1
    return ordered[..., min(max(index, 0), ordered.shape[-1] - 1)]
