# SPDX-License-Identifier: Apache-2.0
"""Which function calls which, directly or through a few others: what tells a stack of another build, where some calls are
inlined, from one of code that never ran."""

from __future__ import annotations

from collections.abc import Iterable

import numpy

from memoir.train.trie import Reduced

MOST_BETWEEN = 4  # frames; kMostBetween of predict/model/model_format.h
_BITS = 16  # of a name's number


class Calls:
    """Of reduced stacks: each pair of a frame and one outside it that is at most MOST_BETWEEN frames away, and the frame
    next to the inner one on the shortest way; of those, the one of most stacks."""

    def __init__(self, stacks: Iterable[Reduced]):
        ordered = sorted(stacks)  # so that the same profiles give the same bytes
        names = numpy.array([name for stack in ordered for name in stack], dtype=numpy.int64)
        frames = numpy.array([len(stack) for stack in ordered], dtype=numpy.int64)
        of_stack = numpy.repeat(numpy.arange(len(ordered)), frames)
        found = []
        for distance in range(1, MOST_BETWEEN + 2):
            inner = numpy.arange(max(len(names) - distance, 0))
            outer = inner + distance
            inner = inner[(of_stack[inner] == of_stack[outer]) & (names[inner] != names[outer])]
            pairs = names[inner] << _BITS | names[inner + distance]
            found.append((pairs << 3 | distance) << _BITS | names[inner + 1])
        ways, count = numpy.unique(numpy.concatenate(found), return_counts=True)
        pair, away = ways >> (_BITS + 3), ways >> _BITS & 7
        order = numpy.lexsort((ways, -count, away, pair))
        best = order[numpy.unique(pair[order], return_index=True)[1]]
        self._between = away[best] - 1
        self._rows = numpy.zeros(len(best), [("callee", "<u2"), ("caller", "<u2"), ("next", "<u2")])
        self._rows["callee"] = pair[best] >> _BITS
        self._rows["caller"] = pair[best] & (1 << _BITS) - 1
        self._rows["next"] = ways[best] & (1 << _BITS) - 1

    def section(self, most_between: int = MOST_BETWEEN) -> bytes:
        chosen: bytes = self._rows[self._between <= most_between].tobytes()
        return chosen
