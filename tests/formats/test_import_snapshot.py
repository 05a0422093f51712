# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch memory snapshot becomes: by hand, and of real ones next to what others read out of them."""

from __future__ import annotations

import json
import pickle
import pickletools
from pathlib import Path

import pytest
from memoir._core import (
    Error,
    EventKind,
    Trace,
    TraceWriter,
    export_trace_bytes,
    import_snapshot,
    import_snapshot_bytes,
)
from snapshots import (
    BASE,
    LINEAR,
    MAIN,
    MIB,
    RELU,
    T0,
    annotation,
    block,
    entry,
    frame,
    imported,
    oom,
    rows,
    segment,
    snapshot,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "gpu-traces"


def flow(trace: Trace, *skipped: str) -> list[tuple]:
    return [row[:4] for row in rows(trace) if row[1] not in skipped]


def test_an_allocation_and_its_free():
    trace = imported(
        snapshot(
            [
                entry("segment_alloc", BASE, 2 * MIB, 0, frames=[LINEAR, MAIN]),
                entry("alloc", BASE + 512, 700, 1, frames=[LINEAR, MAIN]),
                entry("free_requested", BASE + 512, 700, 5, frames=[RELU, MAIN]),
                entry("free_completed", BASE + 512, 700, 6),
                entry("snapshot", 0, 0, 7),
            ],
            segments=[segment(BASE, 2 * MIB)],
        )
    )
    linear = "/srv/train.py:9 <module> > /srv/model.py:54 forward"
    assert rows(trace, sites=True) == [
        (1, "SegmentAllocate", BASE, 2 * MIB, 0, 0, linear),
        (2, "Allocate", 1, 700, 0, 0, linear),
        (2, "Address", 1, BASE + 512, 0, 0, ""),
        (7, "Free", 1, 0, 0, 0, "/srv/train.py:9 <module> > C:\\model files\\act.py:7 forward"),
    ]
    assert trace.start == (T0 - 1) * 1000 and trace.complete and trace.version == 1
    assert trace.meta("source") == "torch snapshot"
    assert json.loads(trace.meta("torch_settings")) == {"max_split_size": -1, "expandable_segments": False}


@pytest.mark.parametrize("spelling", ["active_pending_free", "active_awaiting_free"])
def test_what_was_live_before_comes_from_the_segments(spelling):
    trace = imported(
        snapshot(
            [
                entry("free_requested", BASE, 100, 0, stream=7),
                entry("alloc", BASE + 4096, 512, 1),
                entry("free_completed", BASE, 100, 2, stream=7),
                entry("free_completed", BASE + 8192, 300, 3),
            ],
            segments=[
                segment(
                    BASE,
                    2 * MIB,
                    [
                        block(BASE, 4096, "inactive"),
                        block(BASE + 4096, 512),
                        block(BASE + 8192 + 512, 1024, spelling, 1000),
                        block(BASE + MIB, 2048, frames=[LINEAR]),
                    ],
                )
            ],
        )
    )
    assert rows(trace) == [
        (0, "SegmentAllocate", BASE, 2 * MIB, 0, 0),
        (0, "Allocate", 1, 100, 0, 1),  # known by its free alone, as is object 2
        (0, "Address", 1, BASE, 0, 1),
        (0, "Allocate", 2, 300, 0, 0),
        (0, "Address", 2, BASE + 8192, 0, 0),
        (0, "FreeRequested", 2, 0, 0, 0),  # since its free_completed was recorded, but no free_requested
        (0, "Allocate", 3, 1000, 0, 0),
        (0, "Address", 3, BASE + 8192 + 512, 0, 0),
        (0, "FreeRequested", 3, 0, 0, 0),
        (0, "Allocate", 4, 2048, 0, 0),
        (0, "Address", 4, BASE + MIB, 0, 0),
        (1, "FreeRequested", 1, 0, 0, 1),
        (2, "Allocate", 5, 512, 0, 0),
        (2, "Address", 5, BASE + 4096, 0, 0),
        (3, "Free", 1, 0, 0, 1),
        (4, "Free", 2, 0, 0, 0),
    ]
    assert trace.meta("streams") == "0,7"
    assert (
        trace.site_chain(int(trace.events[trace.events["object"] == 4]["site"][0]))
        == "/srv/model.py:54 forward"
    )


def test_segments_are_undone():
    """At the end: 40 MiB mapped at BASE and one segment; at the beginning: 60 MiB mapped, and another segment."""
    trace = imported(
        snapshot(
            [
                entry("segment_free", BASE + 512 * MIB, 4 * MIB, 0),
                entry("segment_unmap", BASE + 40 * MIB, 20 * MIB, 1),
                entry("segment_map", BASE + 20 * MIB, 20 * MIB, 2),
                entry("segment_unmap", BASE + 20 * MIB, 20 * MIB, 3),
                entry("segment_map", BASE + 20 * MIB, 20 * MIB, 4),
                entry("segment_alloc", BASE + 600 * MIB, 2 * MIB, 5),
            ],
            segments=[segment(BASE, 40 * MIB, expandable=True), segment(BASE + 600 * MIB, 2 * MIB)],
        )
    )
    assert [row for row in flow(trace) if row[0] == 0] == [
        (0, "SegmentMap", BASE, 20 * MIB),
        (0, "SegmentMap", BASE + 40 * MIB, 20 * MIB),
        (0, "SegmentAllocate", BASE + 512 * MIB, 4 * MIB),
    ]
    assert [row[1] for row in flow(trace) if row[0]] == [
        "SegmentFree",
        "SegmentUnmap",
        "SegmentMap",
        "SegmentUnmap",
        "SegmentMap",
        "SegmentAllocate",
    ]


def test_devices_streams_passes_and_failures_in_one_order():
    trace = imported(
        snapshot(
            [
                entry("alloc", BASE, 512, 10, stream=2**47),
                entry("free_requested", BASE, 512, 30, stream=2**47),
            ],
            [],
            [entry("alloc", BASE, 512, 20, stream=-3), oom(2**60, 5 * MIB, 20, stream=2**47, frames=[MAIN])],
            annotations=[
                annotation("END", "ProfilerStep#6", 5),
                annotation("START", "ProfilerStep#7", 10),
                annotation("START", "Optimizer.step#Adam.step", 12),
                annotation("END", "Optimizer.step#Adam.step", 13),
                annotation("END", "ProfilerStep#7", 25),
                annotation("START", "ProfilerStep#8", 25),
            ],
        )
    )
    assert rows(trace) == [
        (6, "PassBegin", 7, 0, 0, 0),
        (6, "Allocate", 1, 512, 0, 1),
        (6, "Address", 1, BASE, 0, 1),
        (16, "Allocate", 2, 512, 2, 2),
        (16, "Address", 2, BASE, 2, 2),
        (16, "OutOfMemory", 5 * MIB, 2**60, 2, 1),
        (21, "PassEnd", 7, 0, 0, 0),
        (21, "PassBegin", 8, 0, 0, 0),
        (26, "FreeRequested", 1, 0, 0, 1),
    ]
    assert trace.meta("streams") == f"0,{2**47},{2**64 - 3}"
    others = imported(
        snapshot([], annotations=[annotation("START", "Optimizer.step#Adam.step", 12)]), passes="Opt"
    )
    assert rows(others) == [(1, "PassBegin", 0, 0, 0, 0)]


def test_frames_of_the_recorder_and_unknown_files():
    frames = [
        frame("torch::unwind::unwind()"),
        frame("torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp"),
        frame("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)", ""),
        frame("at::native::empty(x)", "", 0),
        frame("f", "a.cpp", 0),
        MAIN,
    ]
    trace = imported(snapshot([entry("alloc", BASE, 1, 0, frames=frames)]))
    assert rows(trace, sites=True)[0][-1] == "/srv/train.py:9 <module> > a.cpp:0 f > at::native::empty(x)"


def test_gaps_in_a_history():
    """Recording was stopped and resumed: a free is missing, a block was made after the end."""
    trace = imported(
        snapshot(
            [
                entry("alloc", BASE, 512, 0),
                entry("alloc", BASE, 1024, 5),
                entry("free_requested", BASE, 1024, 6),
                entry("free_completed", BASE, 1024, 6),
                entry("alloc", BASE + MIB, 4096, 4),  # and a clock that goes back
                entry("user_defined", 0, 0, 9),
            ],
            segments=[segment(BASE, 2 * MIB, [block(BASE, 512), block(BASE + MIB + 512, 512)])],
        )
    )
    assert flow(trace, "Address", "SegmentAllocate") == [
        (1, "Allocate", 1, 512),
        (6, "Free", 1, 0),
        (6, "Allocate", 2, 1024),
        (7, "Free", 2, 0),
        (7, "Allocate", 3, 4096),
    ]


def test_objects_never_overlap():
    """Where a second one reaches into the first, the first was freed unseen; then it cannot be freed once more."""
    first, second = entry("alloc", BASE, 4096, 0), entry("alloc", BASE + 512, 8192, 5)
    third = entry("alloc", BASE + 512 + 8192, 512, 6)  # touches, and no more
    assert flow(imported(snapshot([first, second, third])), "Address") == [
        (1, "Allocate", 1, 4096),
        (6, "Free", 1, 0),
        (6, "Allocate", 2, 8192),
        (7, "Allocate", 3, 512),
    ]
    again = entry("free_completed", BASE, 4096, 7)
    refused(
        snapshot([first, second, again]), r"\[2\]\.addr .* frees 0x7f0000000000, which .*\[1\] freed already"
    )
    # The same of one from before the history, of which the free alone is left.
    refused(
        snapshot([second, again]),
        r"\[1\]\.addr .* frees 0x7f0000000000, where something else was allocated before",
    )
    pending = entry("free_requested", BASE, 4096, 7)
    refused(snapshot([second, pending]), r"\[1\]\.addr .* where something else was allocated before")


def test_older_structures():
    old = [  # torch 2.0: no addresses of blocks, the request in a history; no times
        {
            **segment(BASE, 2 * MIB),
            "blocks": [
                {"size": 512, "state": "inactive"},
                {
                    "size": 1024,
                    "state": "active_allocated",
                    "history": [{"addr": 1, "real_size": 700, "frames": [MAIN]}],
                },
            ],
        }
    ]
    before = [(0, "SegmentAllocate", BASE, 2 * MIB), (0, "Allocate", 1, 700), (0, "Address", 1, BASE + 512)]
    assert flow(imported(old)) == before  # torch.cuda.memory_snapshot() gives the list alone
    first, second = entry("alloc", BASE, 8, 0), entry("alloc", BASE + 1536, 8, 0)
    del first["time_us"], second["time_us"]
    trace = imported({"segments": old, "device_traces": [[first, second]]})
    assert [row for row in flow(trace) if row[0] == 0] == before
    assert [row[0] for row in flow(trace, "Address") if row[0]] == [1, 2]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("form", ["plain", "optimized", "pure Python"])
def test_every_protocol(protocol, form):
    deep = [frame(f"f{i}", "deep.py", i) for i in range(2500)]  # more than one batch of a pickle
    many = [entry("alloc", BASE + 512 * i, 300 + i, i, frames=[LINEAR, MAIN]) for i in range(2500)]
    many.append(entry("alloc", BASE + 2**40, 2**33, 3000, frames=deep))
    content = snapshot(many, settings={"a": [1.5, None, True, -7, {"b": (1, 2)}], "c": "\u00e9\n"})
    data = (pickle._dumps if form == "pure Python" else pickle.dumps)(content, protocol=protocol)
    if form == "optimized":
        data = pickletools.optimize(data)
    trace = imported(data)
    assert (trace.events["kind"] == EventKind.kAllocate).sum() == 2501
    assert json.loads(trace.meta("torch_settings")) == {
        "a": [1.5, None, True, -7, {"b": [1, 2]}],
        "c": "\u00e9\n",
    }
    chain = rows(trace, sites=True)[-2][-1]
    assert chain.startswith("deep.py:2499 f2499 > ") and chain.endswith("> deep.py:0 f0")
    assert import_snapshot_bytes(data) == import_snapshot_bytes(pickle.dumps(content, protocol=4))


@pytest.mark.parametrize("name", ["magma27_cs336", "silmont_fwd_fp32_128"])
def test_real_snapshots_beside_another_reader(name):
    """The same segments, objects, sizes, streams, addresses and order as the text traces say."""
    path, text = SHARED / "snapshots" / f"{name}.pickle", SHARED / "public" / f"{name}.d0.trace"
    if not path.exists():
        pytest.skip("the shared snapshots are not here")
    trace = imported(path.read_bytes())
    address = {row[2]: row[3] for row in rows(trace) if row[1] == "Address"}
    segments, before, history, number = [], [], [], {}
    for time, kind, thing, size, device, stream in rows(trace):
        assert device == 0
        if kind == "SegmentAllocate":
            segments.append(("s", thing, size))
        elif kind == "Allocate":
            number[thing] = len(number)
            row = (number[thing], size, stream, address[thing])
            before.append(("i", *row)) if time == 0 else history.append(("a", *row))
        elif kind == "Free":
            history.append(("f", number[thing]))
        else:
            assert kind == "Address"
    lines = [line.split() for line in text.read_text().splitlines() if line[0] not in "#b"]
    wanted = [(line[0], *map(int, line[1:])) for line in lines]
    assert segments + before == [row for row in wanted if row[0] in "si"]
    assert history == [row for row in wanted if row[0] not in "si"]


def test_a_snapshot_without_history():
    path = SHARED / "snapshots" / "muduard_d.pickle"
    if not path.exists():
        pytest.skip("the shared snapshots are not here")
    trace = imported(path.read_bytes())
    assert len(trace.events) == 1 + 368 + 2 * 2175  # one meta
    assert set(trace.events["time"].tolist()) == {0}


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch evil",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("what", [Evil(), EventKind.kFree, {1, 2}, Path("x"), bytearray(b"x"), 1j])
def test_a_pickle_that_would_run_something_runs_nothing(tmp_path, monkeypatch, protocol, what):
    monkeypatch.chdir(tmp_path)
    hidden = snapshot([entry("alloc", BASE, 512, 0, user_metadata=what)])
    with pytest.raises(
        Error, match=r"^x.pickle: byte \d+: the opcode \w+ .*(would run code|no memory snapshot holds)"
    ):
        imported(hidden, protocol)
    assert list(tmp_path.iterdir()) == []


def refused(content, why: str) -> None:
    with pytest.raises(Error, match=why) as caught:
        imported(content)
    assert str(caught.value).startswith("x.pickle: ") and "\n" not in str(caught.value)


def test_bad_fields_are_named_by_path_and_byte():
    ok = entry("alloc", BASE, 512, 0)

    def with_entry(**fields):
        return snapshot([ok], [ok, ok | {"addr": BASE + MIB}, ok | {"addr": BASE + 2 * MIB} | fields])

    refused(
        with_entry(size=2**63),
        r"device_traces\[1\]\[2\]\.size \(byte \d+\) is 9223372036854775808 bytes, over 2\^56",
    )
    refused(with_entry(size=2**70), r"device_traces\[1\]\[2\]\.size \(byte \d+\) is 2\^64 or more")
    refused(with_entry(size=-1), r"\.size \(byte \d+\) is negative")
    refused(with_entry(size="1"), r"\.size \(byte \d+\) is not an integer")
    refused(with_entry(size=True), r"\.size \(byte \d+\) is not an integer")
    refused(
        with_entry(addr=2**64 - 1),
        r"\.addr \(byte \d+\) is 18446744073709551615, so that it ends beyond 2\^63",
    )
    refused(with_entry(stream=None), r"\.stream \(byte \d+\) is not an integer")
    for pool in (3, (1,), (0, 1, 2), [0, 1], None):
        refused(with_entry(pool_id=pool), r"\.pool_id \(byte \d+\) is not a pair of numbers")
    pools = [entry("alloc", BASE + 512 * i, 512, i, pool_id=(i, 0)) for i in range(4096)]
    assert imported(snapshot(pools[:-1])).complete
    refused(
        snapshot(pools), r"\[4095\]\.pool_id \(byte \d+\) is one of more than 2\^20 streams, or of more than"
    )
    refused(with_entry(pool_id=(0, -1)), r"\.pool_id \(byte \d+\) is negative")
    refused(with_entry(pool_id=(2**64, 0)), r"\.pool_id \(byte \d+\) is 2\^64 or more")
    refused(with_entry(pool_id=(0, "1")), r"\.pool_id \(byte \d+\) is not an integer")
    refused(with_entry(action=4), r"\.action \(byte \d+\) is not text")
    missing = {key: value for key, value in ok.items() if key != "size"}
    refused(snapshot([missing]), r"device_traces\[0\]\[0\]\.size \(byte \d+\) is missing")
    refused(snapshot([ok, 7]), r"device_traces\[0\]\[1\] is not a dict with an action")
    refused(
        snapshot([oom(2**64 - 1, 0, 0)]), r"\.size \(byte \d+\) is 18446744073709551615 bytes, over 2\^63"
    )
    refused(snapshot(7), r"device_traces\[0\] is not a list")
    held = segment(BASE, MIB)
    refused(
        snapshot(segments=[held, held | {"total_size": 2**63}]),
        r"segments\[1\]\.total_size \(byte \d+\) is 922",
    )
    refused(
        snapshot(segments=[held, held | {"segment_pool_id": (0, -1)}]),
        r"segments\[1\]\.segment_pool_id is negative",
    )
    refused(snapshot(segments=[{"device": 0}]), r"segments\[0\]\.address \(byte \d+\) is missing")
    refused(
        snapshot(segments=[held | {"device": 70000}]),
        r"segments\[0\]\.device \(byte \d+\) is 70000, over 65535",
    )
    outside = held | {"blocks": [block(BASE, 2 * MIB)]}
    refused(
        snapshot(segments=[outside]),
        r"segments\[0\]\.blocks\[0\] \(byte \d+\) of 2097152 bytes .* not lie in its",
    )
    refused(
        snapshot(segments=[held | {"blocks": [5]}]), r"segments\[0\]\.blocks\[0\] is not a dict with a state"
    )


UNREADABLE = (2**64 - 1, 2**64, -1, 2**200, "1", 1.5, None, True, [], {}, (1, 2), b"x")


def test_what_no_answer_depends_on_costs_no_file(tmp_path):
    """A line, a name, a time, an annotation, the settings: whatever they are, every request is there."""
    cycle = {}
    cycle["me"] = cycle
    good = [entry("alloc", BASE, 512, 0, frames=[MAIN]), entry("free_completed", BASE, 512, 1)]
    told = [row[1:] for row in flow(imported(snapshot(good)))]
    contents = [
        *(
            snapshot([good[0] | {"frames": [MAIN | {key: value}, MAIN]}, good[1]])
            for value in UNREADABLE
            for key in ("line", "name", "filename")
        ),
        *(snapshot([good[0], good[1] | {"time_us": value}]) for value in UNREADABLE),
        *(snapshot([good[0] | {"frames": value}, good[1]]) for value in (*UNREADABLE, [1], [MAIN, 7, MAIN])),
        *(snapshot(good) | {"external_annotations": value} for value in UNREADABLE),
        *(
            snapshot(good, annotations=[{"stage": "START", "name": "a", "time_us": 1} | {key: value}])
            for value in UNREADABLE
            for key in ("stage", "name", "time_us")
        ),
        *(snapshot(good, annotations=[value]) for value in UNREADABLE),
        *(snapshot(good, settings=value) for value in (cycle, "x", 7, None)),
        snapshot(good, segments=[segment(BASE + MIB, MIB) | {"frames": 7}]),
    ]
    for content in contents:
        assert [row[1:] for row in flow(imported(content), "SegmentAllocate")] == told, content
    (tmp_path / "x.pickle").write_bytes(
        pickle.dumps(snapshot([good[0] | {"frames": [MAIN | {"line": 2**64 - 1}]}]))
    )
    assert import_snapshot(str(tmp_path / "x.pickle"), str(tmp_path / "x.trace")).unreadable == 1


def test_frees_that_cannot_be():
    allocated = entry("alloc", BASE, 512, 0)
    freed = [entry("free_requested", BASE, 512, 1), entry("free_completed", BASE, 512, 1)]
    held = [segment(BASE, MIB)]
    refused(
        snapshot([allocated, *freed, *(dict(row) for row in freed)], segments=held),
        r"device_traces\[0\]\[3\]\.addr \(byte \d+\) frees 0x7f0000000000, which device_traces\[0\]\[2\] freed already",
    )
    stray = entry("free_requested", BASE + 2 * MIB, 512, 1)
    refused(
        snapshot([allocated, stray], segments=held), r"\[1\]\.addr .* nothing allocated and no segment held"
    )
    assert flow(imported(snapshot([stray])))[0] == (0, "Allocate", 1, 512)  # with nothing known of segments
    gone = entry("segment_free", BASE + 2 * MIB, MIB, 2)
    assert (0, "Allocate", 1, 512) in flow(imported(snapshot([stray, gone], segments=held)))


def test_other_files():
    refused(b"", "the file is empty")
    refused(b"PK\x03\x04", "a zip archive")
    refused(b"id,lower\n", "not a pickle of protocol 2 to 5")
    refused(b"\x80\x09K\x01.", "a pickle of protocol 9")
    refused(pickle.dumps(7), "holds no dict: this is not a memory snapshot")
    refused(pickle.dumps({"model": {}, "epoch": 3}), "without segments and device_traces")
    refused(b"\x80\x04cos\nsystem\n.", r"byte 2: the opcode GLOBAL of os\.system would run code")
    refused(b"\x80\x04\xff.", "no pickle has the opcode 255")
    refused(b"\x80\x04K\x01K\x02.", "values left over")
    refused(b"\x80\x04e.", "too little on the stack")
    refused(b"\x80\x04h\x05.", "reads memo 5")
    refused(b"\x80\x04Nr\xff\xff\xff\xff.", "the memo jumps to 4294967295")
    refused(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc", "the file ends at byte 14")
    refused(b"\x80\x04K\x01}a.", "to what is not a list")


def test_truncated_anywhere():
    whole = pickle.dumps(
        snapshot(
            [entry("alloc", BASE, 512, 0, frames=[LINEAR, MAIN])],
            segments=[segment(BASE, MIB, [block(BASE, 512)])],
        ),
        protocol=4,
    )
    assert imported(whole).complete
    for size in range(2, len(whole)):
        with pytest.raises(Error, match=f"the file ends at byte {size}, in the middle of a value"):
            imported(whole[:size])


def test_lists_that_are_shared_do_not_multiply():
    one = [entry("alloc", BASE + 512 * i, 8, i) for i in range(100)]
    refused(snapshot(one, one), r"device_traces\[1\] holds entries that were there before")
    blocks = [block(BASE, 512)]
    first, second = segment(BASE, MIB), segment(BASE, MIB, device=1)
    first["blocks"] = second["blocks"] = blocks
    refused(snapshot(segments=[first, second]), r"segments\[1\]\.blocks holds blocks that were there before")


def test_an_address_given_again_before_its_free_was_done_comes_back_the_same():
    """Imported and exported once, a contradiction is settled: from then on nothing changes any more, streams included."""
    history = [
        entry("free_requested", BASE, 100, 1, stream=5, frames=[LINEAR, MAIN]),
        entry("snapshot", 0, 0, 1),
        entry("alloc", BASE, 512, 2, stream=0, frames=[RELU, MAIN]),
        entry("free_completed", BASE, 512, 3, stream=5),
    ]
    first = imported(snapshot(history, segments=[segment(BASE, 2 * MIB)]))
    second = import_snapshot_bytes(export_trace_bytes(first, "snapshot"))
    third = import_snapshot_bytes(export_trace_bytes(Trace.from_bytes(second), "snapshot"))
    assert second == third
    assert [row[1] for row in rows(first)][-4:] == ["Free", "Allocate", "Address", "Free"]


def test_a_free_outside_of_all_segments_of_the_history_cannot_be():
    history = [entry("segment_alloc", BASE, 2 * MIB, 0), entry("free_completed", BASE + 9 * MIB, 512, 1)]
    with pytest.raises(
        Error, match=r"device_traces\[0\]\[1\].addr .* no segment held when the history began"
    ):
        imported(snapshot(history))


def test_segments_at_one_address_are_refused():
    """As a hostile file has them by the thousand: no allocator was ever in such a state."""
    with pytest.raises(Error, match="segments holds two at 0x7f0000000000, of 2097152 and of 2097152 bytes"):
        imported(snapshot([], segments=[segment(BASE, 2 * MIB)] * 1000))
    imported(snapshot([], segments=[segment(BASE, 2 * MIB), segment(BASE, 2 * MIB, device=1)]))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            snapshot([], segments=[segment(BASE, 20 * MIB), segment(BASE + 2 * MIB, 2 * MIB)]),
            r"segments holds one of 2097152 bytes at 0x7f0000200000 inside the one of 20971520 bytes at 0x7f0000000000",
        ),
        (
            [segment(BASE, 20 * MIB), segment(BASE + MIB, 2 * MIB, expandable=True)],
            "segments holds one of 2097152 bytes at 0x7f0000100000 inside",
        ),
        (
            snapshot([], segments=[segment(BASE, 2 * MIB, [block(BASE + 512, 512), block(BASE, 1024)])]),
            r"segments holds a block of 512 bytes at 0x7f0000000200 \(byte \d+\) inside the one at 0x7f0000000000",
        ),
        (
            snapshot([entry("segment_alloc", BASE, 2 * MIB, at) for at in range(1000)]),
            r"device_traces\[0\]\[1\].addr .* gets 2097152 bytes at 0x7f0000000000, of which device_traces\[0\]\[0\]",
        ),
        (
            snapshot(
                [entry("segment_map", BASE, 4 * MIB, 0), entry("segment_alloc", BASE + MIB, 2 * MIB, 1)]
            ),
            r"device_traces\[0\]\[1\].addr .* of which device_traces\[0\]\[0\] got some",
        ),
    ],
)
def test_a_byte_is_in_one_place(content, why):
    refused(content, why)


def test_segments_that_come_again_after_they_went():
    history = [
        entry("segment_map", BASE, 4 * MIB, 0),
        entry("segment_unmap", BASE + MIB, 2 * MIB, 1),
        entry("segment_map", BASE + MIB, MIB, 2),
        entry("segment_alloc", BASE + 20 * MIB, 2 * MIB, 3),
        entry("segment_free", BASE + 20 * MIB, 2 * MIB, 4),
        entry("segment_alloc", BASE + 20 * MIB, 4 * MIB, 5),
    ]
    assert len(rows(imported(snapshot(history)))) == len(history)


def test_a_byte_that_is_in_two_segments_is_exported_once():
    """As a .trace may have it."""
    writer = TraceWriter()
    writer.set_time(1000)
    writer.segment(EventKind.kSegmentMap, BASE, 20 * MIB)
    writer.segment(EventKind.kSegmentAllocate, BASE, 2 * MIB)
    writer.segment(EventKind.kSegmentAllocate, BASE + MIB, 2 * MIB)
    writer.close()
    exported = pickle.loads(export_trace_bytes(Trace.from_bytes(writer.bytes()), "snapshot"))
    held = [(one["address"], one["total_size"]) for one in exported["segments"]]
    assert held == [(BASE, 2 * MIB), (BASE + 2 * MIB, 18 * MIB)]
    imported({**exported, "device_traces": []})
