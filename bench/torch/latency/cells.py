# SPDX-License-Identifier: Apache-2.0
"""What a cell is: a network, its input and who calls it; and how it stands in a bench's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memoir.bench.grid import Cell

TARGET_SECONDS = 0.25  # about how long one allocator's turn lasts when --passes is not given
MOST_PASSES = 200


@dataclass(frozen=True, order=True)
class CellKey:
    """One cell under any allocator: a network, its input, and either intra-op threads or callers of one
    thread each."""

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

    def under(self, variant: str) -> Cell:
        """The bench's cell. Its threads are the callers: each makes passes, so more of them are more work."""
        parameters = {"batch": self.batch, "side": self.side, "intra_op": self.threads}
        texts = tuple((name, str(value)) for name, value in parameters.items())
        return Cell(self.net, variant, self.callers, 1, texts)

    @classmethod
    def of(cls, cell: Cell) -> CellKey:
        """The inverse of under(); raises KeyError or ValueError for a cell of another bench."""
        given = dict(cell.parameters)
        batch, side, threads = (int(given[name]) for name in ("batch", "side", "intra_op"))
        return cls(cell.program, batch, side, threads, cell.threads)

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


def passes_for(pass_ns: float) -> int:
    """Passes per turn, so that a turn lasts about TARGET_SECONDS: equal for all allocators of a cell."""
    return max(1, min(MOST_PASSES, round(TARGET_SECONDS * 1e9 / pass_ns)))
