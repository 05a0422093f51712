# SPDX-License-Identifier: Apache-2.0
"""Whether two classes pay: the sampled objects of a profile again, through the heap that memoir's malloc has.

Each sample of a run is drawn out to the objects that it stands for, of its size and lifetime, born around it. The heap of
the simulation serves them in one class, and again told which contexts the model calls long. The gain is what is saved of
the resident bytes, on average over the run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from memoir import _core
from memoir.lifetimes import NEVER_FREED, ONE_OBJECT, Lifetimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_OBJECTS = 50_000  # that the replay of a run draws out
MOST_RUNS = 4  # of a profile that are replayed: those that allocated most
LEAST_GAIN = 0.03


def gain(lifetimes: Lifetimes, long: NDArray[numpy.bool_], *, tau: float, seed: int = 1) -> float:
    """The share of resident bytes that two classes save, on average over the runs that are kept; long: of each context."""
    gains, weights = [], []
    slices = lifetimes.run_slices()
    for number in numpy.argsort(-lifetimes.runs["allocated"].astype(float), kind="stable")[
        :MOST_RUNS
    ].tolist():
        pairs = slices[number][0]
        if pairs.stop - pairs.start < 2:
            continue
        run = lifetimes.runs[number]
        gains.append(_gain_of_run(lifetimes.pairs[pairs], run, long, tau, seed))
        weights.append(float(run["allocated"]))
    return float(numpy.average(gains, weights=weights)) if gains and sum(weights) else 0.0


def _gain_of_run(
    pairs: NDArray[numpy.void], run: numpy.void, long: NDArray[numpy.bool_], tau: float, seed: int
) -> float:
    with tempfile.TemporaryDirectory(prefix="memoir-train-") as folder:
        trace, classes = Path(folder) / "run.trace", Path(folder) / "classes.trace"
        _write_trace(trace, pairs, run, seed)
        _write_classes(classes, numpy.flatnonzero(long))
        workload = _core.Workload(_core.Trace.open(trace))
        resident = {}
        for name, setting in (("one", "split=false"), ("two", f"lifetimes=[{classes}]")):
            policy = f"lifetime,{setting},tau={tau:g}"
            done = _core.simulate(workload, policy, samples=400, timed=False)
            resident[name] = float(numpy.mean(done.timeline["reserved"].astype(float)))
    return 1 - resident["two"] / resident["one"] if resident["one"] else 0.0


def _write_trace(path: Path, pairs: NDArray[numpy.void], run: numpy.void, seed: int) -> None:
    random = numpy.random.default_rng(seed)
    # The reservoir is a part of all samples; each of it stands for more when others were left out.
    kept = max(float(run["samples"]) / len(pairs), 1.0)
    weights = pairs["weight"].astype(float) / ONE_OBJECT * kept
    sizes = numpy.maximum(pairs["size"].astype(float), 1)
    # With fewer objects than there were they are larger: the heap keeps its bytes.
    larger = max(weights.sum() / MOST_OBJECTS, 1.0)
    few = weights / larger
    copies = (few + random.random(len(few))).astype(numpy.int64)
    which = numpy.repeat(numpy.arange(len(pairs)), copies)
    begin = pairs["begin_clock"].astype(float)[which]
    lasts = (pairs["end_clock"].astype(float) - pairs["begin_clock"].astype(float))[which]
    between = (sizes * weights)[which]
    end_of_run = max(float(run["allocated"]), float(pairs["end_clock"].max()))
    born = numpy.clip(begin + (random.random(len(which)) - 0.5) * between, 0, end_of_run)
    forever = (pairs["flags"][which] & NEVER_FREED) != 0
    ends = numpy.where(forever, numpy.inf, numpy.minimum(born + numpy.maximum(lasts, 1), end_of_run))
    amounts = numpy.maximum(numpy.rint(sizes[which] * (larger if larger > 1 else 1)), 1).astype(numpy.int64)
    times = numpy.concatenate([born, ends[~forever]])
    objects = numpy.concatenate([numpy.arange(len(which)), numpy.flatnonzero(~forever)])
    is_end = numpy.arange(len(times)) >= len(which)
    order = numpy.lexsort((is_end, times))
    writer = _core.TraceWriter(path)
    contexts = pairs["context"][which].astype(numpy.int64)
    sites = {int(context): _site(int(context)) for context in numpy.unique(contexts)}
    for context, site in sites.items():
        writer.define_site(site, 0, str(context))
    site_of = [sites[context] for context in contexts.tolist()]
    size_of = amounts.tolist()
    ended = is_end.tolist()
    for place, time, number in zip(
        order.tolist(), times[order].tolist(), objects[order].tolist(), strict=True
    ):
        writer.set_time(int(time))
        if ended[place]:
            writer.free(number + 1)
        else:
            writer.allocate(number + 1, site_of[number], size_of[number], 16)
    writer.close()


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
