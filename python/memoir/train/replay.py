# SPDX-License-Identifier: Apache-2.0
"""Whether two classes pay: the sampled objects of a profile again, through the heap that memoir's malloc has.

Of each run the time from its beginning to the end of its first large fall: memory that cannot go back then is what classes
are for. Each sample is drawn out to the objects that it stands for, of its size and lifetime, born around it; of many objects a
part, so that the heap is smaller. The simulation serves them in one class, and again told which contexts the model calls long.
The gain is what is saved of the resident bytes, on average over the time after the peak.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from memoir import _core
from memoir.lifetimes import NEVER_FREED, ONE_OBJECT, Lifetimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_OBJECTS = 600_000  # that the replay of a run draws out
_REGION = 2 << 20  # bytes that a class of the heap holds at a time (heap/lifetime)
_NEIGHBOURS = 4  # samples of a context on either side whose deaths an object may have
_LARGE = 0.7  # a fall is large that is such a part of the largest
MOST_RUNS = 1  # of a profile that are replayed: those that allocated most
SPLIT_FROM = 16 << 20  # bytes: the malloc keeps smaller heaps in one class (heap/lifetime/lifetime_options.h)
LEAST_GAIN = 0.03


def pays(gain: float, part: float) -> bool:
    """Whether two classes are worth it. A part of a heap is a poor judge of small gains: there only a loss decides."""
    return gain > (LEAST_GAIN if part == 1 else -LEAST_GAIN)


def gain(
    lifetimes: Lifetimes, long: NDArray[numpy.bool_], *, tau: float, seed: int = 1
) -> tuple[float, float]:
    """The share of resident bytes that two classes save, and the part of the objects that was replayed (the least of the
    runs). long: of each context."""
    gains, weights, parts = [], [], [1.0]
    slices = lifetimes.run_slices()
    largest = numpy.argsort(-lifetimes.runs["allocated"].astype(float), kind="stable")[:MOST_RUNS]
    for number in largest.tolist():
        pairs, points = slices[number]
        if pairs.stop - pairs.start < 2:
            continue
        run = lifetimes.runs[number]
        curve = lifetimes.points[points]
        weights.append(float(run["allocated"]))
        if not len(curve) or curve["live"].max() < SPLIT_FROM:
            gains.append(0.0)
            continue
        found, part = _gain_of_run(lifetimes.pairs[pairs], curve, run, long, tau, seed)
        gains.append(found)
        parts.append(part)
    return float(numpy.average(gains, weights=weights)) if gains and sum(weights) else 0.0, min(parts)


def _gain_of_run(
    pairs: NDArray[numpy.void],
    curve: NDArray[numpy.void],
    run: numpy.void,
    long: NDArray[numpy.bool_],
    tau: float,
    seed: int,
) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="memoir-train-") as folder:
        trace, classes = Path(folder) / "run.trace", Path(folder) / "classes.trace"
        after, part = _write_trace(trace, pairs, curve, run, seed)
        _write_classes(classes, numpy.flatnonzero(long))
        workload = _core.Workload(_core.Trace.open(trace))
        resident = {}
        for name, setting in (("one", "split=false"), ("two", f"lifetimes=[{classes}]")):
            policy = f"lifetime,{setting},tau={tau:g}"
            done = _core.simulate(workload, policy, samples=400, timed=False)
            resident[name] = _mean(done.timeline, after)
    # A second class costs about a region that is not full, whatever the heap's size: in a part of the heap it weighs too much.
    two = resident["two"] - _REGION * (1 - part)
    return 1 - two / resident["one"] if resident["one"] else 0.0, part


def _write_trace(
    path: Path, pairs: NDArray[numpy.void], curve: NDArray[numpy.void], run: numpy.void, seed: int
) -> tuple[float, float]:
    """Gives the nanosecond of the peak, and which part of the objects was drawn out."""
    random = numpy.random.default_rng(seed)
    # The reservoir is a part of all samples; each of it stands for more when others were left out.
    kept = max(float(run["samples"]) / len(pairs), 1.0)
    weights = pairs["weight"].astype(float) / ONE_OBJECT * kept
    end_of_run = max(float(run["allocated"]), float(pairs["end_clock"].max()))
    begins, ends_at = pairs["begin_clock"].astype(float), pairs["end_clock"].astype(float)
    ends_at[(pairs["flags"] & NEVER_FREED) != 0] = numpy.inf
    stop = min(_window(curve)[1], end_of_run)
    part = min(MOST_OBJECTS / max(weights[begins <= stop].sum(), 1), 1.0)
    few = numpy.where(begins <= stop, weights * part, 0)
    copies = (few + random.random(len(few)) * (few > 0)).astype(numpy.int64)
    which = numpy.repeat(numpy.arange(len(pairs)), copies)
    born, dies = _spread(pairs["context"].astype(numpy.int64), begins, ends_at, which, random)
    born = numpy.clip(born, 0, stop)
    dies = numpy.maximum(dies, born + 1)
    forever = dies > stop
    ends = numpy.where(forever, numpy.inf, dies)
    amounts = numpy.maximum(pairs["size"][which], 1).astype(numpy.int64)
    times = numpy.concatenate([born, ends[~forever]])
    objects = numpy.concatenate([numpy.arange(len(which)), numpy.flatnonzero(~forever)])
    is_end = numpy.arange(len(times)) >= len(which)
    order = numpy.lexsort((is_end, times))
    moments = _moments(times[order], curve, run)
    writer = _core.TraceWriter(path)
    writer.set_time(0)  # or what follows would have the time of the clock
    contexts = pairs["context"][which].astype(numpy.int64)
    sites = {int(context): _site(int(context)) for context in numpy.unique(contexts)}
    for context, site in sites.items():
        writer.define_site(site, 0, str(context))
    site_of = [sites[context] for context in contexts.tolist()]
    size_of = amounts.tolist()
    ended = is_end.tolist()
    for place, time, number in zip(order.tolist(), moments.tolist(), objects[order].tolist(), strict=True):
        writer.set_time(int(time))
        if ended[place]:
            writer.free(number + 1)
        else:
            writer.allocate(number + 1, site_of[number], size_of[number], 16)
    writer.close()
    return float(_moments(numpy.array([_window(curve)[0]]), curve, run)[0]), part


def _spread(
    contexts: NDArray[numpy.int64],
    begins: NDArray[numpy.float64],
    ends: NDArray[numpy.float64],
    which: NDArray[numpy.int64],
    random: numpy.random.Generator,
) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """When each object is born and dies; `which`: its sample. Objects of a sample are born between those of the samples of
    its context before and behind it, and die as one of these or it does: not all at once, as copies would."""
    order = numpy.lexsort((begins, contexts))
    rank = numpy.empty(len(order), numpy.int64)
    rank[order] = numpy.arange(len(order))
    same = contexts[order][1:] == contexts[order][:-1]
    first = numpy.maximum.accumulate(numpy.where(numpy.append(True, ~same), numpy.arange(len(order)), 0))
    last = (
        len(order)
        - 1
        - numpy.maximum.accumulate(numpy.where(numpy.append(True, ~same[::-1]), numpy.arange(len(order)), 0))[
            ::-1
        ]
    )
    at = rank[which]
    before, behind = numpy.maximum(at - 1, first[at]), numpy.minimum(at + 1, last[at])
    clock = begins[order]
    low = numpy.where(before < at, (clock[before] + clock[at]) / 2, (3 * clock[at] - clock[behind]) / 2)
    high = numpy.where(behind > at, (clock[behind] + clock[at]) / 2, (3 * clock[at] - clock[before]) / 2)
    gap = high - low
    born = low + random.random(len(which)) * gap
    near = numpy.clip(at + random.integers(-_NEIGHBOURS, _NEIGHBOURS + 1, len(which)), first[at], last[at])
    other = order[near]
    lived = ends[other] - begins[other]
    spread = ends[other] + (random.random(len(which)) - 0.5) * gap
    return born, numpy.where(lived < gap, born + lived, spread)


def _window(curve: NDArray[numpy.void]) -> tuple[float, float]:
    """The clock at the peak before the first large fall of live bytes, and when they rise again; else all of the run."""
    live, clock = curve["live"].astype(float), curve["clock"].astype(float)
    if len(live) < 3:
        return 0.0, numpy.inf
    lowest = numpy.minimum.accumulate(live[::-1])[::-1]
    falls = live - lowest
    if falls.max() <= 0:
        return 0.0, numpy.inf
    first = int(numpy.argmax(falls >= _LARGE * falls.max()))
    low = live <= lowest[first] + (1 - _LARGE) * falls[first]
    end = first + int(numpy.argmax(low[first:]))
    peak = first + int(numpy.argmax(live[first : end + 1]))
    rises = numpy.flatnonzero(~low[end:])
    return float(clock[peak]), float(clock[end + rises[0]]) if len(rises) else numpy.inf


def _moments(
    clocks: NDArray[numpy.float64], curve: NDArray[numpy.void], run: numpy.void
) -> NDArray[numpy.float64]:
    """Nanoseconds of the run when so many bytes had been allocated: while it waits, nothing is."""
    known = numpy.concatenate([[0], curve["clock"].astype(float), [float(run["allocated"])]])
    times = numpy.concatenate([[0], curve["time"].astype(float), [float(run["milliseconds"])]])
    last = numpy.append(known[1:] != known[:-1], True)  # of several moments with one clock
    return numpy.maximum.accumulate(numpy.interp(clocks, known[last], times[last])) * 1e6


def _mean(line: dict[str, NDArray[Any]], after: float) -> float:
    """Of the resident bytes, over the time that comes then; over all samples where no time passes. What a heap gives back
    while its program waits is seen at the next sample."""
    resident, times = line["reserved"].astype(float), line["time"].astype(float)
    spans = numpy.where(times[:-1] >= after, numpy.diff(times), 0)
    return float(numpy.average(resident[1:], weights=spans)) if spans.sum() > 0 else float(resident.mean())


def _write_classes(path: Path, long: NDArray[numpy.int64]) -> None:
    """Another run, as simulations take what is known of sites: in it the objects of long contexts are never freed."""
    writer = _core.TraceWriter(path)
    writer.set_time(0)
    for number, context in enumerate(long.tolist()):
        site = _site(context)
        writer.define_site(site, 0, str(context))
        writer.allocate(number + 1, site, 16, 16)
    writer.close()


def _site(context: int) -> int:
    return int(_core.child_site(0, str(context)))
