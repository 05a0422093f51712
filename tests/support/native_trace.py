# SPDX-License-Identifier: Apache-2.0
"""Makes traces as recorders of native programs write them, by docs/reference/formats.md alone: the plainest operations, a lane
for each thread."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

MAGIC = b"\x89memoirT"
HEADER = struct.Struct("<8sIIIIIIQQQQ")
BLOCK = struct.Struct("<IBBHIIIIIIQII")
MOST_IN_BLOCK = 60_000
TENSOR, MALLOC, NEW, OTHER = range(4)
OPERATOR, MODULE_PATH, CUT = 1, 2, 3
HEAP, ANONYMOUS, THREAD_STACK, MAIN_STACK, FILE, SHARED, RECORDER = range(1, 8)
START, REGULAR, PEAK, END = range(1, 5)


def varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def zigzag(difference: int) -> int:
    return 2 * difference if difference >= 0 else -2 * difference - 1


def checksum(data: bytes) -> int:
    value = 0
    for (word,) in struct.iter_unpack("<Q", data + bytes(-len(data) % 8)):
        value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
        value ^= value >> 32
    return value % 2**32


class Lane:
    def __init__(self, number: int):
        self.number = number
        self.sequence = 0
        self.begin(0)

    def begin(self, tick: int) -> None:
        self.payload = bytearray()
        self.first_tick = self.tick = tick
        self.allocated = self.freed = 0  # addresses >> 4
        self.defines = False

    def seal(self) -> bytes:
        room = len(self.payload) + -len(self.payload) % 8
        flags = 1 | 2 * self.defines
        fields = [0x4B4C426D, 0, flags, 0, room, len(self.payload), len(self.payload), 0]
        fields += [self.number, self.sequence, self.first_tick, self.number, 0]
        fields[-1] = checksum(BLOCK.pack(*fields) + bytes(self.payload))
        block = BLOCK.pack(*fields) + bytes(self.payload) + bytes(room - len(self.payload))
        self.sequence += 1
        self.begin(self.tick)
        return block


class NativeTrace:
    """Ticks are milliseconds."""

    def __init__(self, start: int = 10**18):
        self.start = start
        self.lanes: dict[int, Lane] = {}
        self.blocks: list[bytes] = []
        self.strings: dict[str, int] = {}
        self.frames: dict[tuple, int] = {}
        self.nodes: dict[tuple[int, int], int] = {}
        self.modules: dict[str, int] = {}
        self.last_text = 0  # bytes of the last meta

    def _put(self, lane: int, tick: int, operation: bytes, defines: bool = False) -> None:
        to = self.lanes.setdefault(lane, Lane(lane))
        if len(to.payload) + len(operation) > MOST_IN_BLOCK:
            self.blocks.append(to.seal())
        if tick > to.tick:
            to.payload += b"\x40" + varint(tick - to.tick)
            to.tick = tick
        to.payload += operation
        to.defines |= defines

    def _define(self, operation: int, *numbers: int, text: bytes | None = None, tick: int = 0) -> None:
        """The definitions' lane. A text stands behind the first (strings) or second (modules) number."""
        encoded = [varint(number) for number in numbers]
        if text is not None:
            encoded.insert(2 if operation == 0x51 else 1, varint(len(text)) + text)
        self._put(1000, tick, bytes([operation]) + b"".join(encoded), defines=True)

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self._define(0x50, self.strings[text], text=text.encode())
        return self.strings[text]

    def module(self, path: str, build_id: bytes = b"", base: int = 0x400000) -> int:
        if path not in self.modules:
            self.modules[path] = len(self.modules) + 1
            name = self.string(path)
            self._define(0x51, self.modules[path], name, base, 1, base, 1 << 20, 0, 5, text=build_id)
        return self.modules[path]

    def _frame(self, *key: int) -> int:
        """(operation, its numbers but the id)"""
        if key not in self.frames:
            self.frames[key] = len(self.frames) + 1
            self._define(key[0], self.frames[key], *key[1:])
        return self.frames[key]

    def native(self, path: str, offset: int, lines: Sequence[tuple[str, str, int]] = ()) -> int:
        """A frame; `lines` are (function, file, line), the innermost of inlined ones first."""
        module = self.module(path)
        frame = self._frame(0x53, module, offset)
        if lines:
            numbers = [
                n for function, file, line in lines for n in (self.string(function), self.string(file), line)
            ]
            self._define(0x5C, module, offset, len(lines), *numbers)
        return frame

    def python(self, function: str, file: str, line: int) -> int:
        return self._frame(0x54, self.string(function), self.string(file), line)

    def named(self, kind: int, name: str) -> int:
        return self._frame(0x55, kind, self.string(name))

    def stack(self, *frames: int) -> int:
        """Outermost first."""
        node = 0
        for frame in frames:
            if (node, frame) not in self.nodes:
                self.nodes[node, frame] = len(self.nodes) + 1
                self._define(0x56, self.nodes[node, frame], node, 1, frame)
            node = self.nodes[node, frame]
        return node

    def _address(self, address: int, last: int) -> tuple[int, bytes]:
        high, low = divmod(address, 16)
        return 0x10 | 0x08 * (low != 0), varint(zigzag(high - last)) + bytes([low] if low else [])

    def allocate(
        self,
        thread: int,
        tick: int,
        address: int,
        size: int,
        stack: int = 0,
        family: int = MALLOC,
        log2: int = 4,
        moved: bool = False,
    ) -> None:
        lane = self.lanes.setdefault(thread, Lane(thread))
        if len(lane.payload) + 64 > MOST_IN_BLOCK:
            self.blocks.append(lane.seal())
        flags, encoded = self._address(address, lane.allocated)
        flags |= 0xA0 | 0x04 * moved
        encoded += varint(stack) + varint(size) + bytes([family << 6 | log2])
        self._put(thread, tick, bytes([flags]) + encoded)
        lane.allocated = address >> 4

    def free(
        self, thread: int, tick: int, address: int, *, tensor: bool = False, moved: bool = False
    ) -> None:
        lane = self.lanes.setdefault(thread, Lane(thread))
        if len(lane.payload) + 64 > MOST_IN_BLOCK:
            self.blocks.append(lane.seal())
        flags, encoded = self._address(address, lane.freed)
        self._put(thread, tick, bytes([flags | 0xC0 | tensor | 0x04 * moved]) + encoded)
        lane.freed = address >> 4

    def map(
        self, thread: int, tick: int, address: int, size: int, stack: int = 0, *, unmap: bool = False
    ) -> None:
        self._put(
            thread, tick, bytes([0x5E if unmap else 0x5D]) + b"".join(map(varint, (address, size, stack)))
        )

    def begin_thread(self, thread: int, tick: int, system_id: int, name: str) -> None:
        self._define(0x57, thread, system_id, self.string(name), tick=tick)

    def meta(self, key: str, value: str) -> None:
        text = f"{key}={value}".encode()
        self._put(1000, 0, b"\x46\x02" + varint(zigzag(len(text) - 1 - self.last_text)) + text)
        self.last_text = len(text)

    def counter(self, tick: int, name: str, value: int) -> None:
        self._define(0x5A, self.string(name), value, tick=tick)

    def lost(self, tick: int, reason: int, count: int) -> None:
        self._define(0x59, reason, count, tick=tick)

    def mappings(
        self, tick: int, moment: int, resident: int, groups: Iterable[tuple[int, str, int, int]]
    ) -> None:
        """Groups are (region, name, mapped, resident); all that is resident is dirty."""
        rows = [
            (region, self.string(name) if name else 0, 1, mapped, held, held, 0)
            for region, name, mapped, held in groups
        ]
        self._define(0x5B, moment, resident, len(rows), *[n for row in rows for n in row], tick=tick)

    def end(self, tick: int, status: int = 0) -> None:
        self._define(0x5F, 0, status, tick=tick)

    def bytes(self, *, complete: bool = True) -> bytes:
        for lane in self.lanes.values():
            if lane.payload:
                self.blocks.append(lane.seal())
        body = b"".join(self.blocks)
        size = HEADER.size + len(body)
        header = (MAGIC, 1, 0x01020304, 64, 1_000_000, int(complete), 1, self.start, size * complete, 0, 0)
        return HEADER.pack(*header) + body
