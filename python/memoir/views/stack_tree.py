# SPDX-License-Identifier: Apache-2.0
"""Stacks as the tree that they are: as texts next to each other, those of a small file would be thousands of times as long
as it.

tree = StackTree()
node_of = tree.of(trace, lambda site: [trace.site_name(site)])
" > ".join(tree.labels(node_of(site)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from memoir._core import Trace

# What is kept of a stack that has more: of its frames, and of the bytes of their texts (as src/memoir/trace/read/stack_cut.h).
OUTER, INNER = 384, 128
OUTER_TEXT, INNER_TEXT = 24 << 10, 8 << 10


class StackTree:
    """A node is a label above its parent node. Sites with equal labels are one node, whatever trace they are of. 0 is the
    empty stack."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, Any], int] = {}
        self._labels: list[Any] = [None]
        self._parents, self._depths, self._texts, self._outer = [0], [0], [0], [0]

    def of(self, trace: Trace, labels_of: Callable[[int], Iterable[Any]]) -> Callable[[int], int]:
        """A function from a site of the trace to its node. labels_of: a site's own labels, outermost first."""
        by_site: dict[int, int] = {}

        def node_of(site: int) -> int:
            chain = []
            at: int | None = site
            while at and at not in by_site:
                chain.append(at)
                at = trace.site_parent(at)
            node = by_site[at] if at else 0
            for each in reversed(chain):
                for label in labels_of(each):
                    node = self._child(node, label)
                by_site[each] = node
            return node

        return node_of

    def labels(self, node: int, between: str = "[{:,} frames]") -> list[Any]:
        """Outermost first. between: what stands for those that are left out, with their number."""
        depth, outer = self._depths[node], self._outer[node]
        inner: list[Any] = []
        whole = depth <= OUTER + INNER and self._texts[node] <= OUTER_TEXT + INNER_TEXT
        at = node
        while at and (whole or at != outer and len(inner) < INNER):
            if not whole and inner and self._texts[node] - self._texts[self._parents[at]] > INNER_TEXT:
                break
            inner.append(self._labels[at])
            at = self._parents[at]
        if at:
            left_out = self._depths[at] - self._depths[outer]
            inner += [between.format(left_out)] * (left_out > 0)
            while outer:
                inner.append(self._labels[outer])
                outer = self._parents[outer]
        return inner[::-1]

    def _child(self, node: int, label: Any) -> int:
        found = self._children.setdefault((node, label), len(self._parents))
        if found == len(self._parents):
            depth = self._depths[node] + 1
            text = self._texts[node] + (len(label) + 1 if isinstance(label, str) else 0)
            self._parents.append(node)
            self._labels.append(label)
            self._depths.append(depth)
            self._texts.append(text)
            self._outer.append(found if depth <= OUTER and text <= OUTER_TEXT else self._outer[node])
        return found
