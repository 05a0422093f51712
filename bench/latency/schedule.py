# SPDX-License-Identifier: Apache-2.0
"""Which cells are measured and in which order the allocators take their turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

TARGET_SECONDS = 0.25  # about how long one allocator's turn lasts when --passes is not given
MOST_PASSES = 200
FEWEST_BLOCKS = 3  # of a cell, even when the budget is spent


@dataclass(frozen=True, order=True)
class CellKey:
    """One cell: a network, its input, and either intra-op threads or callers of one thread each."""

    net: str
    batch: int
    side: int
    threads: int
    callers: int

    @property
    def label(self) -> str:
        who = (
            f"{self.callers} callers"
            if self.callers > 1
            else f"{self.threads} thread{'s' * (self.threads > 1)}"
        )
        return f"{self.net} {self.batch}x{self.side} {who}"

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> CellKey:
        """From a results file; raises ValueError or TypeError when it is not a cell's key."""
        key = cls(**fields)
        if not isinstance(key.net, str) or not all(
            isinstance(n, int) for n in (key.batch, key.side, key.threads, key.callers)
        ):
            raise ValueError(f"not the key of a cell: {fields}")
        return key

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def matrix(
    nets: Sequence[str],
    batches: Sequence[int],
    sides: Sequence[int],
    threads: Sequence[int],
    callers: Sequence[int],
) -> list[CellKey]:
    """Every cell, network by network. `threads` is for one caller; several have one thread each."""
    keys = []
    for net in nets:
        for side in sides:
            for batch in batches:
                alone = [CellKey(net, batch, side, count, 1) for count in threads if 1 in callers]
                keys += alone + [CellKey(net, batch, side, 1, count) for count in callers if count > 1]
    return keys


def turns(variants: Sequence[str], seed: int, key: CellKey, block: int) -> list[str]:
    """The order of the allocators in one replicate: shuffled for every block, repeatable by the seed."""
    order = list(variants)
    random.Random(f"{seed}/{key.label}/{block}").shuffle(order)
    return order


def passes_for(pass_ns: float) -> int:
    """Passes per turn, so that a turn lasts about TARGET_SECONDS: equal for all allocators of a cell."""
    return max(1, min(MOST_PASSES, round(TARGET_SECONDS * 1e9 / pass_ns)))
