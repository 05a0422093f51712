# SPDX-License-Identifier: Apache-2.0
"""docs/reference/formats.md is enough to read a trace: a second reader, written from that page alone."""

from __future__ import annotations

import os
import stat

import golden_trace as golden
import native_trace as native
import numpy as np
import pytest
from memoir._core import Error, Only, Trace, TraceWriter, child_site, finish_trace
from trace_reader import META, SITE, read_trace

SHARED = ["kind", "alignment_log2", "device", "thread", "object", "site", "size", "time", "stream"]


def agrees(trace: Trace, records: list[tuple[tuple, bytes]]) -> None:
    assert [tuple(int(event[field]) for field in SHARED) for event in trace.events] == [
        fields for fields, _ in records
    ]
    for fields, text in records:
        if fields[0] == SITE:
            assert trace.site_name(fields[5]) == text.decode()
            assert trace.site_parent(fields[5]) == fields[6]
        elif fields[0] == META:
            key, _, value = text.decode().partition("=")
            assert trace.meta(key) == value


def test_both_readers_agree_on_records():
    data = (golden.DATA / golden.SMALL).read_bytes()
    header, blocks = read_trace(data)
    assert header["version"] == 1 and header["tick"] == 1 and header["flags"] == 1
    assert header["end"] == len(data)
    trace = Trace.open(golden.DATA / golden.SMALL)
    records = [fields for block in blocks for name, fields in block.operations() if name == "record"]
    agrees(trace, records)
    assert {fields[0] for fields, _ in records} == set(range(1, 14))


def test_both_readers_agree_on_a_native_recording():
    data = (golden.DATA / golden.NATIVE).read_bytes()
    header, blocks = read_trace(data)
    assert header["tick"] == 1_000_000
    made, freed, kinds = [], 0, set()
    for block in blocks:
        for name, fields in block.operations():
            kinds.add(name)
            if name == "allocate":
                tick, address, _, size, kind, _ = fields
                if kind >> 6:  # a tensor takes the place of its malloc
                    made.append((tick * 1_000_000, block.lane, address, size, kind >> 6, kind & 0x3F))
            elif name == "free":
                freed += fields[3] & 0x03 == 0
    trace = Trace.open(golden.DATA / golden.NATIVE, only=Only.kMallocs)
    events = trace.events[trace.events["kind"] == 1]
    columns = ["time", "thread", "address", "size", "family", "alignment_log2"]
    assert sorted(made) == sorted(tuple(int(row[name]) for name in columns) for row in events)
    assert freed == (trace.events["kind"] == 2).sum() + trace.losses["unknown_frees"]
    assert kinds >= {"allocate", "free", *(set(range(0x50, 0x60)) - {0x52, 0x58})}


def test_the_plain_writer_and_the_encoder_say_the_same(tmp_path):
    """What the second writer made is rewritten by the first, compressed, and read by the second reader."""
    data = golden.native_program().bytes()
    path = tmp_path / "x.trace"
    path.write_bytes(data)
    before, after = finish_trace(path, 0)
    assert before == len(data) and after < before and after == path.stat().st_size
    one, other = Trace.from_bytes(data), Trace.open(path)
    assert (one.events == other.events).all()
    _, plain = read_trace(data)
    _, packed = read_trace(path.read_bytes())
    assert [list(block.operations()) for block in plain] == [list(block.operations()) for block in packed][
        : len(plain)
    ]


def test_imported_times():
    writer = TraceWriter()
    writer.set_start(10**18)
    assert writer.set_time(5) and writer.pass_begin(1) and not writer.set_time(4)
    assert writer.set_time(7) and writer.pass_end(1)
    writer.close()
    header, blocks = read_trace(writer.bytes())
    assert header["clock"] == 2 and header["start"] == 10**18
    assert [fields[0][7] for block in blocks for _, fields in block.operations()] == [5, 7]


def test_names_need_not_be_utf8():
    trace = native.NativeTrace()
    frame = trace.named(native.OPERATOR, "a?c")
    trace.allocate(1, 1, 4096, 64, trace.stack(frame))
    data = trace.bytes()
    with pytest.raises(Error, match="checksum"):
        Trace.from_bytes(data.replace(b"a?c", b"a\xffc"))
    trace = native.NativeTrace()
    trace.strings["a?c"] = 1
    trace._define(0x50, 1, text=b"a\xffc")
    trace.allocate(1, 1, 4096, 64, trace.stack(trace.named(native.OPERATOR, "a?c")))
    read = Trace.from_bytes(trace.bytes())
    assert read.site_name(int(read.events["site"][0])) == "a\ufffdc"
    assert read.events["site"][0] != child_site(0, "a?c")


def test_a_tail_of_holes_is_not_read(tmp_path):
    new = tmp_path / "new.trace"
    new.write_bytes(golden.native_program().bytes(complete=False))
    with open(new, "r+b") as file:
        file.truncate(3 << 30)
    assert len(Trace.open(new).events) == len(Trace.from_bytes(golden.native_program().bytes()).events)


def test_ids_that_a_stranger_chose_cost_no_more_than_others():
    """Ids that collide in a table by their low bits, or after the usual mixing."""

    def unmix(x: int) -> int:  # of the finaliser of splitmix64
        x ^= x >> 31 ^ x >> 62
        x = x * 0x319642B2D24D8EC3 % 2**64
        x ^= x >> 27 ^ x >> 54
        x = x * 0x96DE1B173F119089 % 2**64
        return x ^ x >> 30 ^ x >> 60

    for ids in (
        np.arange(1, 40_001, dtype=object) << 24,
        [unmix(number << 40) for number in range(1, 40_001)],
    ):
        writer = TraceWriter()
        for number in ids:
            writer.allocate(int(number), int(number), 8)
            writer.define_site(int(number), 0, "f")
        assert len(Trace.from_bytes(writer.bytes()).events) == 80_000  # in a moment, or the test is ended


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_finished_trace_takes_no_rights_of_a_stranger_s_file(tmp_path):
    for owner, mode, expected in ((0, 0o640, 0o640), (65534, 0o666, 0o600)):
        path = tmp_path / f"{owner}.trace"
        writer = TraceWriter(str(path))
        writer.close()
        os.chmod(path, mode)
        os.chown(path, owner, -1)
        finish_trace(str(path), 0)
        assert stat.S_IMODE(path.stat().st_mode) == expected
