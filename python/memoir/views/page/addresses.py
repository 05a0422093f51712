# SPDX-License-Identifier: Apache-2.0
"""The address axis of a heap map: what was ever used, drawn without the gaps between; segments; free holes."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np

from memoir._core import EventKind

_BREAK = 0.008  # of the axis: what a gap is drawn as
_MOST_BREAKS = 40


@dataclass(frozen=True)
class AddressAxis:
    """Where addresses are drawn: each used stretch of `size` bytes at `address` begins at `at`. Bytes."""

    address: np.ndarray
    size: np.ndarray
    at: np.ndarray

    @staticmethod
    def of(begin: np.ndarray, size: np.ndarray) -> AddressAxis:
        """The axis of all these ranges. Gaps become breaks; the small ones stay as they are."""
        begin, size = np.asarray(begin, np.uint64), np.asarray(size, np.uint64)
        keep = size > 0
        begin, size = begin[keep], size[keep]
        if not len(begin):
            zero = np.zeros(1, np.uint64)
            return AddressAxis(zero, zero + np.uint64(1), zero)
        order = np.argsort(begin, kind="stable")
        begin = begin[order]
        end = np.maximum.accumulate(begin + size[order])
        used = int((end - begin).max()) if len(begin) == 1 else _covered(begin, end)
        apart = max(used // 256, 1)  # a smaller gap is not a break
        first = np.concatenate([[True], begin[1:] > end[:-1] + np.uint64(apart)])
        starts = begin[first]
        ends = end[np.concatenate([np.flatnonzero(first)[1:] - 1, [len(begin) - 1]])]
        sizes = ends - starts
        gap = int(sizes.sum() * _BREAK) if len(starts) <= _MOST_BREAKS else 0
        at = np.concatenate([[0], np.cumsum(sizes[:-1].astype(np.int64) + gap)]).astype(np.uint64)
        return AddressAxis(starts, sizes, at)

    @property
    def height(self) -> int:
        return int(self.at[-1] + self.size[-1])

    def place(self, addresses: np.ndarray) -> np.ndarray:
        """Where these addresses are drawn."""
        addresses = np.asarray(addresses, np.uint64)
        which = np.maximum(np.searchsorted(self.address, addresses, side="right") - 1, 0)
        drawn: np.ndarray = self.at[which] + (addresses - self.address[which])
        return drawn.astype(np.int64)

    def spans(self) -> list[list[object]]:
        """[drawn at, bytes, address as hexadecimal text] of each stretch, for the page."""
        rows = zip(self.at.tolist(), self.size.tolist(), self.address.tolist(), strict=True)
        return [[at, size, f"{address:x}"] for at, size, address in rows]


def _covered(begin: np.ndarray, end: np.ndarray) -> int:
    """Bytes that ranges cover, sorted, `end` never going back."""
    before = np.concatenate([begin[:1], end[:-1]])
    return int((end - np.maximum(begin, np.minimum(before, end))).sum())


@dataclass
class Segments:
    """Memory that an allocator held: rectangles of address x ticks, as columns."""

    address: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    born: list[int] = field(default_factory=list)
    died: list[int] = field(default_factory=list)
    joined: bool = False  # touching ones are one: memory mapped behind reserved addresses

    def __len__(self) -> int:
        return len(self.address)

    def add(self, address: int, size: int, born: int, died: int) -> None:
        if size > 0:
            self.address.append(address)
            self.size.append(size)
            self.born.append(born)
            self.died.append(died)

    def at(self, tick: int) -> Segments:
        """Those held then."""
        then = Segments(joined=self.joined)
        for each in zip(self.address, self.size, self.born, self.died, strict=True):
            if each[2] <= tick < each[3]:
                then.add(*each)
        return then

    @staticmethod
    def of(events: np.ndarray, device: int) -> Segments:
        """What a recorded allocator held of one device, from a trace's events."""
        kinds = events["kind"]
        which = np.flatnonzero(
            (kinds >= EventKind.kSegmentAllocate)
            & (kinds <= EventKind.kSegmentUnmap)
            & (events["device"] == device)
        )
        held: list[tuple[int, int, int]] = []  # address, end, since; sorted, none overlap
        done = Segments(joined=bool((kinds[which] == EventKind.kSegmentMap).any()))
        for at in which.tolist():
            kind, address, size = int(kinds[at]), int(events["object"][at]), int(events["size"][at])
            end = address + size
            if kind in (EventKind.kSegmentAllocate, EventKind.kSegmentMap):
                bisect.insort(held, (address, end, at))
                continue
            first = max(bisect.bisect_right(held, (address,)) - 1, 0)
            while first < len(held) and held[first][0] < end:
                low, high, since = held[first]
                if high <= address:
                    first += 1
                    continue
                done.add(max(low, address), min(high, end) - max(low, address), since, at)
                rest = [(low, address, since)] * (low < address) + [(end, high, since)] * (high > end)
                held[first : first + 1] = rest
                first += len(rest)
        for low, high, since in held:
            done.add(low, high - low, since, len(events))
        return done


def largest_hole(segments: Segments, begin: np.ndarray, size: np.ndarray) -> tuple[int, int]:
    """(bytes of the largest free stretch, bytes free in all) of segments that hold objects at `begin`. Segments that
    touch are one only where they are mapped: an allocator of segments does not join them."""
    order = np.argsort(begin, kind="stable")
    low, high = begin[order].tolist(), (begin + size)[order].tolist()
    held: list[list[int]] = []
    for address, length in sorted(zip(segments.address, segments.size, strict=True)):
        if segments.joined and held and held[-1][1] == address:
            held[-1][1] = address + length
        else:
            held.append([address, address + length])
    largest = free = k = 0
    for at, end in held:
        while k < len(low) and low[k] < end:
            largest, free = max(largest, low[k] - at), free + max(low[k] - at, 0)
            at = max(at, high[k])
            k += 1
        largest, free = max(largest, end - at), free + max(end - at, 0)
    return largest, free
