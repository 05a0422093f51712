# SPDX-License-Identifier: Apache-2.0
"""Allocation traces of made-up programs, from seeds: the kinds that the LLAMA paper evaluates.

Each has threads, sites with lifetimes of their own, sites whose objects live now shortly and now long (a copy of a string,
a growing vector), and a load that rises and falls.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from memoir import _core

MS = 1_000_000
SECOND = 1000 * MS


class Story:
    """Objects with their ends, written in the order of time."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self._writer = _core.TraceWriter(path)
        self._writer.set_time(0)
        self._ends: list[tuple[int, int, int]] = []
        self._number = 0
        self._sites: dict[str, int] = {}

    def _site(self, name: str) -> int:
        if name not in self._sites:
            self._sites[name] = _core.child_site(0, name)
            self._writer.define_site(self._sites[name], 0, name)
        return self._sites[name]

    def allocate(self, site: str, size: float, lifetime: float | None, thread: int = 0) -> int:
        """`lifetime` in nanoseconds; None: until end() or for ever."""
        self._number += 1
        self._writer.set_time(self.now)
        self._writer.allocate(self._number, self._site(site), max(int(size), 1), 16, thread)
        if lifetime is not None:
            heapq.heappush(self._ends, (self.now + int(lifetime), self._number, thread))
        return self._number

    def end(self, number: int, thread: int = 0) -> None:
        self._writer.set_time(self.now)
        self._writer.free(number, thread)

    def until(self, time: float) -> None:
        """Time passes, and what ends until then is freed."""
        while self._ends and self._ends[0][0] <= time:
            end, number, thread = heapq.heappop(self._ends)
            self.now = max(self.now, end)
            self.end(number, thread)
        self.now = max(self.now, int(time))

    def close(self) -> None:
        self._writer.close()


def loads(story: Story, seconds: float, most: float) -> Iterator[tuple[float, float]]:
    """(start, requests in this tenth of a second), of a load that rises and falls and is low at the end."""
    for tenth in range(int(10 * seconds)):
        wave = 0.08 + 0.92 * max(0.0, 1 - abs((tenth / (10 * seconds) * 3) % 1 - 0.4) * 2.6)
        yield tenth * SECOND / 10, most * wave * story.random.uniform(0.8, 1.2)


def image_server(story: Story, scale: float) -> None:
    """Requests decode, filter and encode pictures; some results stay in a cache, sessions for a while."""
    chance = story.random
    for number in range(int(20_000 * scale)):
        story.allocate(f"load_tables_{number % 7}", chance.choice((32, 64, 200, 1024)), None)
    for start, requests in loads(story, 30, 25 * scale):
        for request in range(round(requests)):
            story.until(start + request * SECOND / 10 / max(requests, 1))
            thread, took = request % 16, chance.lognormvariate(2.8, 0.6) * MS
            width = chance.choice((64, 128, 256, 512))
            story.allocate("decode", width * width * 4, took * 0.6, thread)
            story.allocate("filter", width * width * 4, took * 0.9, thread)
            for _ in range(60):
                story.allocate(f"header_{chance.randrange(8)}", chance.randint(16, 400), took, thread)
            kept = chance.random() < 0.15
            story.allocate(
                "encode", width * width / 6, chance.uniform(5, 12) * SECOND if kept else took, thread
            )
            story.allocate(
                "string_copy",
                chance.randint(20, 120),
                chance.uniform(5, 12) * SECOND if kept else took,
                thread,
            )
            if chance.random() < 0.3:
                for _ in range(8):
                    story.allocate(
                        "session", chance.choice((48, 96, 640)), chance.expovariate(1 / (6 * SECOND)), thread
                    )
    story.until(36 * SECOND)


def inference_server(story: Story, scale: float) -> None:
    """Weights for ever, activations for milliseconds, a cache of conversations in blocks for seconds."""
    chance = story.random
    for layer in range(24):
        story.allocate(f"weights_{layer % 3}", 3 * 2**20 * scale, None)
        for _ in range(int(100 * scale) + 1):
            story.allocate("graph_node", chance.choice((48, 112, 320)), None)
    for start, requests in loads(story, 40, 6 * scale):
        for request in range(round(requests)):
            begin = start + request * SECOND / 10 / max(requests, 1)
            story.until(begin)
            thread, lasts = request % 8, chance.lognormvariate(1.0, 0.9) * SECOND
            for _ in range(chance.randint(3, 12)):
                story.allocate("cache_block", 64 * 1024, lasts, thread)
            story.allocate("tokens", chance.randint(200, 6000), lasts, thread)
            for _ in range(24):
                story.allocate(
                    "activation", chance.choice((16, 64, 256)) * 1024, chance.uniform(1, 9) * MS, thread
                )
                for _ in range(5):
                    story.allocate(
                        "tensor_meta", chance.choice((80, 144, 208)), chance.uniform(1, 9) * MS, thread
                    )
            story.allocate("json", chance.randint(100, 4000), chance.choice((5 * MS, lasts)), thread)
    story.until(60 * SECOND)


def pipeline(story: Story, scale: float) -> None:
    """Counts words in partitions with a hundred threads: tokens for microseconds, a table until its partition ends."""
    chance = story.random
    for _ in range(int(3000 * scale)):
        story.allocate("plan", chance.choice((32, 64, 128)), None)
    for partition in range(6):
        table: list[int] = []
        vector, capacity = None, 1024
        steps = int(9_000 * scale)
        for step in range(steps):
            story.until((partition * 4 + 3.2 * step / max(steps, 1)) * SECOND)
            thread = 1 + chance.randrange(100)
            for _ in range(3):
                story.allocate("token", chance.randint(8, 40), chance.uniform(2e3, 4e6), thread)
            story.allocate("string_copy", chance.randint(16, 64), chance.uniform(2e3, 4e6), thread)
            if chance.random() < 0.5:
                table.append(story.allocate("entry", 48, None, thread))
                table.append(story.allocate("string_copy", chance.randint(16, 64), None, thread))
            if len(table) > capacity:
                capacity *= 2
                if vector is not None:
                    story.end(vector)
                vector = story.allocate("rehash", 8 * capacity, None)
        for number in table:
            story.end(number)
        if vector is not None:
            story.end(vector)
    story.until(28 * SECOND)


def redis(story: Story, scale: float) -> None:
    """Keys are written, most are deleted at random, and again with values of another size; clients come and go."""
    chance = story.random
    keys: list[tuple[int, int, int]] = []
    start = 0.0
    for cycle in range(4):
        count = int(40_000 * scale)
        for number in range(count):
            story.until(start + number * 6 * SECOND / max(count, 1))
            story.allocate("query_buffer", chance.choice((1024, 16 * 1024)), chance.uniform(1e5, 3e6))
            story.allocate("argument", chance.randint(20, 60), chance.uniform(1e5, 2e6))
            if number % 400 == 0:
                story.allocate("client", 2100, chance.expovariate(1 / (3 * SECOND)))
            value = 80 + 110 * cycle + chance.randint(0, 60)
            keys.append(
                (
                    story.allocate("key", chance.randint(24, 48), None),
                    story.allocate("value", value, None),
                    story.allocate("entry", 32, None),
                )
            )
        chance.shuffle(keys)
        gone, keys = keys[: len(keys) * 9 // 10], keys[len(keys) * 9 // 10 :]
        for number, key in enumerate(gone):
            story.until(start + 6 * SECOND + number * SECOND / max(len(gone), 1))
            for part in key:
                story.end(part)
        start += 10 * SECOND
        story.until(start)


PROGRAMS: dict[str, Callable[[Story, float], None]] = {
    "image_server": image_server,
    "inference_server": inference_server,
    "pipeline": pipeline,
    "redis": redis,
}


def write_program(name: str, path: Path, seed: int, scale: float = 1.0) -> None:
    """The trace of one of PROGRAMS."""
    story = Story(path, seed)
    PROGRAMS[name](story, scale)
    story.close()
