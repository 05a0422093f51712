# SPDX-License-Identifier: Apache-2.0
"""docs/formats.md is enough to read a trace: a second reader, written from that page alone."""

from __future__ import annotations

import struct

import golden_trace as golden
import pytest
from memoir._core import Error, Trace, TraceWriter

HEADER = struct.Struct("<8sIIIIIIQQQQ")
RECORD = struct.Struct("<BBHIQQQQII")
SITE, META = 5, 6


def checksum(record: bytes, text: bytes) -> int:
    value = 0
    for (word,) in struct.iter_unpack("<Q", record[:44] + bytes(4) + text):
        value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
        value ^= value >> 32
    return value % 2**32


def read(data: bytes) -> tuple[dict, list[tuple]]:
    names = "magic version endianness header_size record_size flags clock start records dropped reserved"
    header = dict(zip(names.split(), HEADER.unpack_from(data), strict=True))
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
        fields = (kind, log2, device, thread, obj, site, size, time, stream, check)
        records.append((fields, text[:bytes_of_text]))
        at += 48 + len(text)
    return header, records


@pytest.mark.parametrize("name, version", [(golden.SMALL_1, 1), (golden.SMALL, 2), ("resnet18.trace", 1)])
def test_both_readers_agree(name, version):
    data = (golden.DATA / name).read_bytes()
    header, records = read(data)
    assert header["magic"] == b"\x89memoirT" and header["version"] == version and header["flags"] == 1
    assert header["endianness"] == 0x01020304 and header["clock"] == 1 and header["reserved"] == 0
    assert 64 + 48 * header["records"] == len(data)
    trace = Trace.open(golden.DATA / name)
    assert trace.version == version
    assert trace.start == header["start"] and trace.dropped == header["dropped"]
    assert [tuple(int(field) for field in event) for event in trace.events] == [
        fields for fields, _ in records
    ]
    for fields, text in records:
        if fields[0] == SITE:
            assert trace.site_name(fields[5]) == text.decode()
            assert trace.site_parent(fields[5]) == fields[6]
        elif fields[0] == META:
            key, _, value = text.decode().partition("=")
            assert trace.meta(key) == value


def test_the_small_trace_has_every_kind():
    _, records = read((golden.DATA / golden.SMALL).read_bytes())
    assert {fields[0] for fields, _ in records} == set(range(1, 14))
    assert max(len(text) for _, text in records) > 48


def test_imported_times():
    writer = TraceWriter()
    writer.set_start(10**18)
    assert writer.set_time(5) and writer.pass_begin(1) and not writer.set_time(4)
    assert writer.set_time(7) and writer.pass_end(1)
    writer.close()
    header, records = read(writer.bytes())
    assert header["clock"] == 2 and header["start"] == 10**18
    assert [fields[7] for fields, _ in records] == [5, 7]


def test_names_need_not_be_utf8():
    writer = TraceWriter()
    writer.define_site(5, 0, "a?c")
    writer.close()
    data = bytearray(writer.bytes().replace(b"a?c", b"a\xffc"))
    with pytest.raises(Error, match="checksum"):
        Trace.from_bytes(bytes(data))
    data[108:112] = struct.pack("<I", checksum(bytes(data[64:112]), bytes(data[112:160])))
    assert Trace.from_bytes(bytes(data)).site_name(5) == "a\ufffdc"
