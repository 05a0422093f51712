# SPDX-License-Identifier: Apache-2.0
"""Who asked, in figures: against sums that are made event by event, for programs that are drawn by seeds."""

from __future__ import annotations

import random

import native_trace as native
import numpy as np
import pytest
from memoir._core import Trace, Usage
from memoir.traces.own_code import Owner
from memoir.views.native_summary import summarize_native, who_of
from memoir.views.page.stack_set import StackSet
from memoir.views.who import POINTS, culprit


def drawn(seed: int) -> Trace:
    """A few hundred objects of a few functions, some of a library, at times from 0 to 300 ms; some are never freed."""
    pick = random.Random(seed)
    trace = native.NativeTrace()
    trace.meta("command", "/app/server")
    frames = [
        trace.native("/app/server", k, [(f"f{k % 7}(int)", f"/app/f{k % 7}.cc", k)]) for k in range(1, 15)
    ]
    frames += [
        trace.native("/lib/libz.so.1", k, [("deflateInit2_", "", 0)] if k % 2 else []) for k in range(20, 24)
    ]
    stacks = [0, *(trace.stack(*pick.choices(frames, k=pick.randrange(1, 6))) for _ in range(25))]
    live: list[tuple[int, int]] = []
    for number in range(300):
        tick = number if seed % 2 else number // 30 * 30
        for at, address in list(live):
            if pick.random() < 0.03 * (tick - at) / 10:
                live.remove((at, address))
                trace.free(1, tick, address)
        address = 0x10000 * (number + 1)
        trace.allocate(1, tick, address, pick.randrange(1, 5000), pick.choice(stacks))
        live.append((tick, address))
    if seed % 3:
        for _, address in live[::2]:
            trace.free(1, 301, address)
    return Trace.from_bytes(trace.bytes())


@pytest.mark.parametrize("seed", range(6))
def test_curves_and_ends_are_those_of_a_walk_over_the_events(seed):
    trace = drawn(seed)
    who = who_of(trace, Usage(trace))
    events = trace.events
    group_of = dict(zip(who.sites["site"].tolist(), who.group.tolist(), strict=True))
    own = {
        site for site, mine in zip(who.sites["site"].tolist(), who._own_sites().tolist(), strict=True) if mine
    }
    step = int(events["time"][-1]) // POINTS + 1
    groups = len(who.curves)
    most, live = np.zeros((groups, POINTS), np.int64), np.zeros(groups, np.int64)
    made: dict[int, tuple[int, int, int]] = {}
    reached, then = 0, None
    for kind, number, site, size, time in events[["kind", "object", "site", "size", "time"]].tolist():
        while reached < time // step:
            reached += 1
            most[:, reached] = live
        if kind == 1:
            made[number] = site, size, time
            live[group_of[site]] += size
            if site in own:
                then = dict(made), time
        elif kind == 2:
            site, size, _ = made.pop(number)
            live[group_of[site]] -= size
        most[:, reached] = np.maximum(most[:, reached], live)
    most[:, reached + 1 :] = live[:, None]
    assert np.array_equal(who.curves, most)
    assert then is not None
    wanted: dict[int, list[float]] = {}
    for number, (site, size, time) in then[0].items():
        if number not in made:  # freed since
            row = wanted.setdefault(site, [0, 0, 0.0])
            row[0] += 1
            row[1] += size
            row[2] += size * (then[1] - time + 1)
    freed = who.usage.freed_at_end(who._own_sites())
    for site, row in zip(who.sites["site"].tolist(), freed.tolist(), strict=True):
        assert row == pytest.approx(tuple(wanted.get(site, (0, 0, 0))))


@pytest.mark.parametrize("seed", range(6))
def test_rows_add_up_to_the_totals(seed):
    trace = drawn(seed)
    summary = summarize_native(trace, top=10_000)
    who, usage = who_of(trace, Usage(trace)), Usage(trace)
    for quantity, total in (("held", usage.held), ("kept", usage.kept)):
        rows = summary["who"][quantity]
        assert sum(row["bytes"] for row in rows) == total["bytes"]
        assert sum(row["count"] for row in rows) == total["count"]
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    freed = sum(row["count"] for row in summary["who"]["churn"])
    assert freed == usage.allocated["count"] - usage.kept["count"]
    stacks = StackSet.of(who)
    for name, values in who.weights().items():
        assert int(stacks.own[name].sum()) == int(values.sum())
    assert len(stacks.frame) == len(stacks.parent) and (stacks.parent <= np.arange(len(stacks.parent))).all()


def test_a_library_stands_behind_the_line_that_called_it():
    trace = native.NativeTrace()
    trace.meta("command", "/app/pack")
    main = trace.native("/app/pack", 1, [("main", "/app/pack.c", 9)])
    inflate = trace.native("/lib/x86_64-linux-gnu/libz.so.1", 2, [("inflateInit2_", "", 0)])
    inner = trace.native("/lib/x86_64-linux-gnu/libz.so.1", 3)
    malloc = trace.native("/lib/x86_64-linux-gnu/libc.so.6", 4, [("malloc", "", 0)])
    start = trace.native("/lib/x86_64-linux-gnu/libc.so.6", 5, [("__libc_start_main", "", 0)])
    trace.allocate(1, 1, 0x1000, 900, trace.stack(start, main, inflate, inner, malloc))
    trace.allocate(1, 2, 0x2000, 5000, trace.stack(start, malloc))
    rows = summarize_native(Trace.from_bytes(trace.bytes()))["who"]["kept"]
    assert (rows[1]["function"], rows[1]["through"], rows[1]["place"]) == (
        "main",
        "inflateInit2_",
        "pack.c:9",
    )
    assert rows[0]["function"] == "__libc_start_main" and not rows[0]["own"]
    assert culprit(rows) == rows[1]  # what a reader can act on


def test_two_lines_of_one_function_are_one_row():
    trace = native.NativeTrace()
    trace.meta("command", "/app/server")
    add = [
        trace.native("/app/server", k, [("Cache::add(int)", "/app/src/cache.cc", 10 + k)]) for k in range(3)
    ]
    other = trace.native("/app/server", 9, [("Log::write()", "/app/log/log.cc", 5)])
    for number, (frame, size) in enumerate([(add[0], 50), (add[1], 9000), (add[2], 2000), (other, 10)]):
        trace.allocate(1, number, 0x10000 * (number + 1), size, trace.stack(frame))
    who = summarize_native(Trace.from_bytes(trace.bytes()))["who"]["kept"]
    assert [(row["function"], row["place"], row["bytes"]) for row in who] == [
        ("Cache::add", "src/cache.cc:11,12", 11_050),
        ("Log::write", "log/log.cc:5", 10),
    ]
    assert who[0]["lines"] == [11, 12]


def test_stacks_of_a_file_with_thousands_of_inlined_functions_stay_small():
    trace = native.NativeTrace()
    lines = [(f"g{k}", "/app/g.cc", k + 1) for k in range(5000)]
    frame = trace.native("/app/server", 1, lines)
    trace.allocate(1, 1, 0x1000, 10, trace.stack(*[frame] * 50))
    opened = Trace.from_bytes(trace.bytes())
    rows, parents, _, frames = opened.forest(np.unique(opened.events["site"]))
    assert len(parents) <= 50 * 32 and rows[-1] == len(parents) - 1
    assert frames[-1]["function"] == "g0" and Owner.OWN == 0
