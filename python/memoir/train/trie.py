# SPDX-License-Identifier: Apache-2.0
"""Contexts by their stacks: a trie from the innermost frame outwards, whose every node says what is known of all stacks
that lead through it. docs/reference/formats-model.md has its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from memoir.train.contexts import CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_FRAMES = 64
NODE = numpy.dtype("<u4")
MOST_ANSWERS = 65_535
# Sums of what leads through a node, and with so much weight what its parent says.
_PARENT = 0.25

Reduced = tuple[int, ...]


def reduce_stack(stack: tuple[str, ...], numbers: dict[str, int]) -> Reduced:
    """Without unknown names, equal neighbours as one, at most the innermost frames."""
    result: list[int] = []
    for name in stack:
        number = numbers.get(name)
        if number is not None and (not result or result[-1] != number):
            result.append(number)
            if len(result) == MOST_FRAMES:
                break
    return tuple(result)


@dataclass
class Votes:
    """What contexts say, an entry for each: weights of the classes, of long and of short, samples."""

    classes: NDArray[numpy.float64]  # (n, 8)
    long: NDArray[numpy.float64]
    short: NDArray[numpy.float64]
    samples: NDArray[numpy.float64]


@dataclass
class Answers:
    """Records of the answers section, no two alike."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def add(self, wall: NDArray[numpy.float64], long: float, samples: float) -> int:
        parts = numpy.rint(wall / max(float(wall.max()), 1e-300) * 255).astype(numpy.uint8)
        # From few samples up to many in steps of a quarter: so that answers are shared.
        count = int(min(samples, 65_535))
        if count > 8:
            step = 1 << (count.bit_length() - 3)
            count = count // step * step
        record = parts.tobytes() + numpy.array([round(long * 255) * 257, count], "<u2").tobytes()
        number = self._numbers.setdefault(record, len(self._numbers))
        if number < MOST_ANSWERS:
            return number
        del self._numbers[record]
        return self._nearest(parts, round(long * 255) * 257)

    def _nearest(self, parts: NDArray[numpy.uint8], long: int) -> int:
        """Where there is no room for more: one that says nearly the same."""
        table = numpy.frombuffer(self.section(), numpy.uint8).reshape(-1, 12)
        far = numpy.abs(table[:, :8].astype(int) - parts).sum(axis=1)
        far += numpy.abs(table[:, 8:10].copy().view("<u2")[:, 0].astype(int) - long) // 64
        return int(far.argmin())

    def section(self) -> bytes:
        return b"".join(self._numbers)


class Trie:
    """Built of reduced stacks, in whatever order; `votes` has an entry for each of them."""

    def __init__(self, stacks: list[Reduced], votes: Votes, prior: tuple[NDArray[numpy.float64], float]):
        order = sorted(range(len(stacks)), key=stacks.__getitem__)
        self._stacks = [stacks[i] for i in order]
        self._sums = _Sums(votes, numpy.array(order, dtype=numpy.int64))
        self._prior = prior
        self.nodes: list[tuple[int, int, int, int, bool, int]] = []  # see _add
        self.labels: list[int] = []

    def build(self, answers: Answers, *, short: bool = False) -> None:
        """short: edges end where all stacks below them have one answer."""
        stacks = self._stacks
        # A range of sorted stacks, the depth where its node's edge begins, what its parent says.
        queue: list[tuple[int, int, int, int, tuple[NDArray[numpy.float64], float]]] = [
            (0, len(stacks), 0, 0, self._prior)
        ]
        at = 0
        found: list[list[int]] = []
        while at < len(queue):
            low, high, begin, end, above = queue[at]
            says = self._sums.says(low, high, above)
            node = [0, 0, end - begin, len(self.labels), 0, answers.add(*says, self._sums.samples(low, high))]
            self.labels += stacks[low][begin:end] if high > low else ()
            first = low
            while first < high and len(stacks[first]) == end:
                first += 1
            node[4] = int(first > low)
            if not (short and at and self._sums.agree(low, high)):
                node[0] = len(queue)
                while first < high:
                    label = stacks[first][end]
                    last = _upper(stacks, first, high, end, label)
                    deep = _common(stacks[first], stacks[last - 1], end)
                    if short and self._sums.agree(first, last):
                        deep = min(deep, end + 4)
                    queue.append((first, last, end, deep, (says[0], says[1])))
                    node[1] += 1
                    first = last
                if not node[1]:
                    node[0] = 0
            found.append(node)
            at += 1
        self._found = found

    def section(self) -> bytes:
        rows = numpy.array(self._found, dtype=numpy.uint32).reshape(-1, 6)
        words = numpy.empty((len(rows), 3), NODE)
        words[:, 0] = rows[:, 0] | rows[:, 2] << 24
        words[:, 1] = rows[:, 3] | rows[:, 4] << 24
        words[:, 2] = rows[:, 5] | rows[:, 1] << 16
        return words.tobytes()

    def label_section(self) -> bytes:
        return numpy.array(self.labels, dtype="<u2").tobytes()


class _Sums:
    def __init__(self, votes: Votes, order: NDArray[numpy.int64]):
        columns = numpy.column_stack([votes.classes, votes.long, votes.short, votes.samples])[order]
        self._sums = numpy.vstack([numpy.zeros(columns.shape[1]), numpy.cumsum(columns, axis=0)])

    def samples(self, low: int, high: int) -> float:
        return float(self._sums[high, -1] - self._sums[low, -1])

    def says(
        self, low: int, high: int, above: tuple[NDArray[numpy.float64], float]
    ) -> tuple[NDArray[numpy.float64], float]:
        """Probabilities of the classes, and of long."""
        sums = self._sums[high] - self._sums[low]
        wall = sums[:CLASSES] + _PARENT * above[0]
        long, short = float(sums[CLASSES]), float(sums[CLASSES + 1])
        return wall / wall.sum(), (long + _PARENT * above[1]) / (long + short + _PARENT)

    def agree(self, low: int, high: int) -> bool:
        """Whether they all say one class, and all long or all short."""
        sums = self._sums[high] - self._sums[low]
        mixed = min(sums[CLASSES], sums[CLASSES + 1]) > 1e-9
        return bool((sums[:CLASSES] > 1e-9).sum() <= 1 and not mixed)


def _upper(stacks: list[Reduced], low: int, high: int, depth: int, label: int) -> int:
    """Where those of [low, high) with this label at this depth end."""
    begin = low
    while low < high:
        middle = (low + high) // 2
        if stacks[middle][depth] == label:
            low = middle + 1
        else:
            high = middle
    return max(low, begin + 1)


def _common(one: Reduced, other: Reduced, begin: int) -> int:
    end = min(len(one), len(other))
    while begin < end and one[begin] == other[begin]:
        begin += 1
    return begin
