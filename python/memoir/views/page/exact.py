# SPDX-License-Identifier: Apache-2.0
"""What a page says of objects that it has not all, or whose times it rounds: sums over every object, taken before anything
is given up. Merging changes pictures, never figures.

* moments: ticks at which what is live is known to the byte: of each equal stretch of ticks the one with the most bytes
  live, so the peak is among them. A page's cursor stands on these and on no others.
* sums: by site, of each measure of a flame graph.
* lives: the cells of sizes x lifetimes, of all sites and of those with the most bytes.
* groups: by thread, stream, pass and class what a legend says.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memoir.views.page.columns import PackedColumn, pack_all
from memoir.views.page.objects import ObjectSet

_STRETCHES = (8192, 2048, 512, 128)  # moments, as many as fit
_SITES = (40, 8, 0)  # whose lifetimes are told apart, as many as fit
_GROUPS = ("thread", "stream", "pass", "lifetime", "predicted")
_SHARE = 10  # of the budget that moments may take, and lives: one part in so many
ALL_SITES = 0  # in the lives' column of sites, which are counted from 1

Columns = dict[str, np.ndarray]
Packed = dict[str, PackedColumn]


class Exact:
    """The figures of one set. Sizes in bytes, times in nanoseconds. Not thread-safe."""

    def __init__(self, objects: ObjectSet, moments: Iterable[int] = ()):
        """`moments`: ticks that are among those kept, whatever is live then."""
        self._objects = objects
        self._asked = [tick for tick in moments if 0 <= tick < objects.ticks]
        weight = objects.columns.get("bytes", objects.size)
        count = objects.columns.get("count", np.ones(len(objects), np.int64))
        self._weight, self._count = weight, count
        never = np.full(len(objects), objects.open_ended) & (objects.died >= objects.ticks)
        live = self._level(weight)
        at_peak = objects.at(int(live.argmax()) if len(live) else 0)
        temporary = (objects.died - objects.born <= 1) & ~never
        self._live = live
        self.sums: Columns = {}
        if "site" in objects.columns:
            site, sites = objects.columns["site"], len(objects.sites)
            of = {
                "peak": weight * at_peak,
                "allocated": weight,
                "count": count,
                "never": weight * never,
                "temporary": weight * temporary,
            }
            self.sums = {name: _summed(site, values, sites) for name, values in of.items()}
        self.groups = {
            name: self._group(objects.columns[name], at_peak)
            for name in _GROUPS
            if name in objects.columns and objects.columns[name].max(initial=0) > 0
        }
        self._cells = self._cells_by_site(never)

    def renumber(self, new: np.ndarray, sites: int) -> None:
        """Sites are others from now on: `new` of each old one, of `sites` in all."""
        self.sums = {name: _summed(new, values, sites) for name, values in self.sums.items()}
        self._cells["site"] = new[self._cells["site"]]

    def used_sites(self) -> np.ndarray:
        """Those that have objects."""
        return np.flatnonzero(self.sums["count"])

    def packed_sums(self) -> dict[str, Packed]:
        """Sums and groups as columns: {kind: {name: column}}."""
        groups = {f"group {name}": pack_all(columns) for name, columns in self.groups.items()}
        return {"sums": pack_all(self.sums)} | groups

    def packed_lives(self, budget: int) -> Packed:
        found: Packed = {}
        for most in _SITES:
            found = pack_all(self._lives(most))
            if sum(column.size for column in found.values()) <= budget // _SHARE:
                break
        return found

    def packed_moments(self, budget: int) -> Packed:
        found: Packed = {}
        count = self._level(self._count)
        for stretches in _STRETCHES:
            tick = self._highest(stretches)
            columns = {"tick": tick, "bytes": self._live[tick], "count": count[tick]}
            if self._objects.time is not None:
                columns["time"] = self._objects.time[tick]
            found = pack_all(columns)
            if sum(column.size for column in found.values()) <= budget // _SHARE:
                break
        return found

    def _level(self, values: np.ndarray) -> np.ndarray:
        """By tick, the sum over what lives then."""
        objects = self._objects
        change = np.zeros(objects.ticks + 1, np.int64)
        np.add.at(change, objects.born, values)
        np.add.at(change, objects.died, -values)
        return np.cumsum(change)[: objects.ticks]

    def _highest(self, stretches: int) -> np.ndarray:
        live = self._live
        begins = np.arange(0, len(live), max(-(-len(live) // stretches), 1))
        ends = np.append(begins[1:], len(live))
        highest = [
            begin + int(live[begin:end].argmax())
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        return np.unique(np.array([*highest, *self._asked], np.int64))

    def _group(self, keys: np.ndarray, at_peak: np.ndarray) -> Columns:
        there, which = np.unique(keys, return_inverse=True)
        weight = self._weight
        return {
            "key": there,
            "peak": _summed(which, weight * at_peak, len(there)),
            "bytes": _summed(which, weight, len(there)),
            "count": _summed(which, self._count, len(there)),
        }

    def _cells_by_site(self, never: np.ndarray) -> Columns:
        """By site, lifetime and size: the number of halves of decades of the lifetime + 1, 0 of what is never freed, and of
        fourths of the size; as script/lifetimes.js has them."""
        objects = self._objects
        life = objects.died - objects.born
        if objects.time is not None:
            last = len(objects.time) - 1
            life = objects.time[np.minimum(objects.died, last)] - objects.time[objects.born]
        lasts = np.floor(2 * np.log10(np.maximum(life, 1)) + 1e-9).astype(np.int64) + 1
        lasts[never] = 0
        large = np.floor(np.log2(np.maximum(objects.size, 1)) / 2).astype(np.int64)
        site = objects.columns.get("site", np.zeros(len(objects), np.int64))
        key, which = np.unique((site.astype(np.int64) * 64 + lasts) * 64 + large, return_inverse=True)
        return {
            "site": key // 4096,
            "life": key // 64 % 64,
            "size": key % 64,
            "count": _summed(which, self._count, len(key)),
            "bytes": _summed(which, self._weight, len(key)),
        }

    def _lives(self, most: int) -> Columns:
        """Rows of all sites, then of the `most` with the most bytes."""
        cells = self._cells
        parts = [np.full(len(cells["site"]), ALL_SITES)]
        rows = [np.arange(len(cells["site"]))]
        if self.sums:
            allocated = self.sums["allocated"]
            largest = np.argsort(-allocated, kind="stable")[:most]
            mine = np.flatnonzero(np.isin(cells["site"], largest[allocated[largest] > 0]))
            parts.append(cells["site"][mine] + 1)
            rows.append(mine)
        site, row = np.concatenate(parts), np.concatenate(rows)
        key, which = np.unique(
            (site * 64 + cells["life"][row]) * 64 + cells["size"][row], return_inverse=True
        )
        return {
            "site": key // 4096,
            "life": key // 64 % 64,
            "size": key % 64,
            "count": _summed(which, cells["count"][row], len(key)),
            "bytes": _summed(which, cells["bytes"][row], len(key)),
        }


def _summed(which: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
    total = np.zeros(length, np.int64)
    np.add.at(total, which, values)
    return total
