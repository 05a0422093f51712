# SPDX-License-Identifier: Apache-2.0
"""A second reader of native traces, for tests alone: from docs/reference/formats.md, sharing no code with the core's."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FAMILIES = ("tensor", "malloc", "new", "other")


@dataclass
class Allocation:
    tick: int
    lane: int
    thread: int
    address: int
    size: int
    node: int
    alignment: int
    family: str
    moved: bool


@dataclass
class Free:
    tick: int
    lane: int
    thread: int
    address: int
    moved: bool
    undone: bool


@dataclass
class Decoded:
    """Everything that a trace says, in the order of its blocks."""

    tick: int = 0
    dropped: int = 0
    size: int = 0  # bytes of operations
    events: list = field(default_factory=list)
    strings: dict = field(default_factory=dict)
    modules: dict = field(default_factory=dict)  # number -> (path, build id)
    gone: list = field(default_factory=list)
    frames: dict = field(default_factory=dict)
    nodes: dict = field(default_factory=dict)  # number -> (caller's node, frame)
    meta: dict = field(default_factory=dict)
    lost: list = field(default_factory=list)  # (reason, count)
    ends: list = field(default_factory=list)  # (by exec, status)
    threads: set = field(default_factory=set)
    maps: list = field(default_factory=list)  # (map or unmap, address, bytes, node)

    def allocations(self) -> list[Allocation]:
        return [event for event in self.events if isinstance(event, Allocation)]

    def frees(self) -> list[Free]:
        return [event for event in self.events if isinstance(event, Free) and not event.undone]

    def stack(self, node: int) -> list[tuple[str, int]]:
        """Innermost first: (module's file name, offset of the return address), or (kind, text)."""
        result = []
        while node:
            node, number = self.nodes[node]
            kind, *values = self.frames[number]
            if kind == "native":
                path = self.strings[self.modules[values[0]][0]] if values[0] else "?"
                result.append((Path(path).name, values[1]))
            else:
                result.append((kind, self.strings[values[1]]))
        return result

    def live(self) -> dict[int, Allocation]:
        """What was not freed, by address: the last allocation where there are more of them than frees."""
        balance: Counter = Counter()
        last = {}
        for event in self.events:
            if isinstance(event, Allocation):
                balance[event.address] += 1
                last[event.address] = event
            elif not event.undone:
                balance[event.address] -= 1
        return {address: last[address] for address, count in balance.items() if count > 0}


def decode(path: Path) -> Decoded:
    data = path.read_bytes()
    assert data[:8] == b"\x89memoirT" and struct.unpack_from("<I", data, 8)[0] == 3
    result = Decoded(
        tick=struct.unpack_from("<I", data, 20)[0], dropped=struct.unpack_from("<Q", data, 48)[0]
    )
    sequences: dict[int, int] = {}
    position = 64
    while position + 48 <= len(data):
        if data[position : position + 4] != b"mBLK":
            position = (position // 4096 + 1) * 4096
            continue
        header = struct.unpack_from("<IBBHIIIIIIQII", data, position)
        _, encoding, _, _, room, used, _, _, lane, sequence, tick, thread, _ = header
        assert sequences.get(lane, -1) < sequence, "blocks of a lane are in order"
        sequences[lane] = sequence
        body = data[position + 48 : position + 48 + used]
        body = zlib.decompress(body) if encoding == 1 else body
        result.size += len(body)
        _Block(result, body, lane, tick, thread).run()
        position += 48 + room
    return result


def _address_slot(address: int) -> int:
    return ((address >> 4) * GOLDEN & MASK) >> 56


def _request_slot(place: int, size: int) -> int:
    return ((place * GOLDEN + size) * 0xBF58476D1CE4E5B9 & MASK) >> 56


class _Block:
    def __init__(self, result: Decoded, body: bytes, lane: int, tick: int, thread: int):
        self.result, self.body, self.lane, self.tick, self.thread = result, body, lane, tick, thread
        self.at = 0
        self.last = {False: 0, True: 0}  # of allocations, of frees
        self.addresses = [0] * 256
        self.requests = [(0, 0)] * 256
        self.kind = 0
        self.meta_object = 0

    def byte(self) -> int:
        self.at += 1
        return self.body[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> bytes:
        size = self.number()
        self.at += size
        return self.body[self.at - size : self.at]

    def distance(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def address(self, operation: int, free: bool) -> int:
        if operation & 0x10:
            high = (self.last[free] + self.distance()) & ((1 << 60) - 1)
            address = high << 4 | (self.byte() if operation & 8 else 0)
            self.addresses[_address_slot(address)] = address
        else:
            address = self.addresses[self.byte()]
        self.last[free] = address >> 4
        return address

    def run(self) -> None:
        while self.at < len(self.body):
            operation = self.byte()
            if operation >= 0xC0:
                address = self.address(operation, True)
                if operation & 0x20:
                    self.number()
                free = Free(
                    self.tick, self.lane, self.thread, address, bool(operation & 4), bool(operation & 2)
                )
                self.result.events.append(free)
            elif operation >= 0x80:
                self.allocate(operation)
            else:
                self.rare(operation)

    def allocate(self, operation: int) -> None:
        address = self.address(operation, False)
        if operation & 0x20:
            node, size = self.number(), self.number()
            if not operation & 2:
                self.kind = self.byte()
            request = (node | self.kind << 32, size)
            self.requests[_request_slot(*request)] = request
        else:
            request = self.requests[self.byte()]
        place, size = request
        kind = place >> 32
        self.result.events.append(
            Allocation(
                self.tick,
                self.lane,
                self.thread,
                address,
                size,
                place & 0xFFFFFFFF,
                1 << (kind & 63),
                FAMILIES[kind >> 6],
                bool(operation & 4),
            )
        )

    def rare(self, operation: int) -> None:
        result, number = self.result, self.number
        if operation == 0x40:
            self.tick += number()
        elif operation == 0x46:  # meta: key=value
            flags = self.byte()
            if flags & 1:
                self.tick += number()
            self.meta_object += 1 + (self.distance() if flags & 2 else 0)
            assert flags & ~3 == 0
            key, _, value = self.body[self.at : self.at + self.meta_object].decode().partition("=")
            self.at += self.meta_object
            result.meta[key] = value
        elif operation == 0x50:
            key = number()
            result.strings[key] = self.text().decode()
        elif operation == 0x51:
            key, path, build_id, _ = number(), number(), self.text().hex(), number()
            for _ in range(4 * number()):
                number()
            result.modules[key] = (path, build_id)
        elif operation == 0x52:
            result.gone.append(number())
        elif operation == 0x53:
            key = number()
            result.frames[key] = ("native", number(), number())
        elif operation == 0x54:
            key = number()
            result.frames[key] = ("python", number(), number(), number())
        elif operation == 0x55:
            key, kind, name = number(), number(), number()
            result.frames[key] = (("", "operator", "module", "cut", "other")[kind], 0, name)
        elif operation == 0x56:
            node, caller = number(), number()
            for _ in range(number()):
                assert node not in result.nodes, "a node is defined once"
                result.nodes[node] = (caller, number())
                node, caller = node + 1, node
        elif operation == 0x57:
            self.thread, _, _ = number(), number(), number()
            result.threads.add(self.thread)
        elif operation == 0x58:
            number()
        elif operation == 0x59:
            result.lost.append((number(), number()))
        elif operation in (0x5D, 0x5E):
            kind = "map" if operation == 0x5D else "unmap"
            result.maps.append((kind, number(), number(), number()))
        elif operation == 0x5F:
            result.ends.append((bool(number()), number()))
        else:
            raise AssertionError(f"operation {operation:#x} in lane {self.lane}")
