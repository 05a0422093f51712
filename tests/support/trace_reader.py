# SPDX-License-Identifier: Apache-2.0
"""A second reader of traces of version 1, for tests alone: from docs/reference/formats.md, sharing no code with the core's."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from native_trace import BLOCK, HEADER, MAGIC, checksum

MAGIC_OF_BLOCKS = 0x4B4C426D
SITE, META = 5, 6  # records with a text
GOLDEN = 0x9E3779B97F4A7C15


class Block:
    """Who wrote it, and its operations, to be read once."""

    def __init__(self, data: bytes, lane: int, sequence: int, tick: int, thread: int):
        self.data, self.lane, self.sequence, self.tick, self.thread = data, lane, sequence, tick, thread
        self.at = 0
        self.allocated = self.freed = self.last_class = 0
        self.addresses, self.requests, self.sites = [0] * 256, [(0, 0, 0)] * 256, [0] * 256
        self.last = {
            kind: [0] * 9 for kind in range(1, 15)
        }  # fields of a record but its time, then the class

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
        self.addresses[(address >> 4) * GOLDEN % 2**64 >> 56] = address
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

    def operations(self) -> Iterator[tuple]:
        """(operation, fields): "record" with its text; "allocate": (tick, address, node, size, kind, moved); "free":
        (tick, address, node, flags); and by their number the others, with all that they hold."""
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
                    mixed = ((stack | self.last_class << 32) * GOLDEN + size) % 2**64
                    request = (stack, size, self.last_class)
                    self.requests[mixed * 0xBF58476D1CE4E5B9 % 2**64 >> 56] = request
                else:
                    request = self.requests[self.byte()]
                yield "allocate", (self.tick, address, *request, bool(operation & 0x04))
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


def read_trace(data: bytes) -> tuple[dict, list[Block]]:
    """The header, and the blocks as they stand. Of a recording that was cut short there are gaps between them."""
    names = "magic version endianness header_size tick flags clock start end dropped flushed"
    header = dict(zip(names.split(), HEADER.unpack_from(data), strict=True))
    assert header["magic"] == MAGIC and header["version"] == 1
    complete = header["flags"] & 1
    blocks: list[Block] = []
    last: dict[int, int] = {}
    at = 64
    while at + BLOCK.size <= len(data):
        fields = list(BLOCK.unpack_from(data, at))
        magic, encoding, flags, _, room, used, raw, _, lane, sequence, tick, thread, check = fields
        if magic != MAGIC_OF_BLOCKS:
            assert not complete
            at = (at // 4096 + 1) * 4096
            continue
        payload = data[at + BLOCK.size : at + BLOCK.size + used]
        if flags & 1:
            fields[-1] = 0
            assert check == checksum(BLOCK.pack(*fields) + payload)
            if encoding == 1:
                payload = zlib.decompressobj().decompress(payload)
            assert len(payload) == raw
        else:
            assert not complete and encoding == 0
        assert last.get(lane, -1) < sequence, "blocks of a lane are in order"
        last[lane] = sequence
        blocks.append(Block(payload, lane, sequence, tick, thread))
        at += BLOCK.size + room
    return header, blocks
