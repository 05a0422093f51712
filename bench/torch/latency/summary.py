# SPDX-License-Identifier: Apache-2.0
"""From results to numbers: per cell and variant the latency, tail, faults and memory; ratios with intervals.

Definitions
    replicate      the median of the passes of one turn; ratios compare replicates of the same block
    ratio          candidate / other, of geometric means over the blocks (memoir.bench.statistics)
    best other     the variant with the lowest median latency of the cell, the candidate left out
    intermediates  peak anonymous bytes less what was there before the first pass (weights are in neither);
                   steady: the same from the end of the warm-up on, when memoir no longer records
    tail           99.9th percentile / median of a cell's timed passes; under 1,000 that is the slowest one
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from memoir.bench.results import Result
from memoir.bench.statistics import Comparison, Interval, compare, ratio_interval

from latency.cells import CellKey
from latency.records import Kept, by_cell
from latency.variants import REFERENCE, VARIANTS, anchor


@dataclass(frozen=True)
class VariantSummary:
    """One allocator on one cell. Times in ms, memory in bytes, the rest per pass."""

    median_ms: float
    p99_ms: float
    p999_ms: float
    passes: int
    minor: float
    major: float
    user_ms: float
    system_ms: float
    cycles: float | None
    peak_anonymous: int | None
    steady_peak: int | None
    intermediates: int | None
    growth: int  # anonymous bytes at the last turn less those at the first
    output: str | None
    memoir: dict[str, Any] | None

    @property
    def tail(self) -> float:
        return self.p999_ms / self.median_ms


@dataclass(frozen=True)
class CellSummary:
    """One cell: every variant's numbers and the candidate's ratio to each other one."""

    key: CellKey
    candidate: str
    variants: dict[str, VariantSummary]
    comparisons: dict[str, Comparison]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def others(self) -> dict[str, VariantSummary]:
        return {name: one for name, one in self.variants.items() if name != self.candidate}

    @property
    def best_other(self) -> str | None:
        return min(self.comparisons, key=lambda name: self.variants[name].median_ms, default=None)

    @property
    def smallest_other(self) -> str | None:
        """The other variant with the lowest process peak."""
        sized = {name: one.peak_anonymous for name, one in self.others.items() if one.peak_anonymous}
        return min(sized, key=sized.get, default=None)

    def ratio(self, other: str | None) -> Interval | None:
        return self.comparisons[other].interval if other in self.comparisons else None

    def one_line(self) -> str:
        """For the progress line: the candidate against the thesis's baseline and the best other one."""
        if self.candidate not in self.variants:
            return f"{self.candidate} has no block; failed: {', '.join(self.failures)}"
        said = [f"{self.candidate} {self.variants[self.candidate].median_ms:.1f} ms"]
        for name in dict.fromkeys((REFERENCE, self.best_other)):
            interval = self.ratio(name)
            if interval:
                said.append(f"{interval.ratio:.3f} [{interval.low:.3f}, {interval.high:.3f}] of {name}'s")
        return ", ".join(said)


@dataclass(frozen=True)
class Summary:
    """All cells, and over them the geometric mean of the candidate's ratio to each other variant."""

    candidate: str
    cells: list[CellSummary]
    means: dict[str, Interval]

    def to_json(self) -> str:
        cells = [
            cell.key.as_dict()
            | {
                "variants": {name: asdict(one) for name, one in cell.variants.items()},
                "ratios": {
                    name: {"n": one.n, "p_value": one.p_value, **one.interval._asdict()}
                    for name, one in cell.comparisons.items()
                },
                "failures": cell.failures,
            }
            for cell in self.cells
        ]
        means = {name: interval._asdict() for name, interval in self.means.items()}
        return json.dumps({"candidate": self.candidate, "geometric_means": means, "cells": cells}, indent=1)


def from_json(text: str) -> Summary:
    """The inverse of to_json(); raises KeyError, TypeError or ValueError for what is not a summary."""
    document = json.loads(text)
    candidate = document["candidate"]
    cells = []
    for entry in document["cells"]:
        key = CellKey(**{name: entry[name] for name in ("net", "batch", "side", "threads", "callers")})
        variants = {name: VariantSummary(**one) for name, one in entry["variants"].items()}
        comparisons = {
            name: Comparison(_interval(one), one["p_value"], one["n"], "paired_t", 0.95)
            for name, one in entry["ratios"].items()
        }
        cells.append(CellSummary(key, candidate, variants, comparisons, entry["failures"]))
    means = {name: _interval(one) for name, one in document["geometric_means"].items()}
    return Summary(candidate, cells, means)


def read_summary(path: Path) -> Summary | None:
    """The summary.json of a report; None for any other file or folder."""
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def summarise(result: Result, only: CellKey | None = None) -> Summary:
    """Works out every cell that holds at least one block, or one cell only."""
    cells = by_cell(result)
    measured = {name for kept in cells.values() for name in kept.turns}
    named = [name for name in result.header["variants"] if name in measured]  # in the order they were given
    candidate = anchor(named) if named else ""
    chosen = {key: kept for key, kept in cells.items() if kept.turns and (only is None or key == only)}
    summaries = [_cell(key, kept, candidate) for key, kept in chosen.items()]
    return Summary(candidate, summaries, _means(summaries))


def _interval(entry: dict[str, Any]) -> Interval:
    return Interval(entry["ratio"], entry["low"], entry["high"])


def _cell(key: CellKey, kept: Kept, candidate: str) -> CellSummary:
    variants = {
        name: _variant(list(turns.values()), kept.members.get(name, [])) for name, turns in kept.turns.items()
    }
    mine = {label: float(np.median(turn["ns"])) for label, turn in kept.turns.get(candidate, {}).items()}
    comparisons = {}
    for name, turns in kept.turns.items():
        shared = [label for label in turns if label in mine]
        if name != candidate and shared:
            theirs = [float(np.median(turns[label]["ns"])) for label in shared]
            comparisons[name] = compare(theirs, [mine[label] for label in shared])
    return CellSummary(key, candidate, variants, comparisons, kept.failures)


def _variant(runs: Sequence[dict], members: Sequence[dict]) -> VariantSummary:
    times = np.concatenate([run["ns"] for run in runs]) / 1e6
    made = sum(run["made"] for run in runs)

    def per_pass(name: str) -> float:
        return sum(run[name] for run in runs) / made

    peak = steady = intermediates = output = stats = None
    for member in members:
        before, warm, last = member["opened"]["before"], member["opened"]["warmup"], member["closed"]
        base = before["anonymous"] + before["shared"]
        whole = max(warm["peak_anonymous"], last["peak_anonymous"])
        peak, intermediates = max(peak or 0, whole), max(intermediates or 0, whole - base)
        steady = max(steady or 0, last["peak_anonymous"])
        output, stats = last["output"], last.get("memoir")
    return VariantSummary(
        median_ms=float(np.median([np.median(run["ns"]) for run in runs])) / 1e6,
        p99_ms=float(np.quantile(times, 0.99, method="inverted_cdf")),
        p999_ms=float(np.quantile(times, 0.999, method="inverted_cdf")),
        passes=len(times),
        minor=per_pass("minor"),
        major=per_pass("major"),
        user_ms=per_pass("user_us") / 1e3,
        system_ms=per_pass("system_us") / 1e3,
        cycles=per_pass("cycles") if all("cycles" in run for run in runs) else None,
        peak_anonymous=peak,
        steady_peak=steady,
        intermediates=intermediates,
        growth=runs[-1]["anonymous"] - runs[0]["anonymous"],
        output=output,
        memoir=stats,
    )


def _means(cells: Sequence[CellSummary]) -> dict[str, Interval]:
    """Per other variant the geometric mean of the ratio, with Student's interval over the cells.

    The interval of a single cell is the cell's own.
    """
    present = {name for cell in cells for name in cell.comparisons}
    names = [name for name in VARIANTS if name in present]
    means = {}
    for name in names:
        ratios = [cell.comparisons[name].interval.ratio for cell in cells if name in cell.comparisons]
        alone = cells[0].comparisons[name].interval if len(cells) == 1 else None
        means[name] = alone or ratio_interval([1.0] * len(ratios), ratios)
    return means
