# SPDX-License-Identifier: Apache-2.0
"""How a set of objects is made small enough for a page. Every figure stays what it is (exact.py); of the pictures, and of
what can be asked of one object, what is given up first is what is missed least:

1. times are rounded to 1/65536 of the recording;
2. objects smaller than a cell of 1/2048 of the time and of the addresses become one per cell and site, with their count
   and bytes; then cells are of 1/1024 to 1/64, and their sites are not known;
3. stacks keep their 12 innermost frames, then 4;
4. names keep 80 characters, then 32;
5. of the sites those with the most bytes keep their names, 8,192 and then fewer; the others are one.

The page says which of these were done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from memoir.views.page.columns import PackedColumn, pack, pack_all
from memoir.views.page.exact import Exact
from memoir.views.page.objects import ObjectSet
from memoir.views.page.sites import SiteTree

OTHER_SITES = "(other sites)"
BUDGET = 5 << 20  # bytes of a page
_ROUNDED = 1 << 16
_CELLS = (
    (2048, True),
    (1024, False),
    (512, False),
    (256, False),
    (128, False),
    (64, False),
)  # by site, or all sites together
_SITES = (8192, 2048, 512, 128)  # with names
_STACKS = ((12, 240), (4, 240), (4, 80), (2, 32))  # frames, characters


class PackedSet:
    """A set as the page's columns, and what was given up to make it so small."""

    def __init__(
        self, objects: ObjectSet, addresses: list[np.ndarray], budget: int, moments: Iterable[int] = ()
    ):
        """`addresses`: where each map draws each object. `budget`: bytes of base64 text. `moments`: ticks that are looked at
        first."""
        self.objects, self.addresses = objects, addresses
        self.quantum = 1
        self.is_merged = self.is_cut = False
        self.knows_sites = True  # of merged objects
        self.exact: dict[
            str, dict[str, PackedColumn]
        ] = {}  # what is said of all objects, where something is given up
        self._exact: Exact | None = None
        self._named = 0  # sites, before some lost their names
        self._budget = budget
        self.notes: list[str] = []
        self._pack()
        if self.size > budget and len(objects):
            self._exact = Exact(objects, moments)
            self._pack_exact()
        if self.size > budget and objects.time is not None and len(objects.time):
            self._round_times()
        for cells, by_site in _CELLS:
            if self._objects_size() > budget:
                self._merge(cells, by_site)
        for deepest, longest in _STACKS:
            if self.size > budget:
                self._cut(deepest, longest)
        for most in _SITES:
            if self.size > budget:
                self._keep_largest(most)

    @property
    def size(self) -> int:
        return self._objects_size() + self._names_size()

    def _objects_size(self) -> int:
        exact = (column.size for columns in self.exact.values() for column in columns.values())
        return sum(column.size for column in self.columns.values()) + sum(exact)

    def _names_size(self) -> int:
        text = json.dumps(self.objects.sites.frames)
        return len(text) + 5 * sum(text.count(one) for one in "<>&")  # these are written as \\u003c

    def _pack(self) -> None:
        objects = self.objects
        columns = {"born": objects.born, "life": objects.died - objects.born, "size": objects.size}
        columns |= {
            name: values
            for name, values in objects.columns.items()
            if name == "site" or values.max(initial=0) > 0
        }
        columns |= {f"address{number}": drawn for number, drawn in enumerate(self.addresses)}
        self.columns: dict[str, PackedColumn] = pack_all(columns)
        self.columns["siteFrame"] = pack(np.array(objects.sites.frame, np.int64))
        self.columns["siteParent"] = pack(np.array(objects.sites.parent, np.int64) + 1)
        self._pack_times()

    def _pack_exact(self) -> None:
        assert self._exact is not None
        self.exact |= self._exact.packed_sums() | {"lives": self._exact.packed_lives(self._budget)}

    def _pack_times(self) -> None:
        if self.objects.time is not None and len(self.objects.time):
            self.columns["time"] = pack(self.objects.time // self.quantum)

    def _round_times(self) -> None:
        time = self.objects.time
        assert time is not None
        self.quantum = max(int(time[-1]) // _ROUNDED, 1)
        if self.quantum > 1:
            self._pack_times()
            self.notes.append(f"times are rounded to {self.quantum:,} ns")

    def _merge(self, cells: int, by_site: bool) -> None:
        """Objects smaller than a cell become one per cell (and site): `count` of them, `bytes` in all."""
        objects = self.objects
        if not self.addresses:
            return
        span, top = max(objects.ticks, 1), max(int(self.addresses[0].max(initial=0)), 1)
        wide, high = -(-span // cells), -(-top // cells)
        small = ((objects.died - objects.born) < wide) & (objects.size < high)
        cell = (objects.born // wide) * np.int64(cells + 1) + self.addresses[0] // high
        key = np.where(small, cell, -1 - np.arange(len(objects)))
        if by_site and "site" in objects.columns:
            key *= np.int64(len(objects.sites) + 1)
            key += np.where(small, objects.columns["site"], 0)
        order = np.lexsort((-objects.size, key))  # the largest of a cell first: what is kept is of that one
        starts = np.flatnonzero(np.diff(key[order], prepend=key[order][0] - 1))
        first = order[starts]
        count = objects.columns.get("count", np.ones(len(objects), np.int64))
        weight = objects.columns.get("bytes", objects.size)
        columns = {name: values[first] for name, values in objects.columns.items()}
        columns["count"] = np.add.reduceat(count[order], starts)
        columns["bytes"] = np.add.reduceat(weight[order], starts)
        born = np.minimum.reduceat(objects.born[order], starts)
        died = np.maximum.reduceat(objects.died[order], starts)
        low = np.minimum.reduceat(self.addresses[0][order], starts)
        high_end = np.maximum.reduceat((self.addresses[0] + objects.size)[order], starts)
        again = np.argsort(born, kind="stable")
        before = int(count.sum())
        self.objects = replace(
            objects,
            born=born[again],
            died=died[again],
            size=(high_end - low)[again],
            columns={name: values[again] for name, values in columns.items()},
        )
        self.addresses = [low[again], *(drawn[first][again] for drawn in self.addresses[1:])]
        self._pack()
        if not self.is_merged:
            assert self._exact is not None  # made before anything is given up
            self.exact["moments"] = self._exact.packed_moments(self._budget)
        self.is_merged, self.knows_sites = True, by_site
        self.notes = [note for note in self.notes if " are drawn as " not in note]
        whose = "by cell and site" if by_site else "by cell, in the colour of the largest"
        moments = self.exact["moments"]["tick"].count
        self.notes.append(
            f"{before:,} objects are drawn as {len(again):,}: those under 1/{cells} of the time and of the "
            f"addresses are merged {whose}. Figures are of all objects, and exact; the cursor stands on "
            f"{moments:,} moments, the highest of each stretch of time"
        )

    def _keep_largest(self, most: int) -> None:
        """Of the sites, the `most` with the most bytes; the others become one."""
        if "site" not in self.objects.columns:
            return
        assert self._exact is not None
        total = self._exact.sums["allocated"].copy()
        tree = self.objects.sites
        total[[tree.frames[frame] == OTHER_SITES for frame in tree.frame]] = -1  # of an earlier turn
        there = self._sites_there()
        kept = there[np.argsort(-total[there], kind="stable")[:most]]
        if len(kept) == len(there):
            return
        self._named = max(self._named, len(there))
        deepest, longest = _STACKS[-1]
        tree, new = self.objects.sites.cut(kept, deepest, longest)
        other = tree.add(OTHER_SITES)
        is_kept = np.zeros(len(total), bool)
        is_kept[kept] = True
        self.is_cut = True
        self._renumber(tree, np.where(is_kept, new, other))
        self.notes = [note for note in self.notes if not note.startswith("the ")]
        self.notes.append(f"the {len(kept):,} sites with the most bytes keep their names, of {self._named:,}")

    def _cut(self, deepest: int, longest: int) -> None:
        if "site" not in self.objects.columns:
            return
        tree, new = self.objects.sites.cut(self._sites_there(), deepest, longest)
        self.is_cut = True
        self._renumber(tree, new)
        self.notes = [note for note in self.notes if not note.startswith("stacks")]
        self.notes.append(f"stacks keep their {deepest} innermost frames, names at most {longest} characters")

    def _sites_there(self) -> np.ndarray:
        assert self._exact is not None  # else nothing would be given up
        return self._exact.used_sites()

    def _renumber(self, tree: SiteTree, new: np.ndarray) -> None:
        """Sites are those of `tree` from now on; `new`: of each old one."""
        assert self._exact is not None
        columns = dict(self.objects.columns)
        columns["site"] = new[columns["site"]]
        self.objects = replace(self.objects, sites=tree, columns=columns)
        self._exact.renumber(new, len(tree))
        self._pack_exact()
        self._pack()
