# SPDX-License-Identifier: Apache-2.0
"""Why nothing fits: the smallest set of buffers that cannot live together, and the smallest changes that help.

capacity 8     c  |   +---+        a, b and c live together at tick 4 and have 9 bytes: without any one of
               b  | +-----+        them the other two fit. c one byte smaller would do, or c two ticks later
               a  +-----+
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Problem
from memoir.planning.sections import Sections

# Seconds for sets that only a search proves, as many to try changes of one buffer, and as many for several.
EFFORT = 1.0
_PEAKS = 4_000  # sections that are looked into, the fullest first
_MOST = 20_000  # buffers, of problems where several are looked for that are let go together
_CHANGES = 3  # of each kind that are tried and told
# Shares of the capacity that changes of several buffers leave free in the end.
_SLACKS = (0.0, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Change:
    """One change of one buffer after which a plan was found that fits."""

    kind: str  # "shrink", "end earlier", "begin later", or "let go": recompute or offload it for a while
    buffer: int
    bytes: int  # to shrink by; else those that are let go
    ticks: int  # that its life loses; 0 for "shrink"
    lower: int  # the ticks [lower, upper) in which it is smaller or not there
    upper: int


@dataclass(frozen=True)
class Why:
    """Sizes in bytes, buffers by their index."""

    capacity: int
    buffers: tuple[int, ...]  # cannot be in one arena of that capacity together
    needed: int  # at least, by them alone
    tick: int | None  # at which all of them live; None: no tick is too full, it is how they interlock
    minimal: bool  # without any one of them the others fit
    smallest: bool  # and no set of fewer lives together and is too large
    changes: tuple[Change, ...]  # the cheapest of each kind first
    # Where no change of one buffer will do: which to let go (recompute or offload) over the ticks that are too full;
    # where that is not enough either, by how much to shrink several.
    together: tuple[Change, ...]
    # Of each kind how many changes of one buffer were tried, and how often several together: "let go together",
    # "shrink together".
    tried: dict[str, int]

    def summary(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """As `memoir plan --json` prints it."""

        def name(buffer: int) -> int | str:
            return ids[buffer] if ids is not None else buffer

        def told(change: Change) -> dict[str, Any]:
            return {**dataclasses.asdict(change), "buffer": name(change.buffer)}

        return {
            **{key: getattr(self, key) for key in ("capacity", "needed", "tick", "minimal", "smallest")},
            "buffers": [name(buffer) for buffer in self.buffers],
            "changes": [told(change) for change in self.changes],
            "together": [told(change) for change in self.together],
            "tried": dict(self.tried),
        }


def explain(problem: Any, capacity: int, seconds: float = EFFORT) -> Why | None:
    """Says why no plan of the problem fits the capacity, in bytes. None when that is not known: the load fits, and no
    search proves within the time that nothing does. `problem` is lower, upper, size and perhaps alignment, as
    memoir.plan() takes them. Raises Error for anything else."""
    from memoir.planning.arrays import as_problem

    if capacity < 0:
        raise _core.Error(f"the capacity must be 0 bytes or more, not {capacity}")
    problem = as_problem(problem)
    sections = Sections.of(problem)
    over = sections.over(capacity)
    if len(over) == 0:
        found = _interlocked(problem, capacity, time.monotonic() + seconds)
        if found is None:
            return None
        buffers, minimal = found
        tick, smallest = None, False
        needed = _bound(_only(problem, buffers), capacity, seconds)
    else:
        section, buffers, smallest = _fullest_set(problem, sections, capacity)
        tick = int(sections.ticks[section])
        needed = int(problem.size[buffers].sum())
        minimal = True
    tried: Counter[str] = Counter()
    changes = _changes(problem, sections, over, buffers, capacity, seconds, tried)
    together: tuple[Change, ...] = ()
    if not changes and len(over) > 0:
        together = _let_go(problem, sections, over, capacity, seconds, tried)
        together = together or _shrink(problem, sections, capacity, seconds, tried)
    who = tuple(int(buffer) for buffer in buffers)
    return Why(capacity, who, needed, tick, minimal, smallest, tuple(changes), together, dict(tried))


def _fullest_set(problem: Problem, sections: Sections, capacity: int) -> tuple[int, np.ndarray, bool]:
    """The section and the fewest of its buffers that exceed the capacity; and whether all sections were looked into."""
    sizes = problem.size.astype(np.int64)
    until = time.monotonic() + EFFORT
    looked = 0
    peaks = sorted(sections.peaks(capacity), key=lambda section: -sections.loads[section])
    best: tuple[int, np.ndarray] | None = None
    for section in peaks:
        if looked == _PEAKS or (looked and time.monotonic() > until):
            break
        looked += 1
        live = sections.live(section)
        live = live[np.argsort(-sizes[live], kind="stable")]
        count = int(np.searchsorted(np.cumsum(sizes[live]), capacity, side="right")) + 1
        if best is None or count < len(best[1]):
            best = section, np.sort(live[:count])
    assert best is not None, "a section that is too full has a peak at or after it"
    return *best, looked == len(peaks)


# --- sets that no tick explains ---


def _only(problem: Problem, buffers: np.ndarray) -> Problem:
    return Problem(
        problem.lower[buffers], problem.upper[buffers], problem.size[buffers], problem.alignment[buffers]
    )


def _bound(problem: Problem, capacity: int, seconds: float) -> int:
    """What a plan of it takes at least."""
    if len(problem) == 0:
        return 0
    found = _core.search(problem, exact=True, deadline=max(seconds, 0.0), threads=1, capacity=capacity)
    return int(max(_core.aligned_load(problem), found.lower_bound))


def _interlocked(problem: Problem, capacity: int, until: float) -> tuple[np.ndarray, bool] | None:
    """Buffers that are proven not to fit together, of which as many as time allows were found not to be needed for
    that: halves of them first (QuickXplain). And whether that ended."""

    def refuted(buffers: np.ndarray) -> bool:
        left = until - time.monotonic()
        return (
            left > 0 and len(buffers) > 0 and _bound(_only(problem, buffers), capacity, left / 4) > capacity
        )

    whole = np.flatnonzero(problem.size > 0)
    if not refuted(whole):
        return None
    kept = _explain(refuted, np.zeros(0, np.int64), whole, known=False)
    if not refuted(kept):  # time was over: what is proven is the whole
        return whole, False
    # An answer that time cut short says "not refuted", which keeps a buffer too many but never one too few.
    minimal = all(_fits(_only(problem, np.delete(kept, k)), capacity, until) for k in range(len(kept)))
    return np.sort(kept), minimal


def _explain(
    refuted: Callable[[np.ndarray], bool], background: np.ndarray, rest: np.ndarray, *, known: bool
) -> np.ndarray:
    """Of `rest`, those that are needed to refute it together with the background."""
    if known and refuted(background):
        return rest[:0]
    if len(rest) == 1:
        return rest
    half = len(rest) // 2
    left, right = rest[:half], rest[half:]
    needed_right = _explain(refuted, np.concatenate([background, left]), right, known=half > 0)
    needed_left = _explain(
        refuted, np.concatenate([background, needed_right]), left, known=len(needed_right) > 0
    )
    return np.concatenate([needed_left, needed_right])


def _fits(problem: Problem, capacity: int, until: float) -> bool:
    """A plan that fits was found."""
    if len(problem) == 0:
        return True
    left = max(until - time.monotonic(), 0.05)
    return bool(_core.search(problem, deadline=left, threads=1, capacity=capacity).arena_size <= capacity)


# --- what to change ---


def _changes(
    problem: Problem,
    sections: Sections,
    over: np.ndarray,
    buffers: np.ndarray,
    capacity: int,
    seconds: float,
    tried: Counter[str],
) -> list[Change]:
    """Changes of one buffer that were tried, the cheapest of each kind first."""
    if len(over) == 0:
        return _changes_by_trial(problem, buffers, capacity, seconds, tried)
    lowers, uppers, sizes = problem.lower, problem.upper, problem.size
    first, last = int(over[0]), int(over[-1])
    begin, end = int(sections.ticks[first]), int(sections.ticks[last + 1])
    excess = int(sections.loads[over].max()) - capacity
    found: dict[str, list[Change]] = {"shrink": [], "end earlier": [], "begin later": [], "let go": []}
    # Only a buffer that lives whenever there is too much, and has as many bytes, can do it alone.
    for buffer in np.flatnonzero((sections.first <= first) & (sections.last > last) & (sizes >= excess)):
        i, lower, upper = int(buffer), int(lowers[buffer]), int(uppers[buffer])
        size = int(sizes[i])
        if size > excess:
            found["shrink"].append(Change("shrink", i, excess, 0, lower, upper))
        if lower < begin:
            found["end earlier"].append(Change("end earlier", i, size, upper - begin, begin, upper))
        if end < upper:
            found["begin later"].append(Change("begin later", i, size, end - lower, lower, end))
        if lower < begin and end < upper:
            found["let go"].append(Change("let go", i, size, end - begin, begin, end))
    out: list[Change] = []
    until = time.monotonic() + seconds
    for kind, changes in found.items():
        # The least of what it is about: a share of the buffer, ticks, or bytes that move.
        changes.sort(
            key=lambda change: (
                (change.bytes / int(sizes[change.buffer]), -change.buffer)
                if kind == "shrink"
                else (change.bytes, change.ticks)
                if kind == "let go"
                else (change.ticks, change.bytes)
            )
        )
        for change in changes[: 4 * _CHANGES]:
            if time.monotonic() > until:
                break
            tried[kind] += 1
            if applied(problem, [change], capacity, max(until - time.monotonic(), 0.05) / 2):
                out.append(change)
                if sum(one.kind == kind for one in out) == _CHANGES:
                    break
    return out


def _changes_by_trial(
    problem: Problem, buffers: np.ndarray, capacity: int, seconds: float, tried: Counter[str]
) -> list[Change]:
    """Where they only interlock: by how little one of them must be smaller, by halving."""
    until = time.monotonic() + seconds
    out: list[Change] = []
    for buffer in sorted(buffers.tolist(), key=lambda i: int(problem.size[i])):
        if time.monotonic() > until:
            break
        lower, upper = int(problem.lower[buffer]), int(problem.upper[buffer])
        fits: int | None = None
        least, most = 1, int(problem.size[buffer]) - 1
        while least <= most and time.monotonic() < until:
            middle = (least + most) // 2
            change = Change("shrink", buffer, middle, 0, lower, upper)
            tried["shrink"] += 1
            if applied(problem, [change], capacity, 0.1):
                fits, most = middle, middle - 1
            else:
                least = middle + 1
        if fits is not None:
            out.append(Change("shrink", buffer, fits, 0, lower, upper))
    return sorted(out, key=lambda change: change.bytes)[:_CHANGES]


def _let_go(
    problem: Problem,
    sections: Sections,
    over: np.ndarray,
    capacity: int,
    seconds: float,
    tried: Counter[str],
) -> tuple[Change, ...]:
    """The fewest bytes found that can be let go over the ticks that are too full, so that it fits."""
    from memoir.planning.budget import Option, choose

    if len(problem) > _MOST:
        return ()
    tried["let go together"] += 1
    lowers, uppers, sizes = problem.lower, problem.upper, problem.size
    options = [
        Option(i, int(lowers[i]) + 1, int(uppers[i]) - 1, "let go", float(sizes[i]))
        for i in np.flatnonzero((uppers - lowers > 2) & (sizes > 0)).tolist()
    ]
    chosen = choose(problem, capacity, options, time.monotonic() + seconds / 2)
    if chosen is None:
        return ()
    out = []
    for option in chosen.options:
        # No longer than there is too much.
        inside = over[(sections.ticks[over] < option.upper) & (sections.ticks[over + 1] > option.lower)]
        begin = max(option.lower, int(sections.ticks[inside[0]]))
        end = min(option.upper, int(sections.ticks[inside[-1] + 1]))
        out.append(Change("let go", option.buffer, int(sizes[option.buffer]), end - begin, begin, end))
    return tuple(out) if applied(problem, out, capacity, seconds) else ()


def _shrink(
    problem: Problem, sections: Sections, capacity: int, seconds: float, tried: Counter[str]
) -> tuple[Change, ...]:
    """Several that fit once they are smaller: whoever is live where most is too much gives way, the one that helps the most
    sections first. With no room to spare a plan is hard to find, so then more than the load demands is taken."""
    if len(problem) > _MOST:
        return ()
    sizes = problem.size.astype(np.int64)
    lowers, uppers = problem.lower, problem.upper
    until = time.monotonic() + seconds
    for share in _SLACKS:
        goal = capacity - int(share * capacity)
        less = np.zeros(len(sizes), np.int64)
        excess = sections.loads - goal
        while (worst := int(excess.max())) > 0:
            live = sections.live(int(excess.argmax()))
            live = live[less[live] < sizes[live] - 1]
            if len(live) == 0 or time.monotonic() > until:
                return ()
            helped = [
                np.clip(excess[sections.first[i] : sections.last[i]], 0, sizes[i] - 1 - less[i]).sum()
                for i in live
            ]
            buffer = live[int(np.argmax(helped))]
            by = min(worst, int(sizes[buffer] - 1 - less[buffer]))
            less[buffer] += by
            excess[sections.first[buffer] : sections.last[buffer]] -= by
        changes = tuple(
            Change("shrink", i, int(less[i]), 0, int(lowers[i]), int(uppers[i]))
            for i in np.flatnonzero(less).tolist()
        )
        tried["shrink together"] += 1
        if applied(problem, changes, capacity, seconds / len(_SLACKS)):
            return changes
    return ()


def applied(problem: Problem, changes: Sequence[Change], capacity: int, seconds: float) -> bool:
    """A plan was found that fits the capacity after these changes."""
    lower, upper, size = problem.lower, problem.upper, problem.size
    rows: list[tuple[int, int, int]] = []
    for change in changes:
        if change.kind == "shrink":
            size[change.buffer] -= change.bytes
        elif change.kind == "end earlier":
            upper[change.buffer] = change.lower
        elif change.kind == "begin later":
            lower[change.buffer] = change.upper
        else:
            rows.append((change.buffer, change.lower, change.upper))
    changed = Problem(lower, upper, size, problem.alignment)
    if not rows:
        sized = changed.sized()
        return _fits(sized if sized is not None else changed, capacity, time.monotonic() + seconds)
    constrained = _core.ConstrainedProblem(changed)
    buffers, begins, ends = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
    nothing = np.zeros(len(rows), np.uint64)
    constrained.set_gaps(buffers, begins, ends, nothing, nothing)
    found = _core.plan_constrained(constrained, "auto", deadline=seconds, capacity=capacity)
    return bool(found.found and found.fits)
