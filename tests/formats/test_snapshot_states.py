# SPDX-License-Identifier: Apache-2.0
"""What a viewer works out of a snapshot, which is the state after every entry of its history, is the same of an original
and of the export of its import: a made-up caching allocator writes the originals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from memoir._core import Trace, export_trace_bytes, import_snapshot_bytes
from snapshots import BASE, LINEAR, MAIN, MIB, block, entry, oom, segment, snapshot

STREAMS = (0, 0x55D0C0DE0, -9)


class Device:
    """Best of no kind: first fit in segments of one stream, in multiples of 512 and 2 MiB; recording begins late."""

    def __init__(self, number: int, draw: np.random.Generator):
        self.number, self.draw = number, draw
        self.expandable = bool(draw.random() < 0.4)
        self.streams = STREAMS[: int(draw.integers(1, 4))]
        self.segments = {}  # address -> [size, stream, {address: (asked, pending, frames)}]
        self.fresh = BASE + number * 2**40
        self.start, self.time, self.history = int(draw.integers(0, 40)), 0, []

    def run(self) -> None:
        for step in range(self.start + int(self.draw.integers(1, 120))):
            self.time += int(self.draw.integers(0, 4))
            self.recording = step >= self.start
            self.frames = [LINEAR, MAIN][: int(self.draw.integers(0, 3))]
            choice = self.draw.random()
            live = [(at, one) for at, (_, _, blocks) in self.segments.items() for one in blocks]
            if choice < 0.5 or not live:
                self.allocate(
                    int(self.draw.integers(1, 3 * MIB)),
                    self.streams[int(self.draw.integers(len(self.streams)))],
                )
            elif choice < 0.9:
                self.free(*live[int(self.draw.integers(len(live)))])
            elif choice < 0.96:
                self.give_back()
            elif self.recording:
                self.history.append(oom(int(self.draw.integers(2**40)), 12345, self.time, frames=self.frames))

    def tell(self, action: str, address: int, size: int, stream: int) -> None:
        if self.recording:
            self.history.append(entry(action, address, size, self.time, stream=stream, frames=self.frames))

    def allocate(self, asked: int, stream: int) -> None:
        size = -(-asked // 512) * 512
        home, place = self.find(size, stream) or self.grow(-(-size // (2 * MIB)) * 2 * MIB, stream)
        self.segments[home][2][place] = (asked, False, self.frames)
        self.tell("alloc", place, asked, stream)

    def find(self, size: int, stream: int) -> tuple[int, int] | None:
        for home, (length, owner, blocks) in sorted(self.segments.items()):
            at = home
            for begin, end in [(b, b + -(-blocks[b][0] // 512) * 512) for b in sorted(blocks)] + [
                (home + length, 0)
            ]:
                if owner == stream and begin - at >= size:
                    return home, at
                at = end
        return None

    def grow(self, more: int, stream: int) -> tuple[int, int]:
        if not self.expandable:
            home, self.fresh = self.fresh, self.fresh + more + int(self.draw.integers(0, 2)) * 2 * MIB
            self.segments[home] = [more, stream, {}]
            self.tell("segment_alloc", home, more, stream)
            return home, home
        home = BASE + self.number * 2**40 + (self.streams.index(stream) + 1) * 2**36
        self.segments.setdefault(home, [0, stream, {}])
        end = home + self.segments[home][0]
        self.segments[home][0] += more
        self.tell("segment_map", end, more, stream)
        return home, end

    def free(self, home: int, at: int) -> None:
        _, stream, blocks = self.segments[home]
        asked, pending, frames = blocks[at]
        if not pending:
            self.tell("free_requested", at, asked, stream)
        if not pending and self.draw.random() < 0.2:
            blocks[at] = (asked, True, frames)
            return
        self.tell("free_completed", at, asked, stream)
        del blocks[at]

    def give_back(self) -> None:
        for home in [home for home, (_, _, blocks) in self.segments.items() if not blocks]:
            size, stream, _ = self.segments.pop(home)
            self.tell("segment_unmap" if self.expandable else "segment_free", home, size, stream)

    def snapshot_segments(self) -> list[dict]:
        out = []
        for home, (length, stream, blocks) in sorted(self.segments.items()):
            tiles, at = [], home
            for begin in sorted(blocks):
                asked, pending, frames = blocks[begin]
                if begin > at:
                    tiles.append(block(at, begin - at, "inactive", 0))
                state = "active_pending_free" if pending else "active_allocated"
                tiles.append(block(begin, -(-asked // 512) * 512, state, asked, frames))
                at = begin + tiles[-1]["size"]
            if at < home + length:
                tiles.append(block(at, home + length - at, "inactive", 0))
            out.append(
                segment(home, length, tiles, device=self.number, stream=stream, expandable=self.expandable)
            )
        return out


def states(content: dict, device: int) -> list[tuple]:
    """From the last one back: bytes reserved, and what is live at which address, waiting to be free or not."""
    held, live = {}, {}
    for row in content["segments"]:
        if row["device"] == device:
            at = row["address"]
            held[at] = row["total_size"]
            for tile in row["blocks"]:
                if tile["state"].startswith("active"):
                    live[at] = (tile["requested_size"], tile["state"] == "active_pending_free")
                at += tile["size"]
    found = []
    for event in reversed(content["device_traces"][device]):
        ends = np.array(sorted((at, at + size) for at, size in held.items())).reshape(-1, 2)
        for at, (size, _) in live.items():
            index = int(np.searchsorted(ends[:, 0], at, "right")) - 1
            assert index >= 0 and at + size <= ends[index, 1], f"{at:#x} lies in no segment at {event}"
        found.append((event["action"], sum(held.values()), sorted(live.items())))
        action, at, size = event["action"], event.get("addr"), event["size"]
        if action == "alloc":
            assert live.pop(at)[0] == size
        elif action == "free_completed":
            assert at not in live
            live[at] = (size, True)
        elif action == "free_requested":
            assert live[at] == (size, True)
            live[at] = (size, False)
        elif action in ("segment_free", "segment_unmap"):
            held[at] = size
        elif action in ("segment_alloc", "segment_map"):
            home = max(start for start in held if start <= at)
            assert home + held[home] == at + size
            held[home] -= size
            if held[home] == 0:
                del held[home]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_state_is_the_originals(seed):
    draw = np.random.default_rng(seed)
    devices = [Device(number, draw) for number in range(int(draw.integers(1, 4)))]
    for device in devices:
        device.run()
    original = snapshot(
        *(device.history for device in devices),
        segments=[row for device in devices for row in device.snapshot_segments()],
    )
    first = import_snapshot_bytes(pickle.dumps(original, protocol=4))
    data = export_trace_bytes(Trace.from_bytes(first), "snapshot")
    again = pickle.loads(data)
    for device in range(len(devices)):
        expected = states(original, device)
        assert states(again, device) == expected if device < len(again["device_traces"]) else not expected
    assert import_snapshot_bytes(data) == first
