# SPDX-License-Identifier: Apache-2.0
"""Profiles of programs that do not exist, written from docs/reference/formats-lifetimes.md: each byte is known."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from memoir.lifetimes import BYTES, MILLISECONDS, ONE_OBJECT, RECORDS, Lifetimes, bucket_begins

ORDER = ("text", "modules", "frames", "stacks", "contexts", "cells", "runs", "pairs", "points", "totals")


@dataclass
class Site:
    """A stack, innermost first, and its samples: (ms, bytes, never freed) each."""

    stack: tuple[str, ...]
    samples: list[tuple[int, int, bool]]
    size: int = 64
    offset: int = 0  # of the innermost frame; 0: one of its own


@dataclass
class Made:
    sites: list[Site]
    peak: int = 1 << 20  # the largest heap
    allocated: int = 1 << 26
    build: int = 1
    program: str = "server"
    text: bytearray = field(default_factory=bytearray)

    def word(self, word: str) -> tuple[int, int]:
        encoded = word.encode()
        begin = len(self.text)
        self.text += encoded + b"\0"
        return begin, len(encoded)

    def profile(self) -> Lifetimes:
        parts = {name: [] for name in ORDER}
        frames: dict[tuple[str, int], int] = {}
        modules = np.zeros(1, RECORDS["modules"])
        modules["path"], modules["id_size"] = self.word("/app/" + self.program), 20
        modules["id"][0, :20] = self.build
        cells, contexts, pairs = [], [], []
        stacks: list[int] = []
        for number, site in enumerate(self.sites):
            first = len(stacks)
            for depth, name in enumerate(site.stack):
                offset = site.offset if depth == 0 else 0
                stacks.append(frames.setdefault((name, offset), len(frames)))
            contexts.append(self._context(number, site, first, cells))
            for at, (ms, lived, forever) in enumerate(site.samples):
                pair = np.zeros(1, RECORDS["pairs"])
                pair["context"], pair["flags"], pair["allocated_by"] = number, int(forever), 1
                pair["size"], pair["weight"] = site.size, ONE_OBJECT
                begin = (number * 7919 + at * 104_729) % max(self.allocated - lived, 1)
                pair["begin_clock"], pair["end_clock"] = begin, self.allocated if forever else begin + lived
                pair["end"] = ms
                pairs.append(pair)
        rows = np.zeros(len(frames), RECORDS["frames"])
        for (name, offset), number in frames.items():
            rows[number]["offset"] = offset or 0x1000 + 16 * number
            rows[number]["name"] = self.word(name) if name else (0, 0)
        pairs = np.concatenate(pairs)
        pairs["priority"] = np.arange(len(pairs)) + 1
        run = np.zeros(1, RECORDS["runs"])
        run["id"], run["program"] = (self.build, 17), self.word(self.program)
        run["milliseconds"], run["allocated"], run["every"] = 10_000, self.allocated, 4096
        run["samples"], run["process"], run["threads"] = len(pairs), 4711, 1
        run["pairs"], run["points"] = len(pairs), 1
        unit = (run["id"][0, 0] >> np.uint64(11)) / 2**53
        run["priority"] = -np.log(max(float(unit), 1e-12)) / (len(pairs) + 1)
        points = np.zeros(1, RECORDS["points"])
        points["live"] = points["decayed"] = self.peak
        totals = np.zeros(1, RECORDS["totals"])
        totals["runs"], totals["samples"], totals["milliseconds"] = 1, len(pairs), 10_000
        totals["allocated"], totals["most_pairs"], totals["most_runs"] = self.allocated, 65_536, 64
        parts = {
            "text": np.frombuffer(bytes(self.text), np.uint8),
            "modules": modules,
            "frames": rows,
            "stacks": np.array(stacks, "<u4"),
            "contexts": np.concatenate(contexts),
            "cells": np.sort(np.concatenate(cells), order=("context", "fate", "clock", "bucket")),
            "runs": run,
            "pairs": pairs,
            "points": points,
            "totals": totals,
        }
        return Lifetimes.from_bytes(file_of(parts), "made")

    def _context(self, number: int, site: Site, first: int, cells: list[np.ndarray]) -> np.ndarray:
        context = np.zeros(1, RECORDS["contexts"])
        context["first"], context["frames"] = first, len(site.stack)
        context["least_size"] = context["most_size"] = site.size
        for fate in (0, 1):
            of_fate = [sample for sample in site.samples if int(sample[2]) == fate]
            estimate = (len(of_fate), len(of_fate) * ONE_OBJECT, len(of_fate) * site.size)
            context["estimates"][0, fate] = estimate
            for clock in (MILLISECONDS, BYTES):
                lived = np.array([sample[clock] for sample in of_fate], dtype=np.int64)
                if not len(lived):
                    continue
                sums = [(int(value) % 2**64, int(value) >> 64) for value in (lived.sum(), (lived**2).sum())]
                context["tallies"][0, fate, clock] = (len(lived), lived.min(), lived.max(), *sums)
                buckets = np.searchsorted(bucket_begins(), lived.astype(np.uint64), "right") - 1
                for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
                    cell = np.zeros(1, RECORDS["cells"])
                    cell["context"], cell["bucket"], cell["clock"], cell["fate"] = number, bucket, clock, fate
                    cell["estimate"] = (count, count * ONE_OBJECT, count * site.size)
                    cells.append(cell)
        return context


def file_of(parts: dict[str, np.ndarray]) -> bytes:
    file = bytearray(64 + 32 * len(ORDER))
    for row, name in enumerate(ORDER):
        content = parts[name].tobytes()
        struct.pack_into("<IIQQQ", file, 64 + 32 * row, row + 1, 0, len(file), len(content), len(parts[name]))
        file += content + bytes(-len(content) % 8)
    struct.pack_into("<8sIIIIQ", file, 0, b"\x89memoirL", 1, 0x01020304, 64, len(ORDER), len(file))
    value = len(file)
    for (word,) in struct.iter_unpack("<Q", bytes(file)):
        value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
        value ^= value >> 32
    struct.pack_into("<Q", file, 56, value)
    return bytes(file)


LAYERS = ("parse", "render", "index", "session", "cache", "query", "plan", "route", "log", "page")
LONG, SHORT = "registry", "scratch"  # words that long and short contexts of server() have


def server(seed: int = 1, build: int = 1, peak: int = 1 << 20) -> Made:
    """A hundred contexts. Those below `..._registry` keep their objects; those below `..._scratch` do not."""
    random = np.random.default_rng(seed)
    sites = []
    for number in range(100):
        long = number % 4 == 0
        inner = f"make_{LAYERS[number % 10]}_{LONG if long else SHORT}"
        stack = (
            inner,
            f"{LAYERS[number // 10]}_handler",
            f"serve_{LAYERS[number * 3 % 10]}",
            "run_server",
            "main",
        )
        count = 12
        if long:
            samples = [(int(random.integers(2_000, 9_000)), int(random.integers(4, 9)) * peak, False)] * count
        else:
            samples = [(int(random.integers(0, 9)), int(random.integers(100, 5_000)), False)] * count
        sites.append(Site(stack, samples, size=64 + 8 * (number % 5), offset=0x9000 + 16 * number))
    return Made(sites, peak=peak, build=build)
