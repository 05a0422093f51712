# SPDX-License-Identifier: Apache-2.0
"""Exports: read back, opened by PyTorch's own tools, and parsed by readers written for the test."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from memoir._core import (
    Error,
    EventKind,
    Trace,
    TraceWriter,
    child_site,
    export_trace_bytes,
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
    imported,
    oom,
    rows,
    segment,
    snapshot,
)

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[2].parent / "shared" / "gpu-traces" / "snapshots"

# What the viewer's own reader knows (MemoryViz.js, unpickle), by pickletools' names.
VIEWER = {
    "PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "SHORT_BINUNICODE", "BINUNICODE",
    "MEMOIZE", "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "NEWTRUE", "NEWFALSE", "NONE",
    "BINFLOAT", "TUPLE2", "STOP",
}  # fmt: skip


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise AssertionError(f"the export names {module}.{name}")


def exported(trace: Trace) -> dict:
    data = export_trace_bytes(trace, "snapshot")
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= VIEWER
    return Plain(io.BytesIO(data)).load()


def rich() -> Trace:
    """Two devices, three streams, what was there before, pending frees, passes, failures, expandable segments."""
    return imported(
        snapshot(
            [
                entry("free_requested", BASE, 100, 0, stream=7, frames=[RELU, MAIN]),
                entry("alloc", BASE + 4096, 512, 1, frames=[LINEAR, MAIN]),
                entry("free_completed", BASE, 100, 2, stream=7),
                entry("free_completed", BASE + 8192, 300, 3),
                entry("segment_alloc", BASE + 8 * MIB, 4 * MIB, 4, stream=-5, frames=[MAIN]),
                entry("alloc", BASE + 8 * MIB, 3 * MIB, 5, stream=-5, frames=[LINEAR, MAIN]),
                entry("free_requested", BASE + 8 * MIB, 3 * MIB, 6, stream=-5, frames=[MAIN]),
                entry("free_completed", BASE + 8 * MIB, 3 * MIB, 6, stream=-5),
                entry("segment_free", BASE + 8 * MIB, 4 * MIB, 7, stream=-5),
                oom(2**45, 3 * MIB, 8, frames=[RELU, MAIN]),
                entry("free_requested", BASE + 4096, 512, 9),
            ],
            [
                entry("segment_unmap", BASE + 40 * MIB, 20 * MIB, 1),
                entry("segment_map", BASE + 20 * MIB, 20 * MIB, 2),
                entry("alloc", BASE + 20 * MIB, 20 * MIB - 5, 2),
            ],
            segments=[
                segment(
                    BASE,
                    2 * MIB,
                    [
                        block(BASE + 4096, 512, "active_pending_free", frames=[LINEAR, MAIN]),
                        block(BASE + 8192 + 512, 1024, "active_awaiting_free", 1000),
                        block(BASE + MIB, 2048, frames=[LINEAR]),
                    ],
                ),
                segment(BASE, 40 * MIB, [block(BASE + 20 * MIB, 20 * MIB, requested=20 * MIB - 5)], device=1, expandable=True),
            ],
            annotations=[
                annotation("START", "ProfilerStep#3", 1),
                annotation("END", "ProfilerStep#3", 8),
                annotation("START", "ProfilerStep#4", 8),
            ],
            settings={"roundup_power2_divisions": {"1": 0}, "threshold": 0.8, "none": None, "list": [1, -2, 2**40]},
        )
    )  # fmt: skip


def test_import_of_an_export_of_an_import_is_the_same():
    first = rich()
    assert {int(kind) for kind in first.events["kind"]} == set(range(1, 14))
    again = import_snapshot_bytes(export_trace_bytes(first, "snapshot"))
    assert rows(Trace.from_bytes(again), sites=True) == rows(first, sites=True)
    once_more = import_snapshot_bytes(export_trace_bytes(Trace.from_bytes(again), "snapshot"))
    assert once_more == again
    for key in first.meta_keys():
        assert Trace.from_bytes(again).meta(key) == first.meta(key)


@pytest.mark.parametrize("name", ["magma27_cs336", "silmont_fwd_fp32_128", "muduard_d"])
def test_real_snapshots_come_back_the_same(name):
    path = SHARED / f"{name}.pickle"
    if not path.exists():
        pytest.skip("the shared snapshots are not here")
    first = import_snapshot_bytes(path.read_bytes())
    assert import_snapshot_bytes(export_trace_bytes(Trace.from_bytes(first), "snapshot")) == first


def random_trace(draw: np.random.Generator) -> Trace:
    """Any trace at all: with addresses or without, on devices that come and go, with and without times."""
    writer, live, objects = TraceWriter(), [], 0
    addressed = draw.random() < 0.5
    pools = int(draw.integers(0, 3))
    for pool in range(pools):
        writer.define_pool(pool + 1, pool % 2, 3 - pool)
    if draw.random() < 0.5:
        writer.set_start(int(draw.integers(0, 2**60)))
    times = draw.random() < 0.7
    time = int(draw.integers(0, 2)) * 5000
    site = child_site(0, "a.py:7 f")
    writer.define_site(site, 0, "a.py:7 f")
    for _ in range(int(draw.integers(1, 120))):
        if times:
            time += int(draw.integers(0, 3000))
            writer.set_time(time)
        if draw.random() < 0.6 or not live:
            device, stream, size = (int(draw.integers(0, n)) for n in (3, 3, 10_000))
            objects += 1
            writer.allocate(
                objects,
                site if draw.random() < 0.8 else 99,
                size,
                2 ** int(draw.integers(0, 13)),
                0,
                device,
                stream,
            )
            if addressed:
                pool = int(draw.integers(0, pools + 1))
                writer.address(objects, BASE + 10_240 * objects, device, pool=pool)
            live.append([objects, device, stream, False])
        else:
            row = live[int(draw.integers(len(live)))]
            if draw.random() < 0.3 and not row[3]:
                writer.free_requested(row[0], 0, row[1], row[2])
                row[3] = True
            else:
                live.remove(row)
                writer.free(row[0], 0, row[1], row[2], site)
    writer.close()
    return Trace.from_bytes(writer.bytes())


@pytest.mark.parametrize("seed", range(40))
def test_any_trace_is_a_snapshot_that_comes_back(seed):
    trace = random_trace(np.random.default_rng(seed))
    first = import_snapshot_bytes(export_trace_bytes(trace, "snapshot"))
    again = import_snapshot_bytes(export_trace_bytes(Trace.from_bytes(first), "snapshot"))
    assert again == first
    kept = trace.events[(trace.events["kind"] == EventKind.kAllocate) & (trace.events["size"] > 0)]
    back = Trace.from_bytes(first).events
    back = back[(back["kind"] == EventKind.kAllocate) & (back["size"] > 0)]
    assert sorted(kept["size"].tolist()) == sorted(back["size"].tolist())
    json.loads(export_trace_bytes(trace, "chrome"))
    assert list(packets(export_trace_bytes(trace, "perfetto")))


def no_overlap(tiles: list[tuple[int, int]]) -> bool:
    return all(a + size <= b for (a, size), (b, _) in zip(tiles, tiles[1:], strict=False))


def test_a_trace_without_addresses_is_laid_out():
    content = exported(Trace.open(DATA / "resnet18.trace"))
    held = {}
    for row in content["segments"]:
        blocks = [(tile["address"], tile["size"]) for tile in row["blocks"]]
        assert blocks[0][0] == row["address"] and sum(size for _, size in blocks) == row["total_size"]
        assert no_overlap(blocks)
        held.setdefault(row["device"], []).append((row["address"], row["total_size"]))
    for device, trace in enumerate(content["device_traces"]):
        live = {}
        for event in trace:
            if event["action"] == "alloc":
                assert any(
                    a <= event["addr"] and event["addr"] + event["size"] <= a + size
                    for a, size in held[device]
                )
                live[event["addr"]] = event["size"]
                assert no_overlap(sorted(live.items()))
            elif event["action"] == "free_completed":
                assert live.pop(event["addr"]) == event["size"]


def test_pytorch_opens_it(tmp_path):
    pytest.importorskip("torch")
    from torch.cuda import _memory_viz as viewer

    content = exported(rich())
    for plot in (viewer.trace_plot(content), viewer.segment_plot(content)):
        assert "snapshot.pickle" in plot
    assert "total_reserved: 42.0MiB" in viewer.segsum(content)
    text = viewer.trace(content)
    assert "cudaMalloc(139637985116160, 4.0MiB)" in text
    assert "raise OutOfMemoryError # 32.0TiB requested, 3.0MiB free in CUDA" in text
    lines = viewer.memory(content, format_flamegraph=lambda lines: lines)
    assert "model.py:54:forward 2048" in lines
    assert viewer.filter_alloc_free_pairs(exported(rich()))["device_traces"][0]


def test_fields_are_those_that_torch_writes():
    content = exported(rich())
    assert content["allocator_settings"]["threshold"] == 0.8
    assert content["external_annotations"][0] == {
        "stage": "START",
        "name": "ProfilerStep#3",
        "device": 0,
        "time_us": T0 + 1,
    }
    first, second = content["segments"]
    assert (first["segment_type"], second["is_expandable"]) == ("small", True)
    assert (first["allocated_size"], first["active_size"], first["requested_size"]) == (2048, 3584, 3560)
    pending, live, free = "active_pending_free", "active_allocated", "inactive"
    states = [tile["state"] for tile in first["blocks"]]
    assert states == [free, pending, free, pending, free, live, free]
    trace = content["device_traces"][0]
    assert trace[1] == {
        "action": "alloc",
        "addr": BASE + 4096,
        "size": 512,
        "stream": 0,
        "time_us": T0 + 1,
        "frames": [LINEAR, MAIN],
    }
    assert [event["stream"] for event in trace if event["action"] == "segment_alloc"] == [-5]
    failed = next(event for event in trace if event["action"] == "oom")
    assert failed["size"] == 2**45 and failed["device_free"] == 3 * MIB and "addr" not in failed


def test_a_block_keeps_what_pytorch_does_not_cut_off():
    """Up to 1 MiB in a large segment; nothing in one that grows, or in a small one; next to tiles of 512 bytes."""
    kept, grown, small, cut = BASE, BASE + 64 * MIB, BASE + 128 * MIB, BASE + 192 * MIB
    blocks = {
        kept: [
            block(kept, 11 * MIB, requested=10 * MIB + 7),
            block(kept + 11 * MIB, 9 * MIB, requested=8 * MIB),
        ],
        grown: [block(grown, 2 * MIB + 512, requested=2 * MIB + 1), block(grown + 3 * MIB, 17 * MIB - 512)],
        small: [block(small, 512, requested=100), block(small + 1024, MIB)],
        cut: [block(cut, 18 * MIB, requested=18 * MIB - 511)],
    }
    segments = [
        segment(at, (2 if at == small else 20) * MIB, held, expandable=at == grown)
        for at, held in blocks.items()
    ]
    content = exported(imported(snapshot([entry("alloc", small + 1024, MIB, 1)], segments=segments)))
    sizes = [
        [(row["state"] == "inactive", row["size"]) for row in held["blocks"]] for held in content["segments"]
    ]
    assert sizes == [
        [(False, 11 * MIB), (False, 9 * MIB)],
        [(False, 2 * MIB + 512), (True, MIB - 512), (False, 17 * MIB - 512), (True, 512)],
        [(False, 512), (True, 512), (False, MIB), (True, MIB - 1024)],
        [(False, 18 * MIB), (True, 2 * MIB)],
    ]


@pytest.mark.parametrize("name", ["magma27_cs336", "silmont_fwd_fp32_128"])
def test_pytorch_sees_a_real_snapshot_as_it_was(name):
    pytest.importorskip("torch")
    from torch.cuda import _memory_viz as viewer

    path = SHARED / f"{name}.pickle"
    if not path.exists():
        pytest.skip("the shared snapshots are not here")
    original = pickle.loads(path.read_bytes())
    ours = exported(Trace.from_bytes(import_snapshot_bytes(path.read_bytes())))
    assert viewer.segsum(ours) == viewer.segsum(original)
    assert viewer.trace(ours) == viewer.trace(original)


def test_chrome():
    trace = rich()
    content = json.loads(export_trace_bytes(trace, "chrome"))
    events = content["traceEvents"]
    assert all(set(event) >= {"ph", "pid", "ts", "name"} for event in events)
    open_slices, counters, passes = {}, {}, {}
    for event in events:
        if event["ph"] in "be":
            # local: with an id of the whole trace, Perfetto draws it outside of its device
            key = (event["cat"], event["id2"]["local"], event["pid"])
            if event["ph"] == "b":
                assert key not in open_slices
                open_slices[key] = event
                assert "sf" not in event or event["sf"] in content["stackFrames"]
            else:
                assert open_slices.pop(key)["ts"] <= event["ts"]
        elif event["ph"] == "C":
            counters.setdefault((event["pid"], event["name"]), []).append(
                (event["ts"], *event["args"].items())
            )
        elif event["ph"] in "BE":
            passes.setdefault((event["pid"], event["tid"]), []).append((event["ph"], event["name"]))
    assert not open_slices
    assert passes == {(65536, 1): [("B", "pass 3"), ("E", "pass 3"), ("B", "pass 4")]}  # one row for all
    end = trace.events["time"][-1] / 1000
    for told in counters.values():
        assert told[-1][0] == end  # nothing is drawn after a counter's last value
        assert told == sorted(told, key=lambda row: row[0])

    def bytes_of(device: int, name: str) -> list[int]:
        assert {row[1][0] for row in counters[device, name]} == {"bytes"}
        return [row[1][1] for row in counters[device, name]]

    before = 100 + 300 + 1000 + 2048
    assert bytes_of(0, "live")[-5:] == [
        before + 512 - 100,
        before + 412 - 300,
        before + 112 + 3 * MIB,
        before + 112,
        before + 112,
    ]
    assert max(bytes_of(0, "stream 2, live")) == 3 * MIB
    assert bytes_of(1, "reserved") == [20 * MIB, 40 * MIB, 20 * MIB, 40 * MIB, 40 * MIB]
    (failed,) = (event for event in events if event["ph"] == "i")
    assert failed["args"] == {"asked": 2**45, "free": 3 * MIB}
    frame = content["stackFrames"][
        next(event["sf"] for event in events if event["ph"] == "b" and "sf" in event)
    ]
    assert content["stackFrames"][frame.get("parent", "")]["name"] if "parent" in frame else frame["name"]
    assert content["otherData"]["source"] == "torch snapshot"


def test_passes_that_overlap_are_on_rows_of_their_own():
    writer = TraceWriter()
    for begins, number in [(1, 1), (1, 2), (0, 1), (1, 3), (0, 3), (0, 2)]:
        (writer.pass_begin if begins else writer.pass_end)(number)
    writer.close()
    events = json.loads(export_trace_bytes(Trace.from_bytes(writer.bytes()), "chrome"))["traceEvents"]
    rows_ = [(event["ph"], event["tid"], event["name"]) for event in events if event["ph"] in "BE"]
    assert rows_ == [
        ("B", 1, "pass 1"),
        ("B", 2, "pass 2"),
        ("E", 1, "pass 1"),
        ("B", 1, "pass 3"),
        ("E", 1, "pass 3"),
        ("E", 2, "pass 2"),
    ]


def fields_of(data: bytes) -> list[tuple[int, int | bytes]]:
    """A protobuf message, read by the rules of its encoding."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    result, at = [], 0
    while at < len(data):
        tag, at = varint(at)
        value, at = varint(at)
        if tag & 7 == 2:
            at += value
            assert at <= len(data)
            value = data[at - value : at]
        else:
            assert tag & 7 == 0
        result.append((tag >> 3, value))
    return result


def packets(data: bytes):
    for field, packet in fields_of(data):
        assert field == 1
        yield dict(fields_of(packet))


def test_perfetto():
    trace = rich()
    tracks, counters, depth, began, names = {}, {}, {}, [], {}
    last = 0
    for number, packet in enumerate(packets(export_trace_bytes(trace, "perfetto"))):
        assert packet[10] == 1
        if number == 0:
            assert packet[13] == 1
        elif 60 in packet:
            track = dict(fields_of(packet[60]))
            assert track[1] not in tracks and (5 not in track or track[5] in tracks)
            tracks[track[1]] = track
        else:
            assert packet[13] == 2 and packet[8] >= last
            last = packet[8]
            for _, entry_ in (row for row in fields_of(packet.get(12, b"")) if row[0] == 2):
                known = dict(fields_of(entry_))
                names[known[1]] = known[2].decode()
            event = dict(fields_of(packet[11]))
            track = tracks[event[11]]
            if event[9] == 1:
                depth[event[11]] = depth.get(event[11], 0) + 1
                assert depth[event[11]] == 1  # one object a lane
                began.append(names[event[10]] if 10 in event else event[23].decode())
            elif event[9] == 2:
                depth[event[11]] -= 1
            elif event[9] == 4:
                assert dict(fields_of(track[8])) == {3: 3}  # bytes
                counters.setdefault((track[5] & 0xFFFF << 32, track[2].decode()), []).append(event[30])
    assert sorted(began) == sorted(
        ["pass 3", "pass 4"] + ["allocation"] * 4 + ["/srv/model.py:54 forward"] * 3
    )
    assert sum(depth.values()) == 1  # the pass that did not end
    assert counters[1 << 32, "bytes reserved"] == [20 * MIB, 40 * MIB, 20 * MIB, 40 * MIB, 40 * MIB]
    assert max(counters[0, "bytes live"]) == 1000 + 2048 + 512 + 3 * MIB
    # The viewer sorts by name, and the objects fill many screens.
    named = {
        track[2].decode() for track in tracks.values() if track.get(5, 0) & 0xFFFF << 32 == 0 and 5 in track
    }
    assert sorted(named)[-2:] == ["objects", "objects from before"] and len(named) == 8


def test_a_snapshot_without_history_lasts_a_moment():
    held = segment(BASE, 2 * MIB, [block(BASE, 512), block(BASE + 512, 1024)])
    trace = imported(snapshot([], segments=[held]))
    events = json.loads(export_trace_bytes(trace, "chrome"))["traceEvents"]
    assert [(event["ts"], event["ph"]) for event in events if event["ph"] in "be"] == [(0, "b")] * 2 + [
        (1, "e")
    ] * 2
    assert [(row["ts"], row["args"]["bytes"]) for row in events if row["name"] == "live"][1:] == [
        (0, 1536),
        (1, 1536),
    ]


def test_perfettos_own_definitions_read_it():
    """Every packet and field is one that Perfetto knows, and what its importer would refuse is not there."""
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")

    def known(message) -> None:
        assert len(unknown_fields.UnknownFieldSet(message)) == 0
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in value if isinstance(value, Sequence) else [value]:
                    known(part)

    for trace in (rich(), *(random_trace(np.random.default_rng(seed)) for seed in range(5))):
        content = protos.Trace.FromString(export_trace_bytes(trace, "perfetto"))
        known(content)
        first, *others = content.packet
        assert first.sequence_flags == protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        names, texts, tracks, running, counted, slices = {}, {}, {}, {}, {}, []
        last = 0
        for packet in others:
            assert packet.trusted_packet_sequence_id == first.trusted_packet_sequence_id != 0
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid != 0 and track.uuid not in tracks
                assert track.parent_uuid in tracks or not track.HasField("parent_uuid")
                tracks[track.uuid] = track
                continue
            assert packet.sequence_flags == protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            assert packet.timestamp >= last
            last = packet.timestamp
            for name in packet.interned_data.event_names:
                assert names.setdefault(name.iid, name.name) == name.name != ""
            for text in packet.interned_data.debug_annotation_string_values:
                assert texts.setdefault(text.iid, text.str) == text.str != b""
            event = packet.track_event
            track = tracks[event.track_uuid]
            if event.type == protos.TrackEvent.TYPE_COUNTER:
                assert track.counter.unit == protos.CounterDescriptor.UNIT_SIZE_BYTES
                assert counted.get(track.uuid, (-1,))[0] <= packet.timestamp
                counted[track.uuid] = packet.timestamp, event.counter_value
                assert event.counter_value >= 0
            elif event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
                name = names[event.name_iid] if event.HasField("name_iid") else event.name
                notes = {note.name: note for note in event.debug_annotations}
                if "site" in notes:
                    assert texts[notes["site"].string_value_iid]
                running.setdefault(track.uuid, []).append((name, packet.timestamp, notes))
            elif event.type == protos.TrackEvent.TYPE_SLICE_END:
                slices.append(
                    (*running[track.uuid].pop(), [note.string_value for note in event.debug_annotations])
                )
        allocations = trace.events[trace.events["kind"] == EventKind.kAllocate]
        objects = [row for row in slices if "object" in row[2]]
        assert sorted(row[2]["bytes"].uint_value for row in objects) == sorted(allocations["size"].tolist())
        never = sum(row[3] == ["never"] for row in objects)
        assert never == len(allocations) - (trace.events["kind"] == EventKind.kFree).sum()
        end = int(trace.events["time"][-1]) if len(trace.events) else 0
        assert {at for at, _ in counted.values()} <= {end}


def test_unknown_format():
    with pytest.raises(Error, match="no format 'csv': there are snapshot, chrome and perfetto"):
        export_trace_bytes(rich(), "csv")


def test_names_that_are_not_utf8_and_sites_that_are_not_defined():
    writer = TraceWriter()
    writer.define_site(5, 0, 'a?c "quoted" \\ \x01')
    writer.allocate(1, 5, 64)
    writer.allocate(2, 12345, 64)
    writer.close()
    trace = Trace.from_bytes(writer.bytes())
    names = [row["frames"][0]["name"] for row in exported(trace)["device_traces"][0]]
    assert names == ['a?c "quoted" \\ \x01', "site 0000000000003039"]
    assert "a?c" in json.loads(export_trace_bytes(trace, "chrome"))["stackFrames"]["0x5"]["name"]
