# SPDX-License-Identifier: Apache-2.0
"""docs/reference/formats.md is enough to read a trace: second readers, written from that page alone."""

from __future__ import annotations

import struct
import zlib

import golden_trace as golden
import native_trace as native
import numpy as np
import pytest
from memoir._core import Error, Only, Trace, TraceWriter, child_site, finish_trace

OLD_HEADER = struct.Struct("<8sIIIIIIQQQQ")
RECORD = struct.Struct("<BBHIQQQQII")
SITE, META = 5, 6
SHARED = ["kind", "alignment_log2", "device", "thread", "object", "site", "size", "time", "stream"]


def checksum(record: bytes, text: bytes) -> int:
    return native.checksum(record[:44] + bytes(4) + text)


def read_old(data: bytes) -> tuple[dict, list[tuple]]:
    names = "magic version endianness header_size record_size flags clock start records dropped reserved"
    header = dict(zip(names.split(), OLD_HEADER.unpack_from(data), strict=True))
    records, at = [], 64
    while at < len(data) and data[at] != 0:
        record = data[at : at + 48]
        kind, log2, device, thread, obj, site, size, time, stream, check = RECORD.unpack(record)
        has_text = kind in (SITE, META)
        if header["version"] == 1:  # the length of a text lies in other fields, and there are no devices
            bytes_of_text, device, stream = stream, 0, 0
            obj = bytes_of_text if has_text else obj
        else:
            bytes_of_text = obj if has_text else 0
        text = data[at + 48 : at + 48 * (1 + -(-bytes_of_text // 48))]
        assert check == checksum(record, text)
        assert not text[bytes_of_text:].strip(b"\0")
        records.append(((kind, log2, device, thread, obj, site, size, time, stream), text[:bytes_of_text]))
        at += 48 + len(text)
    return header, records


class Payload:
    """The operations of one block."""

    def __init__(self, data: bytes, tick: int):
        self.data, self.at, self.tick = data, 0, tick
        self.allocated = self.freed = self.last_class = 0
        self.addresses, self.requests, self.sites = [0] * 256, [(0, 0, 0)] * 256, [0] * 256
        self.last = {kind: [0] * 9 for kind in range(1, 15)}  # SHARED, without the time; then the class

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def address(self, flags: int, last: int) -> int:
        if not flags & 0x10:
            return self.addresses[self.byte()]
        address = (last + self.signed() << 4) % 2**64
        if flags & 0x08:
            address |= self.byte()
        self.addresses[(address >> 4) * 0x9E3779B97F4A7C15 % 2**64 >> 56] = address
        return address

    def record(self, kind: int) -> tuple[tuple, bytes]:
        has = self.byte()
        _, log2, device, thread, obj, site, size, stream, family = self.last[kind]
        if has & 0x01:
            self.tick += self.number()
        obj = self.last[1][4] if kind == 11 else obj + 1
        if has & 0x02:
            obj = (obj + self.signed()) % 2**64
        if has & 0x04:
            site = self.sites[self.byte()]
        if has & 0x08:
            site = int.from_bytes(self.data[self.at : self.at + 8], "little")
            self.at += 8
            self.sites[site % 256] = site
        if has & 0x10:
            size = self.number() if kind == 1 else (size + self.signed()) % 2**64
        if has & 0x20:
            thread = self.number()
        if has & 0x40:
            device, stream = self.number(), self.number()
        if has & 0x80:
            family = self.byte()
            log2 = 0 if kind == SITE else family & 0x3F
        self.last[kind] = [kind, log2, device, thread, obj, site, size, stream, family]
        text = b""
        if kind in (SITE, META):
            text = self.data[self.at : self.at + obj]
            self.at += obj
        return (kind, log2, device, thread, obj, site, size, self.tick, stream), text

    def operations(self):
        """(operation, fields): a record with its text, allocate, free, and definitions with all their numbers."""
        while self.at < len(self.data):
            operation = self.byte()
            if operation == 0x40:
                self.tick += self.number()
            elif operation < 0x4F:
                yield "record", self.record(operation - 0x40)
            elif operation >= 0xC0:
                address = self.address(operation, self.freed)
                self.freed = address >> 4
                stack = self.number() if operation & 0x20 else 0
                yield "free", (self.tick, address, stack, operation & 0x07)
            elif operation >= 0x80:
                address = self.address(operation, self.allocated)
                self.allocated = address >> 4
                if operation & 0x20:
                    stack, size = self.number(), self.number()
                    if not operation & 0x02:
                        self.last_class = self.byte()
                    mixed = ((stack | self.last_class << 32) * 0x9E3779B97F4A7C15 + size) % 2**64
                    request = (stack, size, self.last_class)
                    self.requests[mixed * 0xBF58476D1CE4E5B9 % 2**64 >> 56] = request
                else:
                    request = self.requests[self.byte()]
                yield "allocate", (self.tick, address, *request)
            else:
                yield operation, self.definition(operation)

    def definition(self, operation: int) -> list:
        before = {0x50: 1, 0x51: 2}.get(operation, 0)  # numbers before a text
        fields: list = [self.number() for _ in range(before)]
        if before:
            length = self.number()
            fields.append(self.data[self.at : self.at + length])
            self.at += length
        plain = {0x50: 0, 0x51: 2, 0x52: 1, 0x53: 3, 0x54: 4, 0x55: 3, 0x56: 3, 0x57: 3, 0x58: 1}
        plain |= {0x59: 2, 0x5A: 2, 0x5B: 3, 0x5C: 3, 0x5D: 3, 0x5E: 3, 0x5F: 2}
        fields += [self.number() for _ in range(plain[operation])]
        per_row = {0x51: 4, 0x56: 1, 0x5B: 7, 0x5C: 3}.get(operation, 0)
        return fields + [self.number() for _ in range(per_row * fields[-1] if per_row else 0)]


def read_new(data: bytes) -> tuple[dict, list[tuple[int, Payload]]]:
    """The header, and (lane, operations) of each block."""
    names = "magic version endianness header_size tick flags clock start end dropped flushed"
    header = dict(zip(names.split(), native.HEADER.unpack_from(data), strict=True))
    blocks, at = [], 64
    while at < len(data):
        fields = list(native.BLOCK.unpack_from(data, at))
        magic, encoding, flags, _, room, used, raw, _, lane, _, tick, _, check = fields
        assert magic == 0x4B4C426D and flags & 1
        payload = data[at + 48 : at + 48 + used]
        fields[-1] = 0
        assert check == native.checksum(native.BLOCK.pack(*fields) + payload)
        if encoding == 1:
            payload = zlib.decompressobj().decompress(payload)
        assert len(payload) == raw
        blocks.append((lane, Payload(payload, tick)))
        at += 48 + room
    return header, blocks


@pytest.mark.parametrize("name, version", [(golden.SMALL_1, 1), (golden.SMALL_2, 2), ("resnet18.trace", 1)])
def test_both_readers_of_old_versions_agree(name, version):
    data = (golden.DATA / name).read_bytes()
    header, records = read_old(data)
    assert header["magic"] == b"\x89memoirT" and header["version"] == version and header["flags"] == 1
    assert header["endianness"] == 0x01020304 and header["clock"] == 1 and header["reserved"] == 0
    assert 64 + 48 * header["records"] == len(data)
    trace = Trace.open(golden.DATA / name)
    assert trace.version == version
    assert trace.start == header["start"] and trace.dropped == header["dropped"]
    agrees(trace, records)


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


def test_both_readers_of_version_3_agree_on_records():
    data = (golden.DATA / golden.SMALL).read_bytes()
    header, blocks = read_new(data)
    assert header["version"] == 3 and header["tick"] == 1 and header["flags"] == 1
    assert header["end"] == len(data)
    trace = Trace.open(golden.DATA / golden.SMALL)
    records = [fields for _, payload in blocks for name, fields in payload.operations() if name == "record"]
    agrees(trace, records)
    assert {fields[0] for fields, _ in records} == set(range(1, 14))


def test_both_readers_of_version_3_agree_on_a_native_recording():
    data = (golden.DATA / golden.NATIVE).read_bytes()
    header, blocks = read_new(data)
    assert header["tick"] == 1_000_000
    made, freed, kinds = [], 0, set()
    for lane, payload in blocks:
        for name, fields in payload.operations():
            kinds.add(name)
            if name == "allocate":
                tick, address, _, size, kind = fields
                if kind >> 6:  # a tensor takes the place of its malloc
                    made.append((tick * 1_000_000, lane, address, size, kind >> 6, kind & 0x3F))
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
    _, plain = read_new(data)
    _, packed = read_new(path.read_bytes())
    assert [list(payload.operations()) for _, payload in plain] == [
        list(payload.operations()) for _, payload in packed
    ][: len(plain)]


def test_imported_times():
    writer = TraceWriter()
    writer.set_start(10**18)
    assert writer.set_time(5) and writer.pass_begin(1) and not writer.set_time(4)
    assert writer.set_time(7) and writer.pass_end(1)
    writer.close()
    header, blocks = read_new(writer.bytes())
    assert header["clock"] == 2 and header["start"] == 10**18
    assert [fields[0][7] for _, payload in blocks for _, fields in payload.operations()] == [5, 7]


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


def test_a_cut_file_of_an_old_version_costs_what_it_holds(tmp_path):
    """A tail of holes is refused without being read, and a hole in a closed file is damage."""
    data = bytearray((golden.DATA / golden.SMALL_2).read_bytes())
    data[24:28] = bytes(4)  # not closed
    path = tmp_path / "sparse.trace"
    path.write_bytes(data)
    with open(path, "r+b") as file:
        file.truncate(3 << 30)
    with pytest.raises(Error, match="bytes after its last record"):
        Trace.open(path)
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
