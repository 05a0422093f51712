# SPDX-License-Identifier: Apache-2.0
"""The memory of a tree over time, sampled from outside by memoir-launch, as numbers.

A sample is [seconds, resident, proportional, huge, lazily freed, swapped, printed]: the sums of the tree's
/proc/PID/smaps_rollup (Rss, Pss, AnonHugePages, LazyFree, Swap) in bytes, and how many bytes the command had printed.
Reading them holds up the command's page faults, so after each sample the launcher waits 125 times as long as it took:
0.8 % of the time, and the first sample. When the command prints, a sample may come early; the next comes the later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PERIOD = 0.005  # seconds between samples where they are cheap
FEWEST = 5  # samples without which nothing is said
KEPT = 400  # samples of a run that a row keeps
KINDS = ("rss", "pss", "huge", "lazy", "swap")
PHASE = re.compile(r"^phase:? +([A-Za-z0-9_-]+)", re.MULTILINE)

Sample = Sequence[float]


def numbers(
    samples: Sequence[Sample], marks: Sequence[tuple[str, float]] = (), settled: bool = False
) -> dict[str, float]:
    """Peak, mean over time, and the size at the end of each phase, by kind; `rss_peak` and so on.

    marks: (name, seconds) of the ends of phases. settled: the last sample is of a server that was left in peace.
    A kind that is never more than 0 is left out; of too few samples nothing is said.
    """
    found: dict[str, float] = {}
    if len(samples) < FEWEST:
        return found
    for index, kind in enumerate(KINDS, start=1):
        if not any(sample[index] > 0 for sample in samples):
            continue
        found[f"{kind}_peak"] = max(sample[index] for sample in samples)
        found[f"{kind}_mean"] = _mean([(sample[0], sample[index]) for sample in samples])
        for name, seconds in marks:
            before = [sample[index] for sample in samples if sample[0] <= seconds]
            found[f"{kind}_after_{name}"] = before[-1] if before else samples[0][index]
        if settled:
            found[f"{kind}_settled"] = samples[-1][index]
    return found


def marks_of(text: str, samples: Sequence[Sample]) -> list[tuple[str, float]]:
    """The ends of phases in what a command printed (`phase NAME` on a line of its own), timed by the samples.

    A mark is as old as the first sample that saw it printed; its time is right to within the period of the samples.
    """
    found = []
    for match in PHASE.finditer(text):
        printed = len(text[: match.end()].encode())
        seconds = next((sample[0] for sample in samples if sample[6] >= printed), None)
        if seconds is not None:
            found.append((match.group(1), seconds))
    return found


def thinned(samples: Sequence[Sample], most: int = KEPT) -> list[list[float]]:
    """So many samples at most: of each stretch the one with the largest resident size, so that peaks stay."""
    if len(samples) <= most:
        return [list(sample) for sample in samples]
    bounds = [round(i * len(samples) / most) for i in range(most + 1)]
    found = []
    for first, last in zip(bounds, bounds[1:], strict=False):
        largest = samples[first]
        for sample in samples[first:last]:
            largest = sample if sample[1] > largest[1] else largest
        found.append(list(largest))
    return found


def _mean(series: Sequence[tuple[float, float]]) -> float:
    """Over time, each value holding until the next."""
    if len(series) < 2 or series[-1][0] <= series[0][0]:
        return series[-1][1]
    area = sum(value * (later[0] - time) for (time, value), later in zip(series, series[1:], strict=False))
    return area / (series[-1][0] - series[0][0])
