# SPDX-License-Identifier: Apache-2.0
"""A native trace as tests look at it: all that it says, in the order of its blocks (support/trace_reader.py reads it)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from trace_reader import META, read_trace

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
    """Everything that a trace says."""

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
    header, blocks = read_trace(path.read_bytes())
    result = Decoded(tick=header["tick"], dropped=header["dropped"])
    for block in blocks:
        result.size += len(block.data)
        thread = block.thread
        for operation, fields in block.operations():
            if operation == "allocate":
                tick, address, node, size, kind, moved = fields
                alignment, family = 1 << (kind & 63), FAMILIES[kind >> 6]
                made = Allocation(tick, block.lane, thread, address, size, node, alignment, family, moved)
                result.events.append(made)
            elif operation == "free":
                tick, address, _, flags = fields
                free = Free(tick, block.lane, thread, address, bool(flags & 4), bool(flags & 2))
                result.events.append(free)
            elif operation == "record":
                (kind, *_), text = fields
                assert kind == META, f"a record of kind {kind} in lane {block.lane}"
                key, _, value = text.decode().partition("=")
                result.meta[key] = value
            elif operation == 0x57:
                thread = fields[0]
                result.threads.add(thread)
            else:
                _define(result, operation, fields)
    return result


def _define(result: Decoded, operation: int, fields: list) -> None:
    if operation == 0x50:
        number, text = fields
        result.strings[number] = text.decode()
    elif operation == 0x51:
        number, path, build_id, *_ = fields
        result.modules[number] = (path, build_id.hex())
    elif operation == 0x52:
        result.gone += fields
    elif operation == 0x53:
        result.frames[fields[0]] = ("native", *fields[1:])
    elif operation == 0x54:
        result.frames[fields[0]] = ("python", *fields[1:])
    elif operation == 0x55:
        number, kind, name = fields
        result.frames[number] = (("", "operator", "module", "cut", "other")[kind], 0, name)
    elif operation == 0x56:
        node, caller, _, *frames = fields
        for frame in frames:
            assert node not in result.nodes, "a node is defined once"
            result.nodes[node] = (caller, frame)
            node, caller = node + 1, node
    elif operation == 0x59:
        result.lost.append(tuple(fields))
    elif operation in (0x5D, 0x5E):
        result.maps.append(("map" if operation == 0x5D else "unmap", *fields))
    elif operation == 0x5F:
        result.ends.append((bool(fields[0]), fields[1]))
    else:
        assert operation in (0x58, 0x5B, 0x5C), f"operation {operation:#x}"  # a thread ends, mappings, names
