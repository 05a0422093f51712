# SPDX-License-Identifier: Apache-2.0
"""What a report begins with: one or two sentences that answer the question, or say what it takes to answer it."""

from __future__ import annotations

import math

from memoir.bench import statistics
from memoir.bench.results import Result
from memoir.bench.scaling import Growth
from memoir.bench.statistics.student import t_quantile
from memoir.bench.verdicts import NO_DIFFERENCE, UNCLEAR, Analysis, Overall

_FEWEST = 4  # replicates of which the spread is guessed
_SPREAD = 1.5  # the interval must be this much narrower than the margin before equality shows; a guess, said as "about"


def sentences(result: Result, analyses: dict[str, Analysis]) -> list[str]:
    """The answer for time (or a server's first metric) and memory, then for scaling; empty with one allocator."""
    main = analyses.get(result.leading_quantity) or analyses.get("wall")
    if main is None or len(result.allocators) < 2:
        return []
    if not any(line.n for line in main.lines()):
        return ["Nothing can be said: no run succeeded."]
    found = [_about(result, main, analyses.get("peak_rss"))]
    scaling = [text for growth in main.growths if (text := _growth(growth, main))]
    found += scaling[:2]
    if len(scaling) > 2:
        found.append(f"({len(scaling) - 2} more findings about scaling are in the tables.)")
    return found


def _about(result: Result, main: Analysis, memory: Analysis | None) -> str:
    others = [name for name in result.allocators if name != main.baseline]
    parts = []
    if main.best is not None and len(others) > 1:
        parts.append(f"{main.best} is the {_superlative(main)} of {len(result.allocators)}")
    elif len(others) > 1:
        parts.append(f"no allocator is the {_superlative(main)} beyond doubt")
    known, unknown = [], []
    for name in others:
        one = main.overall.get(name)
        if one is None:
            known.append(f"{name} cannot be compared: it has no run that counts")
        elif one.verdict not in (NO_DIFFERENCE, UNCLEAR):
            known.append(f"{_difference(name, one, main)}{_memory(name, memory)}")
        elif one.same:
            known.append(
                f"{name} is the same as {main.baseline}{_what(main)} within {_percent(main.margin)}"
                f"{_memory(name, memory)}"
            )
        else:
            unknown.append(name)
    if unknown:
        missing = [_missing(main.overall[name], main.margin) for name in unknown]
        more = None if None in missing else max(filter(None, missing))
        known.append(
            f"whether {_list(unknown)} differ{'s' if len(unknown) == 1 else ''} from {main.baseline}{_what(main)} "
            f"is not known yet: {_cost(result, more)}"
        )
        sizes = [(name, _memory(name, memory)) for name in unknown if _is_known(memory, name)]
        known += [f"{name} runs{size.removeprefix(',')}" for name, size in sizes]
    text = "; ".join([*parts, *known])
    return text[0].upper() + text[1:] + "." if not text[0].isdigit() else text + "."


def _what(main: Analysis) -> str:
    """Time needs no name."""
    return "" if main.quantity == "wall" else f" in {main.quantity}"


def _difference(name: str, one: Overall, main: Analysis) -> str:
    ratio, low, high = one.interval
    interval = f"[{_percent(abs(low - 1))}, {_percent(abs(high - 1))}]"
    if ratio < 1:
        interval = f"[{_percent(1 - high)}, {_percent(1 - low)}]"
    by = _percent(abs(ratio - 1))
    if main.quantity == "wall":
        return f"{name} is {one.verdict} than {main.baseline}: {by} {'less' if ratio < 1 else 'more'} time {interval}"
    return (
        f"{name} has {by} {'less' if ratio < 1 else 'more'} {main.quantity} than {main.baseline} {interval}"
    )


def _memory(name: str, memory: Analysis | None) -> str:
    one = memory.overall.get(name) if memory else None
    if one is None:
        return ""
    ratio, low, high = one.interval
    if one.verdict in (NO_DIFFERENCE, UNCLEAR):
        return ", at the same peak memory" if one.same else ", at a peak memory that is not known to differ"
    ends = (
        f"[{_percent(1 - high)}, {_percent(1 - low)}]"
        if ratio < 1
        else f"[{_percent(low - 1)}, {_percent(high - 1)}]"
    )
    return f", at {_percent(abs(ratio - 1))} {'less' if ratio < 1 else 'more'} peak memory {ends}"


def _is_known(memory: Analysis | None, name: str) -> bool:
    one = memory.overall.get(name) if memory else None
    return one is not None and one.verdict not in (NO_DIFFERENCE, UNCLEAR)


def _growth(growth: Growth, main: Analysis) -> str | None:
    """Who scales better, where that is shown: per doubling of the axis."""
    if not statistics.differs(growth.comparison, growth.corrected_p):
        return None
    ratio, low, high = growth.comparison.interval
    better = ratio < 1
    ends = (1 - high, 1 - low) if better else (low - 1, high - 1)
    program, parameters = growth.series
    where = ", ".join([program, *(f"{name}={value}" for name, value in parameters)])
    return (
        f"With each doubling of {growth.axis}, {growth.allocator} {'gains' if better else 'loses'} "
        f"{_percent(abs(ratio - 1))} [{_percent(ends[0])}, {_percent(ends[1])}] of its time against {main.baseline} "
        f"({where})."
    )


def _missing(one: Overall, margin: float) -> int | None:
    """How many more replicates an answer takes, when the spread stays as it is; None: nothing is known of the spread."""
    n, width = one.comparison.n, one.interval.half_width
    if n < _FEWEST or not math.isfinite(width) or width > 10:
        return None
    # the interval that decides is the one of the corrected level
    level = (1.0 - one.comparison.confidence) / one.cost
    wider = t_quantile(1.0 - level / 2.0, n - 1) / t_quantile(0.5 + one.comparison.confidence / 2.0, n - 1)
    goal = max(margin / _SPREAD, abs(math.log(one.interval.ratio)) / _SPREAD)
    return max(1, statistics.replicates_needed(one.interval, n, goal / wider) - n)


def _cost(result: Result, more: int | None) -> str:
    if more is None:
        return "six replicates or more may tell"
    if more > 100_000:
        return "no affordable number of replicates will tell"
    rounded = round(more, -int(math.log10(more))) if more >= 10 else more
    seconds = result.seconds_per_replicate
    took = "" if seconds is None else f" ({_time(seconds * rounded)})"
    return f"about {rounded} more replicate{'s' * (rounded != 1)}{took}"


def _superlative(main: Analysis) -> str:
    if main.quantity == "wall":
        return "fastest"
    return f"{'highest' if main.higher_is_better else 'lowest'} in {main.quantity}"


def _percent(part: float) -> str:
    value = 100 * part
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
