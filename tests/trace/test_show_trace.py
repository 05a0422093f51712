# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.trace`: the numbers, the text, the picture, and what it says of bad files."""

from __future__ import annotations

import json
import re
import struct

import golden_trace as golden
import numpy as np
import pytest
from memoir._core import Error, EventKind, Trace, TraceWriter
from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.cli.parts.show_trace import show_trace
from memoir.views.terminal_plot import area, squeezed
from memoir.views.trace_summary import summarize


def trace_of(write) -> Trace:
    writer = TraceWriter()
    write(writer)
    writer.close()
    return Trace.from_bytes(writer.bytes())


@pytest.mark.parametrize("name", golden.GOLDEN)
def test_golden(name, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert golden.shown(name, json=True) == (golden.DATA / f"{name}.json").read_text()
    assert golden.shown(name, json=False) == (golden.DATA / f"{name}.txt").read_text(encoding="utf-8")


def test_the_writer_of_today_writes_what_the_golden_file_holds():
    """All but the times."""
    old = Trace.open(golden.DATA / golden.SMALL)
    new = Trace.from_bytes(golden.write_small(None).bytes())
    fields = [name for name in old.events.dtype.names if name != "time"]
    assert (old.events[fields] == new.events[fields]).all()
    assert {key: old.meta(key) for key in old.meta_keys()} == {key: new.meta(key) for key in new.meta_keys()}
    assert old.complete and new.complete


def test_the_small_trace_by_hand():
    summary = summarize(Trace.from_bytes(golden.write_small(None, devices=False).bytes()))
    assert summary["allocations"] == {"count": 9, "bytes": 2 * (4096 + 100 + 2048 + 1_000_000)}
    assert summary["never_freed"] == {"count": 2, "bytes": 1_000_000}
    assert summary["freed_on_another_thread"]["count"] == 4
    assert summary["threads"] == 2
    first, second = summary["passes"]
    for row in (first, second):
        assert row["allocations"] == {"count": 4, "bytes": 4096 + 100 + 2048 + 1_000_000}
        assert row["escaping"] == {"count": 1, "bytes": 1_000_000}
        assert row["other_threads"] == {"allocations": 1, "frees": 1}
        assert row["peak_bytes"] == 100 + 2048 + 1_000_000
    assert summary["peak"]["bytes"] == 100 + 2048 + 1_000_000
    assert summary["peak"]["objects"] == 3
    assert summary["graph"]["bytes"] == {"graph": 6144, "recorded": 1_006_244, "ratio": 6144 / 1_006_244}
    assert summary["outermost_operators"][0] == {
        "operator": "aten::relu \u2265 0\n",
        "count": 4,
        "bytes": 2_004_096,
    }
    assert [row["chain"] for row in summary["chains"]] == [
        "aten::relu \u2265 0\n",
        "aten::linear > aten::empty",
        "aten::linear",
        "(unknown)",
    ]


def test_devices_of_the_small_trace_by_hand():
    summary = summarize(Trace.open(golden.DATA / golden.SMALL))
    host, first, second = summary["devices"]
    assert [row["device"] for row in (host, first, second)] == [0, 1, 2]
    assert host["allocations"]["count"] == 9 and host["streams"] == [0] and not any(host["segments"].values())
    assert host["peak_live_bytes"] == 100 + 2048 + 1_000_000 and host["peak_reserved_bytes"] is None
    assert first["streams"] == [0, 3] and first["allocations"] == {"count": 2, "bytes": 1_600_000}
    assert first["peak_live_bytes"] == 1_600_000 and first["peak_reserved_bytes"] == 2 << 20
    assert first["segments"]["segment_allocate"] == first["segments"]["segment_free"] == 1
    (failed,) = first["out_of_memory"]
    assert failed["asked_bytes"] == 1 << 40 and failed["free_bytes"] == 12 << 30
    assert failed["live_bytes"] == 1_600_000 and failed["reserved_bytes"] == 2 << 20
    assert second["peak_reserved_bytes"] == 40 << 20
    assert second["segments"]["segment_map"] == second["segments"]["segment_unmap"] == 1
    host_only = golden.write_small(None, devices=False).bytes()
    assert summarize(Trace.from_bytes(host_only))["devices"] == []


def test_random_traces_against_a_plain_loop():
    random = np.random.default_rng(1)
    for _ in range(20):
        writer, live, running, objects, number = TraceWriter(), {}, [], 0, 0
        load, peak, freed, elsewhere = 0, 0, 0, 0
        made = {}  # pass -> objects
        for _ in range(300):
            thread = int(random.integers(3))
            dice = random.integers(20)
            if dice == 0 and len(running) < 1:
                writer.pass_begin(number, thread)
                running.append((number, thread))
                made[number] = []
                number += 1
            elif dice == 1 and running:
                writer.pass_end(*running.pop())
            elif dice < 12 or not live:
                size = int(random.integers(5)) * 1000
                writer.allocate(objects, 1 + size, size, thread=thread)
                live[objects] = (size, thread)
                if running:
                    made[running[0][0]].append(objects)
                load, objects = load + size, objects + 1
                peak = max(peak, load)
            else:
                name = list(live)[int(random.integers(len(live)))]
                size, owner = live.pop(name)
                writer.free(name, thread)
                load, freed, elsewhere = load - size, freed + 1, elsewhere + (owner != thread)
        summary = summarize(Trace.from_bytes(writer.bytes()), points=17)
        assert summary["allocations"]["count"] == objects
        assert summary["frees"]["count"] == freed
        assert summary["peak"]["bytes"] == peak == max(summary["load_curve"]["bytes"])
        assert summary["never_freed"] == {"count": len(live), "bytes": load}
        assert summary["freed_on_another_thread"]["count"] == elsewhere
        assert sum(row["count"] for row in summary["lifetimes"]) == objects
        assert [row["allocations"]["count"] for row in summary["passes"]] == [
            len(row) for row in made.values()
        ]
        assert sum(row["count"] for row in summary["chains"]) == objects


def test_passes_of_two_threads_at_once_and_one_inside_another():
    def write(writer):
        writer.pass_begin(1, 0)
        writer.pass_begin(2, 1)
        writer.allocate(1, 0, 10, thread=0)
        writer.allocate(2, 0, 20, thread=1)
        writer.allocate(3, 0, 40, thread=2)  # of which? of none
        writer.pass_end(2, 1)
        writer.allocate(4, 0, 80, thread=2)  # of the only one that runs
        writer.pass_begin(3, 0)  # re-entered
        writer.allocate(5, 0, 160, thread=0)
        writer.pass_end(3, 0)
        writer.allocate(6, 0, 320, thread=0)

    passes = summarize(trace_of(write))["passes"]
    assert [row["allocations"]["bytes"] for row in passes] == [10 + 80 + 320, 20, 160]
    assert [row["ended"] for row in passes] == [False, True, True]
    assert passes[0]["escaping"] is None
    assert passes[0]["other_threads"]["allocations"] == 1


def test_a_trace_of_nothing(tmp_path, capsys):
    TraceWriter(tmp_path / "empty.trace").close()
    show_trace(str(tmp_path / "empty.trace"), output=str(tmp_path / "load.png"), json=False, force=False)
    text = capsys.readouterr().out
    assert "no allocations" in text and "next:" not in text
    assert json.loads(json.dumps(summarize(trace_of(lambda writer: None))))["passes"] == []


def test_the_last_value_of_a_picture_is_drawn(tmp_path, capsys):
    """Even where it is the only one."""
    writer = TraceWriter(tmp_path / "one.trace")
    writer.allocate(1, 7, 5 << 20)
    writer.close()
    show_trace(str(tmp_path / "one.trace"), output=str(tmp_path / "load.svg"), json=False, force=False)
    assert "5.00 MiB |\u2588\u2588" in capsys.readouterr().out
    text = (tmp_path / "load.svg").read_text()
    (area,) = re.findall(r'PolyCollection_1">.*?\sd="([^"]*)"', text, re.DOTALL)
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] (\S+) (\S+)", area)]
    for axis in (0, 1):
        assert max(point[axis] for point in points) - min(point[axis] for point in points) > 100


def test_pictures(tmp_path, capsys):
    path = str(golden.DATA / "resnet18.trace")
    for name, magic in (("load.png", b"\x89PNG"), ("load.svg", b"<?xml"), ("load.pdf", b"%PDF")):
        show_trace(path, output=str(tmp_path / name), json=True, force=False)
        assert (tmp_path / name).read_bytes().startswith(magic)
    captured = capsys.readouterr()
    assert captured.err.count("wrote") == 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["load.pdf", "load.png", "load.svg"]
    with pytest.raises(Error, match="load.png exists already; pass -f"):
        show_trace(path, output=str(tmp_path / "load.png"), json=False, force=False)
    (tmp_path / "load.png").write_text("old")
    show_trace(path, output=str(tmp_path / "load.png"), json=False, force=True)
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(Error, match=r"load.bmp: .*\.png"):
        show_trace(path, output=str(tmp_path / "load.bmp"), json=False, force=False)
    with pytest.raises(Error, match="there is no folder .*missing; make it first"):
        show_trace(path, output=str(tmp_path / "missing/load.png"), json=False, force=False)


def test_what_was_lost_is_said(tmp_path, capsys):
    whole = (golden.DATA / golden.SMALL).read_bytes()
    (tmp_path / "cut.trace").write_bytes(whole[:-100])
    show_trace(str(tmp_path / "cut.trace"), output=None, json=False, force=False)
    assert "102 bytes of records are known to be lost" in capsys.readouterr().out
    dropped = whole[:48] + struct.pack("<Q", 7) + whole[56:]
    (tmp_path / "dropped.trace").write_bytes(dropped)
    show_trace(str(tmp_path / "dropped.trace"), output=None, json=False, force=False)
    assert "7 records were dropped" in capsys.readouterr().out
    show_trace(str(tmp_path / "cut.trace"), output=None, json=True, force=False)
    assert json.loads(capsys.readouterr().out)["complete"] is False


def test_bad_files_get_one_error_and_no_picture(tmp_path):
    bad = tmp_path / "bad.trace"
    whole = (golden.DATA / golden.SMALL).read_bytes()
    for content, why in (
        (b"", "the file is empty"),
        (
            b"id,lower,upper,size\n1,2,3,4\n",
            "not a trace: its name promises a trace, but it begins with the text",
        ),
        (whole[:40], "ends after 40 bytes"),
        (whole[:8] + b"\x09" + whole[9:], "trace format version 9, but this memoir reads version 1"),
        (whole[:80] + b"\xff" + whole[81:], r"block 0 \(byte 64\): the checksum does not match"),
    ):
        bad.write_bytes(content)
        with pytest.raises(Error, match=why) as caught:
            show_trace(str(bad), output=str(tmp_path / "load.png"), json=False, force=False)
        assert str(bad) in str(caught.value)
    with pytest.raises(Error, match="Is a directory"):
        show_trace(str(tmp_path), output=None, json=False, force=False)
    assert [file.name for file in tmp_path.iterdir()] == ["bad.trace"]


def test_events_are_a_read_only_view_that_keeps_its_trace_alive():
    events = trace_of(lambda writer: [writer.allocate(n, 0, n) for n in range(1000)]).events
    assert not events.flags.writeable and not events.flags.owndata
    assert events.dtype.itemsize == 56
    assert (events["size"] == np.arange(1000)).all()
    assert set(events["kind"]) == {int(EventKind.kAllocate)}


def test_quantities():
    assert [bytes_text(n) for n in (0, 999, 1000, 1536, 1 << 20, 10.4 * (1 << 30))] == [
        "0 B",
        "999 B",
        "0.98 KiB",
        "1.50 KiB",
        "1.00 MiB",
        "10.4 GiB",
    ]
    assert [duration_text(n) for n in (0, 999, 1500, 2e6, 123e9)] == [
        "0 ns",
        "999 ns",
        "1.50 us",
        "2.00 ms",
        "123 s",
    ]
    assert printable("a\x1b[31m\n\u2265") == "a\\x1b[31m\\n\u2265"


def test_the_plot_of_characters():
    assert area([0, 4, 8], height=2) == ["  █", " ██"]
    assert area([0, 4, 8], height=2, ascii_only=True) == ["  #", " ##"]
    assert area([], height=1) == [""]
    assert area([0, 0], height=1) == ["  "]
    assert squeezed([1, 9, 2, 3], 2) == [9, 3]
    assert squeezed([1, 2], 5) == [1, 2]
