# SPDX-License-Identifier: Apache-2.0
"""Student's distribution, which numpy can only draw from: pure, callable from any thread."""

from __future__ import annotations

import math
from functools import lru_cache


def t_cdf(t: float, freedom: float) -> float:
    """P(T <= t) of Student's distribution, by the incomplete beta function."""
    if math.isinf(t):
        return float(t > 0)
    tail = 0.5 * _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, freedom: float) -> float:
    """The t with P(T <= t) = p. Above 0 it is concave, so Newton's steps from 0 only rise."""
    if p < 0.5:
        return -t_quantile(1.0 - p, freedom)
    half = (freedom + 1.0) / 2.0
    front = math.exp(math.lgamma(half) - math.lgamma(freedom / 2.0)) / math.sqrt(freedom * math.pi)
    t = 0.0
    for _ in range(1000):
        step = (p - t_cdf(t, freedom)) / (front * (1.0 + t * t / freedom) ** -half)
        t += step
        if step <= 1e-13 * t:
            break
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function by its continued fraction (Abramowitz & Stegun 26.5.8)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    d = 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    c, value = 1.0, d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value / a
