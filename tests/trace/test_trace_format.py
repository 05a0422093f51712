# SPDX-License-Identifier: Apache-2.0
"""docs/formats.md is enough to read a trace: a second reader, written from that page alone."""

from __future__ import annotations

import struct

import golden_trace as golden
import pytest
from memoir._core import Error, Trace, TraceWriter

HEADER = struct.Struct("<8sIIIIIIQQQQ")
RECORD = struct.Struct("<BBHIQQQQII")


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
        fields = RECORD.unpack(record)
        text = data[at + 48 : at + 48 * (1 + fields[2])]
        assert fields[9] == checksum(record, text)
        assert not text[fields[8] :].strip(b"\0")
        records.append((fields, text[: fields[8]]))
        at += 48 + len(text)
    return header, records


@pytest.mark.parametrize("name", [golden.SMALL, "resnet18.trace"])
def test_both_readers_agree(name):
    data = (golden.DATA / name).read_bytes()
    header, records = read(data)
    assert header["magic"] == b"\x89memoirT" and header["version"] == 1 and header["flags"] == 1
    assert header["endianness"] == 0x01020304 and header["clock"] == 1 and header["reserved"] == 0
    assert 64 + 48 * header["records"] == len(data)
    trace = Trace.open(golden.DATA / name)
    assert trace.start == header["start"] and trace.dropped == header["dropped"]
    assert [tuple(int(field) for field in event) for event in trace.events] == [
        fields for fields, _ in records
    ]
    for fields, text in records:
        if fields[0] == 5:
            assert trace.site_name(fields[5]) == text.decode()
            assert trace.site_parent(fields[5]) == fields[6]
        elif fields[0] == 6:
            key, _, value = text.decode().partition("=")
            assert trace.meta(key) == value


def test_the_small_trace_has_every_kind():
    _, records = read((golden.DATA / golden.SMALL).read_bytes())
    assert {fields[0] for fields, _ in records} == {1, 2, 3, 4, 5, 6}
    assert max(fields[2] for fields, _ in records) > 1


def test_names_need_not_be_utf8():
    writer = TraceWriter()
    writer.define_site(5, 0, "a?c")
    writer.close()
    data = bytearray(writer.bytes().replace(b"a?c", b"a\xffc"))
    with pytest.raises(Error, match="checksum"):
        Trace.from_bytes(bytes(data))
    data[108:112] = struct.pack("<I", checksum(bytes(data[64:112]), bytes(data[112:160])))
    assert Trace.from_bytes(bytes(data)).site_name(5) == "a\ufffdc"
