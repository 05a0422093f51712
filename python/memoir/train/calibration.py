# SPDX-License-Identifier: Apache-2.0
"""What the probabilities of each stage are in truth: a temperature for the classes, and a rising line for long, by bands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

STAGES = 5
BANDS = 4
POINTS = 17
_SAMPLES = (4, 16, 64)  # bands of address and names, by the samples of the answer
_NEAR = 2  # whose bands are by whether names are new, and whether the whole stack was found
_COVERAGES = (0.5, 0.75, 0.9)  # and of the others
_TEMPERATURES = numpy.exp(numpy.linspace(numpy.log(0.4), numpy.log(4), 33))
_LEAST = 12  # predictions that a band needs for a line of its own
_PRIOR = 4.0  # predictions that say the line is right as it is, at each point


@dataclass
class Calibration:
    temperatures: NDArray[numpy.float64] = field(default_factory=lambda: numpy.ones(STAGES))
    lines: NDArray[numpy.float64] = field(
        default_factory=lambda: numpy.tile(numpy.linspace(0, 1, POINTS), (STAGES, BANDS, 1))
    )

    def section(self) -> bytes:
        values = [
            value
            for stage in range(STAGES)
            for value in (self.temperatures[stage], *self.lines[stage].ravel().tolist())
        ]
        return numpy.array([*values, *[0.0] * 15], "<f4").tobytes()


@dataclass
class Predictions:
    """Of contexts whose truth is known; as LifetimeModel.predict_many() gives them, before calibration."""

    stage: NDArray[numpy.int8]  # -1: abstained
    wall: NDArray[numpy.float64]
    long: NDArray[numpy.float64]
    samples: NDArray[numpy.float64]
    coverage: NDArray[numpy.float64]
    whole: NDArray[numpy.bool_]
    other_build: NDArray[numpy.bool_]
    true_class: NDArray[numpy.int64]
    true_long: NDArray[numpy.bool_]
    decided: NDArray[numpy.bool_]  # whether true_long is known


def bands(predictions: Predictions) -> NDArray[numpy.int64]:
    by_samples = numpy.searchsorted(_SAMPLES, predictions.samples, "right")
    by_coverage = numpy.searchsorted(_COVERAGES, predictions.coverage, "right")
    by_match = 2 * predictions.other_build.astype(int) + predictions.whole
    return numpy.select(
        [predictions.stage < _NEAR, predictions.stage == _NEAR], [by_samples, by_match], by_coverage
    )


def calibrate(predictions: Predictions) -> Calibration:
    result = Calibration()
    band = bands(predictions)
    for stage in range(STAGES):
        own = predictions.stage == stage
        if own.sum() >= _LEAST:
            result.temperatures[stage] = _temperature(predictions.wall[own], predictions.true_class[own])
        known = own & predictions.decided
        if known.sum() >= _LEAST:
            result.lines[stage, :] = _line(predictions.long[known], predictions.true_long[known])
        for number in range(BANDS):
            of_band = known & (band == number)
            if of_band.sum() >= 4 * _LEAST:
                result.lines[stage, number] = _line(predictions.long[of_band], predictions.true_long[of_band])
    return result


def _temperature(wall: NDArray[numpy.float64], classes: NDArray[numpy.int64]) -> float:
    """That which makes the true classes most likely."""
    losses = []
    for temperature in _TEMPERATURES:
        powers = numpy.maximum(wall, 1e-6) ** (1 / temperature)
        right = powers[numpy.arange(len(wall)), classes] / powers.sum(axis=1)
        losses.append(-numpy.log(right).mean() + 0.002 * abs(numpy.log(temperature)))
    return float(_TEMPERATURES[int(numpy.argmin(losses))])


def _line(said: NDArray[numpy.float64], true: NDArray[numpy.bool_]) -> NDArray[numpy.float64]:
    """Isotonic regression at the points, each with a few predictions that say what it says."""
    points = numpy.linspace(0, 1, POINTS)
    nearest = numpy.clip(numpy.rint(said * (POINTS - 1)).astype(int), 0, POINTS - 1)
    weights = numpy.bincount(nearest, minlength=POINTS) + _PRIOR / POINTS * 4
    sums = numpy.bincount(nearest, true.astype(float), minlength=POINTS) + _PRIOR / POINTS * 4 * points
    return isotonic(sums / weights, weights)


def isotonic(values: NDArray[Any], weights: NDArray[Any]) -> NDArray[numpy.float64]:
    """The rising values that are nearest (pool adjacent violators)."""
    pools: list[list[float]] = []  # mean, weight, how many
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, much, count = pools.pop()
            before = pools[-1]
            before[0] = (before[0] * before[1] + mean * much) / (before[1] + much)
            before[1] += much
            before[2] += count
    return numpy.concatenate([numpy.full(int(count), mean) for mean, _, count in pools])


def least_long(
    long: NDArray[numpy.float64],
    true: NDArray[numpy.bool_],
    weights: NDArray[numpy.float64],
    precision: float,
) -> float:
    """The least probability from which on calling long is right for so much of the weight; at least 0.5."""
    order = numpy.argsort(-long, kind="stable")
    right = numpy.cumsum(weights[order] * true[order])
    good = right >= precision * numpy.cumsum(weights[order])
    # Of equal probabilities all or none are called.
    last = numpy.append(long[order][1:] != long[order][:-1], True)
    reached = numpy.flatnonzero(good & last)
    if len(reached) == 0:
        return 0.95
    return float(min(max(long[order][reached[-1]], 0.5), 0.95))
