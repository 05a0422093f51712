# SPDX-License-Identifier: Apache-2.0
"""Columns of whole numbers, packed for a page: each by the coding that takes least, then deflated.

A column becomes planes of bytes (all low bytes, then all second bytes, ...) of one of

* plain: the values;
* delta: each value less the one before it, as 0, -1, 1, -2, ... -> 0, 1, 2, 3, ...;
* table: the number of each value in a table of the values that there are, the most frequent first.

`script/columns.js` reads them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_SAMPLE = 1 << 16  # values that choose the coding
_LARGEST_TABLE = 1 << 16
EXACT = 2**52 - 1  # twice as much and a sign is exact in the script's numbers


@dataclass(frozen=True)
class PackedColumn:
    """One column: how to read it, and its bytes."""

    coding: str
    count: int
    planes: int
    data: bytes
    table: tuple[int, ...] = ()

    def header(self) -> dict[str, Any]:
        """For the page's JSON."""
        return {"coding": self.coding, "count": self.count, "planes": self.planes, "table": self.table}

    @property
    def size(self) -> int:
        """Bytes that it takes in a page."""
        return len(self.data) * 4 // 3 + 8 * len(self.table) + 80

    def text(self) -> str:
        return base64.b64encode(self.data).decode()


def pack(values: np.ndarray) -> PackedColumn:
    """The values, whole numbers from 0 to EXACT. Larger ones become EXACT."""
    values = np.minimum(np.asarray(values).astype(np.uint64), np.uint64(EXACT)).astype(np.int64)
    middle = len(values) // 2
    sample = values[max(middle - _SAMPLE // 2, 0) : middle + _SAMPLE // 2]
    codings = ["plain", "delta"] + ["table"] * (len(np.unique(sample)) <= _LARGEST_TABLE // 4)
    sizes = {coding: _packed(sample, coding).size for coding in codings}
    best = min(codings, key=lambda coding: sizes[coding])
    if best == "table" and len(np.unique(values)) > _LARGEST_TABLE:
        best = min(("plain", "delta"), key=lambda coding: sizes[coding])
    return _packed(values, best)


def pack_all(columns: Mapping[str, np.ndarray]) -> dict[str, PackedColumn]:
    return {name: pack(values) for name, values in columns.items()}


def _packed(values: np.ndarray, coding: str) -> PackedColumn:
    table: tuple[int, ...] = ()
    if coding == "delta":
        change = np.diff(values, prepend=0)
        coded = np.where(change < 0, -2 * change - 1, 2 * change)
    elif coding == "table":
        there, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        coded, table = rank[which], tuple(there[order].tolist())
    else:
        coded = values
    planes = max((int(coded.max(initial=0)).bit_length() + 7) // 8, 1)
    raw = coded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :planes]
    data = zlib.compress(np.ascontiguousarray(raw.T).tobytes(), 6)
    return PackedColumn(coding, len(values), planes, data, table)


def unpack(column: PackedColumn) -> np.ndarray:
    """What pack() was given: for tests, which hold the script against it."""
    planes = np.frombuffer(zlib.decompress(column.data), np.uint8).reshape(column.planes, column.count)
    coded = sum(planes[k].astype(np.int64) << (8 * k) for k in range(column.planes))
    values = np.asarray(coded)
    if column.coding == "delta":
        return np.cumsum(np.where(values & 1, -(values + 1) // 2, values // 2))
    return np.array(column.table, np.int64)[values] if column.coding == "table" else values
