# SPDX-License-Identifier: Apache-2.0
"""`memoir show` of native programs: who held memory, what stayed, what was short, and why the process held more."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict

import golden_trace as golden
import native_trace as native
import numpy as np
import pytest
from memoir._core import Lives, Only, Trace, TraceWriter, Usage
from memoir.base.quantities import read_duration
from memoir.cli import main
from memoir.cli.parts.follow_trace import LiveBytes
from memoir.traces.files import open_chosen, open_for_plans
from memoir.views.native_summary import is_native, summarize_native
from memoir.views.trace_diff import diff_traces
from memoir.views.trace_summary import summarize


@pytest.fixture
def program() -> Trace:
    return Trace.open(golden.DATA / golden.NATIVE)


@pytest.fixture
def run(capsys):
    """The command line; what it prints, and with `code` what it says is wrong."""

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        return captured.err if code else captured.out

    return run


def test_the_program_by_hand(program):
    assert is_native(program) and not is_native(Trace.open(golden.DATA / golden.SMALL))
    summary = summarize_native(program)
    held = sum(2000 + number for number in range(0, 40, 4))
    assert summary["moment"]["is_peak"]
    assert summary["moment"]["bytes"] == 100_000 + held + (4 << 20) and summary["moment"]["count"] == 12
    assert summary["moment"]["time_ns"] == 50_000_000
    (biggest, start, cache) = summary["held_by"]["stacks"]
    assert biggest["bytes"] == 4 << 20 and start["bytes"] == 100_000 and cache["bytes"] == held
    assert cache["stack"] == [
        "main (server.cc:40)",
        "serve (server.cc:88)",
        "parse (parse.h:7)",
        "libcache.so.1+0x88",
    ]
    assert {row["name"]: row["bytes"] for row in summary["held_by"]["libraries"]} == {
        "/usr/bin/server": 100_000 + (4 << 20),
        "/usr/lib/libcache.so.1": held,
    }
    assert {row["name"] for row in summary["held_by"]["functions"]} == {
        "main",
        "parse",
        "libcache.so.1+0x88",
    }
    assert summary["kept"]["count"] == 11 and summary["kept"]["bytes"] == held + 200_000
    assert summary["kept"]["program_ended"]
    assert summary["temporary"]["count"] == 41 and summary["temporary"]["bytes"] == 40 * 48 + (4 << 20)
    assert {row["thread"]: row["name"] for row in summary["threads"]} == {1: "server", 2: "worker"}
    assert summary["losses"] == {"no_room": 3, "deep_frames": 12, "unknown_frees": 1}
    assert summary["end"] == {"time_ns": 83_000_000, "by_exec": False, "status": 0}
    families = {row["family"]: row["count"] for row in summary["families"]}
    assert families == {"tensor": 1, "malloc": 43, "new": 40}
    assert sum(summary["rates"]["allocations"]) == 84


def test_a_tensor_of_a_native_program(program):
    summary = summarize_native(program, at=65_000_000)
    assert [row["name"] for row in summary["held_by"]["modules"]] == ["layers.0"]
    assert [row["name"] for row in summary["held_by"]["operators"]] == ["aten::linear"]
    assert [row["name"] for row in summary["held_by"]["lines"]] == ["handle (handler.py:31)"]
    tensors = Trace.open(golden.DATA / golden.NATIVE, only=Only.kTensors)
    assert tensors.events["size"][tensors.events["kind"] == 1].tolist() == [8192]
    by_operator = summarize(tensors)
    for key in ("operators", "outermost_operators"):
        assert by_operator[key] == [{"operator": "aten::linear", "count": 1, "bytes": 8192}]
    site = int(tensors.events["site"][0])
    assert tensors.site_chain(site).endswith("handle (handler.py:31) > layers.0 > aten::linear")


def test_why_more_is_resident_than_lives(program):
    resident = summarize_native(program)["resident"]
    assert resident["moment"] == "peak" and resident["time_ns"] == 52_000_000
    parts = {row["what"]: row["bytes"] for row in resident["parts"]}
    assert sum(parts.values()) == resident["resident_bytes"]
    assert parts["live, as asked"] == resident["live_bytes"] == summarize_native(program)["moment"]["bytes"]
    assert parts["stacks of threads"] == 64 << 10
    assert parts["libraries and files"] == 1000 << 10
    assert parts["the recorder itself"] == 256 << 10
    pinned = (
        parts["free space on pages that live objects pin"] + parts["rounding and headers (as glibc does)"]
    )
    pages = Usage(program).pages(52_000_000)
    assert pages["page_bytes"] == parts["live, as asked"] + pinned
    assert sum(row["free_bytes"] for row in pages["sites"]) == pinned
    assert resident["files"][0] == {"name": "/usr/bin/server", "bytes": 700 << 10}
    assert resident["counters"] == {"malloc.arena": 5 << 20}


def test_pages_against_a_plain_count():
    draw = random.Random(3)
    trace = native.NativeTrace()
    sites = [trace.stack(trace.native("/bin/p", 16 * number)) for number in range(1, 5)]
    taken, objects = set(), []
    for _ in range(300):
        begin, size = 0x10000 + draw.randrange(200_000), draw.choice([1, 20, 500, 4096, 9000])
        if taken.isdisjoint(range(begin, begin + size)):
            taken.update(range(begin, begin + size))
            objects.append((begin, size, draw.randrange(4)))
            trace.allocate(1, 5, begin, size, sites[objects[-1][2]])
    read = Trace.from_bytes(trace.bytes())
    pages = Usage(read).pages(5_000_000)
    on_page = defaultdict(list)
    for begin, size, site in objects:
        for page in range(begin // 4096, (begin + size - 1) // 4096 + 1):
            on_page[page].append(site)
    assert pages["page_bytes"] == 4096 * len(on_page)
    assert pages["held"] == {"count": len(objects), "bytes": len(taken)}
    free = [0.0] * 4
    for page, names in on_page.items():
        left = 4096 - len(taken.intersection(range(page * 4096, page * 4096 + 4096)))
        for name in names:
            free[name] += left / len(names)
    assert sorted(free) == pytest.approx(sorted(row["free_bytes"] for row in pages["sites"]), abs=400)
    assert sum(row["free_bytes"] for row in pages["sites"]) == pages["page_bytes"] - len(taken)


def test_usage_against_a_plain_loop():
    for seed in range(8):
        draw = random.Random(seed)
        writer, live, time = TraceWriter(), {}, 0
        writer.set_time(0)
        made, temporary, last = 0, 0, {}
        allocated, frees, elsewhere = defaultdict(int), defaultdict(int), defaultdict(int)
        history = []
        for _ in range(400):
            time += draw.randrange(3) * 1000
            writer.set_time(time)
            thread = draw.randrange(3)
            if not live or draw.random() < 0.55:
                made += 1
                size, site = draw.randrange(1, 1000), draw.randrange(1, 6)
                writer.allocate(made, site, size, thread=thread)
                live[made] = (size, site, thread)
                last[thread] = made
                allocated[site] += size
            else:
                name = draw.choice([last.get(thread), *live]) or next(iter(live))
                name = name if name in live else next(iter(live))
                size, _, owner = live.pop(name)
                writer.free(name, thread)
                temporary += last.get(thread) == name
                frees[thread] += 1
                elsewhere[owner] += size if owner != thread else 0
            history.append((time, dict(live)))
        trace = Trace.from_bytes(writer.bytes())
        usage = Usage(trace)
        loads = [sum(row[0] for row in then.values()) for _, then in history]
        assert usage.held_at_peak["bytes"] == max(loads) and usage.peak == loads.index(max(loads))
        assert usage.temporary["count"] == temporary
        assert usage.kept == {"count": len(live), "bytes": loads[-1]}
        rows = {int(row["site"]): row for row in usage.sites}
        assert {site: int(row["bytes"]) for site, row in rows.items()} == allocated
        threads = {int(row["thread"]): row for row in usage.threads}
        assert {name: int(row["freed"]) for name, row in threads.items() if row["freed"]} == dict(frees)
        assert all(int(row["freed_elsewhere_bytes"]) == elsewhere[name] for name, row in threads.items())
        at, then = history[draw.randrange(len(history))]
        then = [state for moment, state in history if moment <= at][-1]
        assert Usage(trace, at).held == {
            "count": len(then),
            "bytes": sum(row[0] for row in then.values()),
        }
        rates = Usage(trace, None, 7).rates
        assert int(rates["allocations"].sum()) == made and int(rates["peak_bytes"].max()) == max(loads)
        begins = sorted(draw.sample(range(len(history)), 5))
        load = Lives(trace).load([0, *begins])
        ends = [*begins, len(history)]
        assert load["most"] == [
            max([*loads[max(begin - 1, 0) : end], 0] if begin else [*loads[:end], 0])
            for begin, end in zip([0, *begins], ends, strict=True)
        ]
        assert load["peak"] == usage.peak and load["held"] == usage.held_at_peak
        follower = LiveBytes()
        for part in (100, 101, 400):
            follower.add(trace.events[:part])
        assert (follower.bytes, follower.peak) == (loads[-1], max(loads))


@pytest.mark.parametrize("name", golden.GOLDEN)
def test_a_trace_is_opened_for_its_tensors_where_it_has_any(name):
    path = golden.DATA / name
    tensors = Trace.open(path, Only.kTensors)
    trace, chosen = open_chosen(path)
    assert chosen == ("tensors" if tensors.allocates else "both")
    assert np.array_equal(trace.events, (tensors if tensors.allocates else Trace.open(path)).events)


def test_a_tensor_anywhere_counts(tmp_path):
    trace = native.NativeTrace()
    for number in range(100):
        trace.allocate(0, 5, 0x1000 + 64 * number, 48)
    (tmp_path / "none.trace").write_bytes(trace.bytes())
    trace.allocate(0, 6, 0x1000, 40, family=native.TENSOR)
    (tmp_path / "one.trace").write_bytes(trace.bytes())
    none, chosen = open_chosen(tmp_path / "none.trace")
    assert chosen == "both" and len(none.events) == 100
    assert len(open_for_plans(tmp_path / "none.trace").events) == 100
    one, chosen = open_chosen(tmp_path / "one.trace")
    assert chosen == "tensors" and [int(size) for size in one.events["size"]] == [40]
    assert len(open_for_plans(tmp_path / "one.trace").events) == 1


MEMORY = """
import re, sys
from memoir._core import Trace
from memoir.cli.parts.show_trace import show_trace

def most():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

show_trace(sys.argv[1], output=None, json=True, force=False)
before = most()
show_trace(sys.argv[2], output=None, json=True, force=False)
print(most() - before, file=sys.stderr)
"""


def test_showing_takes_little_more_memory_than_the_events(tmp_path):
    count = 400_000
    for name, events in (("small", 1000), ("large", count)):
        trace = native.NativeTrace()
        for number in range(events // 2):
            trace.allocate(0, number >> 8, 0x10000 + 64 * (number % 1000), 48)
            trace.free(0, number >> 8, 0x10000 + 64 * (number % 1000))
        (tmp_path / f"{name}.trace").write_bytes(trace.bytes())
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "small.trace"), str(tmp_path / "large.trace")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # 56 bytes an event, 4 for who lives when, and 8 MiB for parts that are looked at together
    assert int(done.stderr.split()[-1]) < 62 * count + (8 << 20)


def test_what_usually_stays_is_no_leak():
    trace = native.NativeTrace()
    main = trace.native("/bin/p", 1, [("main", "p.cc", 1)])
    cases = {
        "static initialisers": [trace.native("/bin/p", 2, [("_GLOBAL__sub_I_table", "t.cc", 2)])],
        "the dynamic loader": [trace.native("/lib64/ld-linux-x86-64.so.2", 3)],
        "buffers of standard streams": [
            main,
            trace.native("/lib/libc.so.6", 4, [("_IO_file_doallocate", "", 0)]),
        ],
        "": [main, trace.native("/bin/p", 5, [("leak()", "p.cc", 9)])],
    }
    for number, frames in enumerate(cases.values()):
        trace.allocate(1, 1, 0x1000 * (number + 1), 100 + number, trace.stack(*frames))
    kept = summarize_native(Trace.from_bytes(trace.bytes()))["kept"]
    assert kept["bytes"] == 103 and not kept["program_ended"]
    assert {row["why"]: row["bytes"] for row in kept["excluded"]} == {
        why: 100 + number for number, why in enumerate(cases) if why
    }


def test_the_difference_of_two_builds_goes_by_names():
    def build(offset: int, size: int) -> Trace:
        trace = native.NativeTrace()
        trace.module("/bin/p", bytes([offset]))
        main = trace.native("/bin/p", offset, [("main", "p.cc", offset)])
        cache = trace.native("/bin/p", 7 * offset, [("fill()", "p.cc", 3 * offset)])
        trace.allocate(1, 1, 0x1000, 500, trace.stack(main))
        trace.allocate(1, 1, 0x8000, size, trace.stack(main, cache))
        trace.free(1, 2, 0x1000)
        return Trace.from_bytes(trace.bytes())

    diff = diff_traces(build(10, 1000), build(20, 1700))
    assert diff["totals"]["held"]["change_bytes"] == 700
    assert [(row["stack"], row["held"]["change_bytes"]) for row in diff["stacks"]] == [
        ("main > fill()", 700),
        ("main", 0),
    ]


def test_the_verb(run):
    path = str(golden.DATA / golden.NATIVE)
    assert "1 allocation of 8.00 KiB" in run("show", path)  # its only tensor
    text = run("show", path, "--only", "both")
    for part in (
        "Never freed: 215 KiB",
        "Peak: 4.11 MiB live after 50.0 ms",
        "asked for by main (server.cc:40)",
        "Churn: ",
    ):
        assert part in text
    text = run("show", path, "--only", "both", "--all")
    for part in ("at the peak, after 50.0 ms", "held then, by library", "never freed: 11 objects", "why "):
        assert part in text
    assert json.loads(run("show", path, "--only", "both", "--json"))["native"]["moment"]["count"] == 12
    at = json.loads(run("show", path, "--only", "both", "--json", "--at", "5ms"))
    assert at["native"]["moment"]["time_ns"] == 5_000_000 and not at["native"]["moment"]["is_peak"]
    assert json.loads(run("show", path, "--json", "--only", "tensors"))["allocations"]["count"] == 1
    same = json.loads(run("show", "--diff", path, path, "--only", "both", "--json"))
    assert same["totals"]["held"]["change_bytes"] == 0 and same["stacks"]
    assert "live at the peak" in run("show", "--diff", path, path)
    assert "the recording has ended" in run("show", "--follow", path)
    assert json.loads(run("show", "--follow", path, "--json"))["complete"]
    assert "--at soon: not a time" in run("show", path, "--at", "soon", code=2)
    assert "--diff compares two traces; 1 is named" in run("show", "--diff", path, code=2)
    assert "one file at a time" in run("show", path, path, code=2)
    small = str(golden.DATA / golden.SMALL)
    assert "mallocs" in run("show", small, "--only", "malloc", code=2)


def test_the_other_verbs_take_a_native_program(run, tmp_path):
    path = str(golden.DATA / golden.NATIVE)
    assert "73 buffers" in run("plan", path, "--only", "both", "-o", str(tmp_path / "x.plan"))
    assert "1 buffers" in run("plan", path, "-f", "-o", str(tmp_path / "x.plan"))  # its only tensor
    run("simulate", path, "--policy", "span")
    run("export", path, "--only", "both", "--to", "chrome", "-o", str(tmp_path / "x.json"))
    assert (tmp_path / "x.json").stat().st_size > 1000


def test_durations():
    assert [read_duration(text) for text in ("12.5s", "3", "250ms", "2 min", "1h", "7us", "9ns")] == [
        12_500_000_000,
        3_000_000_000,
        250_000_000,
        120_000_000_000,
        3_600_000_000_000,
        7_000,
        9,
    ]
    assert read_duration("soon") is None and read_duration("5 weeks") is None
