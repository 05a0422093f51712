# SPDX-License-Identifier: Apache-2.0
"""The stacks of a program as a page takes them: exact sums of each stack, so that what a page needs follows from the number
of stacks and not from that of objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memoir.traces.own_code import Owner
from memoir.traces.stacks import NONE
from memoir.views.page.columns import PackedColumn, pack
from memoir.views.page.sites import LONGEST_NAME, shortened
from memoir.views.who import Who

#: what a flame graph can be by: (key, what it is called, whether it counts objects)
MEASURES = (
    ("kept", "never freed", False),
    ("held", "peak", False),
    ("at_end", "freed only at the end", False),
    ("churn", "churn: freed again", True),
    ("temporary", "temporary: freed at once", True),
    ("growth", "growth", False),
    ("allocated", "allocated", False),
)
MOST_STACKS = 20_000  # those with the most by any measure; the others are one


@dataclass
class StackSet:
    """Rows as in traces/stacks.py; of each measure what the stack that ends in a row has itself."""

    functions: list[str]
    places: list[str]
    owners: list[int]
    frame: np.ndarray
    parent: np.ndarray  # + 1, 0 at the bottom
    own: dict[str, np.ndarray]
    left_out: int

    @staticmethod
    def of(who: Who) -> StackSet:
        weights = who.weights()
        kept = _largest(weights)
        kept = kept[who.stacks.row[kept] != NONE]
        used = who.stacks.row[kept].astype(np.int64)
        rows, number = _closed(who.stacks.parent, used)
        frames, which = np.unique(who.stacks.frame[rows], return_inverse=True)
        parent = who.stacks.parent[rows].astype(np.int64)
        has_parent = parent != NONE
        above = np.zeros(len(rows), np.int64)
        above[has_parent] = number[parent[has_parent]] + 1
        shown = [who.stacks.frames[frame] for frame in frames.tolist()]
        functions = [shortened(frame.function, LONGEST_NAME) for frame in shown]
        places = [shortened(who.stacks.place(frame), LONGEST_NAME) for frame in shown]
        owners = [int(frame.owner) for frame in shown]
        rest = len(functions)  # a frame for the stacks that are left out or unknown
        functions, places, owners = (
            [*functions, "(smaller stacks)"],
            [*places, ""],
            [*owners, int(Owner.UNKNOWN)],
        )
        own = {}
        for name, values in weights.items():
            sums = np.zeros(len(rows) + 1, np.int64)
            np.add.at(sums, number[used], values[kept])
            sums[-1] = int(values.sum()) - int(sums.sum())
            own[name] = sums
        return StackSet(
            functions,
            places,
            owners,
            np.append(which, rest).astype(np.int64),
            np.append(above, 0),
            own,
            len(who.sites) - len(kept),
        )

    def columns(self) -> dict[str, PackedColumn]:
        return {
            "siteFrame": pack(self.frame),
            "siteParent": pack(self.parent),
            **{name: pack(values) for name, values in self.own.items()},
        }


def _largest(weights: dict[str, np.ndarray]) -> np.ndarray:
    """The stacks that are kept, by their largest share of any measure."""
    shares = [values / max(int(values.sum()), 1) for values in weights.values()]
    most = np.max(shares, axis=0) if shares else np.zeros(0)
    order = np.argsort(-most, kind="stable")[:MOST_STACKS]
    return np.sort(order[most[order] > 0])


def _closed(parent: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows on the way to those that are used, in their order; and of each row its number among them."""
    mark = np.zeros(len(parent), bool)
    todo = np.unique(used)
    while len(todo):
        mark[todo] = True
        above = parent[todo].astype(np.int64)
        above = np.unique(above[above != NONE])
        todo = above[~mark[above]]
    rows = np.flatnonzero(mark)
    number = np.zeros(len(parent), np.int64)
    number[rows] = np.arange(len(rows))
    return rows, number
