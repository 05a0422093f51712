# SPDX-License-Identifier: Apache-2.0
"""Who holds memory, who never gives it back, who asks again and again, whose memory grows: rows by the function of the
program's own that asked, as traces/stacks.py finds it. Every row is in `memoir show --json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from memoir._core import Trace, Usage
from memoir.traces.own_code import Frame, Owner
from memoir.traces.stacks import NONE, Stacks

POINTS = 60  # of each curve; a multiple of 3
_MOST_CURVES = 4096  # groups: those with the most bytes
_LINE_SHARE = 0.1  # of a row's bytes: what a line must have to be named

#: quantity -> the columns of Usage.sites that it counts
COUNTED = {
    "held": ("held", "held_bytes"),
    "kept": ("kept", "kept_bytes"),
    "churn": ("allocations", "bytes"),
    "temporary": ("temporary", "temporary_bytes"),
    "at_end": ("", ""),  # lived when the program's own code allocated for the last time, and was freed later
}


class Who:
    """Of one trace. Groups are numbered; a group is one function with what of a library it called."""

    def __init__(
        self,
        trace: Trace,
        usage: Usage,
        *,
        all_frames: bool = False,
        leaks: Callable[[Stacks], np.ndarray] | None = None,
    ):
        """`leaks`: says of each stack whether what it keeps counts as never freed; None: all does."""
        self.usage = usage
        self.sites = usage.sites
        self.stacks = Stacks(trace, self.sites["site"], all_frames=all_frames)
        self.leaks = np.ones(len(self.sites), bool) if leaks is None else leaks(self.stacks)
        self._keys: list[tuple[str, str, str]] = []
        self.group, self._frame = self._groups()
        self._counted: dict[str, tuple[np.ndarray, np.ndarray]] = {
            name: self._count(name) for name in COUNTED
        }
        self.curves = self._curves()

    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each site its group, and the frame that asked (NONE: unknown)."""
        stacks = self.stacks
        numbers: dict[tuple[str, str, str], int] = {}
        groups, frames = [], []
        by_pair: dict[tuple[int, int], int] = {}
        for row in stacks.row.tolist():
            asked = NONE if row == NONE else int(stacks.frame[stacks.asked[row]])
            called = NONE if row == NONE else int(stacks.through[row])
            through = NONE if called == NONE else int(stacks.frame[called])
            number = by_pair.get((asked, through))
            if number is None:
                if asked == NONE:
                    key = ("(unknown)", "", "")
                else:
                    frame = stacks.frames[asked]
                    name = (
                        frame.function
                        if frame.is_named
                        else f"in {frame.module.rpartition('/')[2] or 'no file'}"
                    )
                    key = (name, frame.file or frame.module, "")
                    if through != NONE:
                        key = (*key[:2], stacks.frames[through].function)
                number = by_pair[asked, through] = numbers.setdefault(key, len(numbers))
            groups.append(number)
            frames.append(asked)
        self._keys = list(numbers)
        return np.array(groups, np.uint32), np.array(frames, np.uint32)

    def _count(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """Of each site: objects and bytes that count."""
        if quantity == "at_end":
            freed = self.usage.freed_at_end(self._own_sites())
            self._held_for = freed["byte_nanoseconds"]
            return freed["count"].astype(np.int64), freed["bytes"].astype(np.int64)
        count, size = (self.sites[column].astype(np.int64) for column in COUNTED[quantity])
        if quantity == "kept":
            return np.where(self.leaks, count, 0), np.where(self.leaks, size, 0)
        if quantity == "churn":  # what was freed again
            return count - self.sites["kept"].astype(np.int64), size - self.sites["kept_bytes"].astype(
                np.int64
            )
        return count, size

    def _own_sites(self) -> np.ndarray:
        """Which sites the program's own code asked at."""
        owns = np.array([frame.owner == Owner.OWN for frame in self.stacks.frames] or [False])
        known = self._frame != NONE
        return np.where(known, owns[np.where(known, self._frame, 0)], False).astype(np.uint8)

    def _summed(self, values: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(self._keys), np.int64)
        np.add.at(sums, self.group, values)
        return sums

    def _curves(self) -> np.ndarray:
        """Of each group the most bytes live in each of POINTS stretches of time; of those without one, zeros."""
        count = len(self._keys)
        curves = np.zeros((count, POINTS), np.int64)
        by_bytes = np.argsort(-self._summed(self.sites["bytes"].astype(np.int64)), kind="stable")[
            :_MOST_CURVES
        ]
        number = np.full(count, NONE, np.uint32)
        number[by_bytes] = np.arange(len(by_bytes), dtype=np.uint32)
        if count:
            found = self.usage.curves(np.ascontiguousarray(number[self.group]), len(by_bytes), POINTS)
            curves[by_bytes] = found.astype(np.int64)
        return curves

    def rows(self, quantity: str, top: int) -> list[dict[str, Any]]:
        """The groups with the most, by `quantity`: one of COUNTED, or growth."""
        if quantity == "growth":
            return self._growth(top)
        count, size = self._counted[quantity]
        counts, sizes = self._summed(count), self._summed(size)
        order = np.lexsort((-sizes, -counts) if quantity == "churn" else (-counts, -sizes))
        if (
            quantity == "at_end"
        ):  # what was held for long first: that is what a leak is where an end cleans up
            held_for = np.zeros(len(self._keys))
            np.add.at(held_for, self.group, self._held_for)
            order = np.argsort(-held_for, kind="stable")
        weights = count if quantity == "churn" else size
        total = int((counts if quantity == "churn" else sizes).sum())
        rows = []
        for group in order[:top].tolist():
            if not counts[group]:
                continue
            of = int((counts if quantity == "churn" else sizes)[group])
            rows.append(
                {
                    **self._named(group, weights),
                    "count": int(counts[group]),
                    "bytes": int(sizes[group]),
                    "share": of / total if total else 0.0,
                    "curve": self.curves[group].tolist(),
                }
            )
        if quantity == "churn":
            at_once = self._summed(self._counted["temporary"][0])
            for row in rows:
                row["at_once"] = int(at_once[row["group"]])
        return rows

    def total(self, quantity: str) -> dict[str, int]:
        """Objects and bytes that count, of all."""
        count, size = self._counted[quantity]
        return {"count": int(count.sum()), "bytes": int(size.sum())}

    def _growth(self, top: int) -> list[dict[str, Any]]:
        """By how much more lived in the last third of the time than ever in the first."""
        third = POINTS // 3
        begin, end = (
            self.curves[:, :third].max(axis=1, initial=0),
            self.curves[:, -third:].max(axis=1, initial=0),
        )
        rise = self._rise()
        total = int(rise.sum())
        size = self._counted["held"][1] + self._counted["kept"][1]
        return [
            {
                **self._named(group, size),
                "count": int(self._summed(self.sites["kept"].astype(np.int64))[group]),
                "bytes": int(rise[group]),
                "share": int(rise[group]) / total,
                "first_bytes": int(begin[group]),
                "last_bytes": int(end[group]),
                "curve": self.curves[group].tolist(),
            }
            for group in np.argsort(-rise, kind="stable")[:top].tolist()
            if rise[group]
        ]

    def _named(self, group: int, weights: np.ndarray) -> dict[str, Any]:
        """The group as people know it. `weights`: of each site, what decides which of its lines is named."""
        function, _, through = self._keys[group]
        mine = np.flatnonzero(self.group == group)
        lines: dict[int, int] = {}  # frame -> weight
        for frame, weight in zip(self._frame[mine].tolist(), weights[mine].tolist(), strict=True):
            lines[frame] = lines.get(frame, 0) + weight
        first = max(lines, key=lambda one: lines[one])
        row: dict[str, Any] = {"group": group, "function": function, "through": through}
        if first == NONE:
            return row | {"file": "", "line": 0, "lines": [], "place": "", "own": False, "callers": []}
        frame = self.stacks.frames[first]
        by_line: dict[int, int] = {}
        for one, weight in lines.items():
            line = self.stacks.frames[one].line
            by_line[line] = by_line.get(line, 0) + weight
        least = _LINE_SHARE * sum(by_line.values())
        told = sorted(
            (line for line in by_line if line and by_line[line] >= least), key=lambda line: -by_line[line]
        )
        heaviest = int(self.stacks.row[mine[int(weights[mine].argmax())]])
        return row | {
            "file": frame.file,
            "line": told[0] if told else frame.line,
            "lines": told,
            "place": self._place(frame, told),
            "own": frame.owner == Owner.OWN,
            "callers": self.stacks.callers(heaviest),
        }

    def _place(self, frame: Frame, lines: list[int]) -> str:
        """Where the most was asked for, and up to two more lines of the function."""
        if not frame.is_named:
            return ""
        return self.stacks.place(frame, lines[0] if lines else None) + "".join(
            f",{line}" for line in lines[1:3]
        )

    def inclusive(self, quantity: str, top: int) -> list[dict[str, Any]]:
        """By function with all that it called, each stack counted once: what the functions of the program reach."""
        count, size = self._counted[quantity]
        by_frame: dict[int, int] = {}
        keys: dict[tuple[str, str], int] = {}
        frames = self.stacks.frames
        number_of = [
            keys.setdefault((frame.function, frame.file or frame.module), len(keys)) for frame in frames
        ]
        first: dict[int, int] = {}  # function -> a frame of it
        counts: dict[int, int] = {}
        parent, frame_of = self.stacks.parent.tolist(), self.stacks.frame.tolist()
        below = [[0, 0] for _ in parent]  # of each row: what it and all that it called hold
        for row, one, bytes_ in zip(self.stacks.row.tolist(), count.tolist(), size.tolist(), strict=True):
            if row != NONE and one:
                below[row][0] += one
                below[row][1] += bytes_
        for row in range(len(parent) - 1, -1, -1):  # a caller's number is smaller
            if parent[row] != NONE:
                below[parent[row]][0] += below[row][0]
                below[parent[row]][1] += below[row][1]
        # A function that called itself is counted where it was called first.
        callees: dict[int, list[int]] = {}
        for row, caller in enumerate(parent):
            callees.setdefault(caller, []).append(row)
        seen: set[int] = set()
        left = callees.get(NONE, [])[::-1]
        while left:
            row = left.pop()
            if row < 0:  # all that it called is done
                seen.remove(number_of[frame_of[~row]])
                continue
            frame = frame_of[row]
            function = number_of[frame]
            if below[row][0] and function not in seen:
                seen.add(function)
                left.append(~row)
                if self.stacks.all_frames or frames[frame].owner == Owner.OWN:
                    first.setdefault(function, frame)
                    counts[function] = counts.get(function, 0) + below[row][0]
                    by_frame[function] = by_frame.get(function, 0) + below[row][1]
            left += callees.get(row, ())[::-1]
        total = int(size.sum())
        order = sorted(by_frame, key=lambda function: (-by_frame[function], function))[:top]
        return [
            {
                "function": frames[first[function]].function,
                "place": self.stacks.place(frames[first[function]]),
                "count": counts[function],
                "bytes": by_frame[function],
                "share": by_frame[function] / total if total else 0.0,
            }
            for function in order
        ]

    def weights(self) -> dict[str, np.ndarray]:
        """Of each stack what it has by each measure of a page: bytes, of churn and temporary objects."""
        rise = self._rise()
        of_group = self._summed(self._counted["held"][1] + self._counted["kept"][1])
        own = self._counted["held"][1] + self._counted["kept"][1]
        share = own / np.maximum(
            of_group[self.group], 1
        )  # a group's growth is that of its stacks, by what they hold
        return {
            "kept": self._counted["kept"][1],
            "at_end": self._counted["at_end"][1],
            "held": self._counted["held"][1],
            "churn": self._counted["churn"][0],
            "temporary": self._counted["temporary"][0],
            "growth": np.rint(rise[self.group] * share).astype(np.int64),
            "allocated": self.sites["bytes"].astype(np.int64),
        }

    def _rise(self) -> np.ndarray:
        third = POINTS // 3
        begin, end = (
            self.curves[:, :third].max(axis=1, initial=0),
            self.curves[:, -third:].max(axis=1, initial=0),
        )
        rise: np.ndarray = np.maximum(end - begin, 0)
        return rise

    def answers(self, top: int, *, inclusive: bool = True) -> dict[str, Any]:
        """All of it, as plain data."""
        quantities: Iterable[str] = ("kept", "at_end", "held", "churn", "growth")
        found: dict[str, Any] = {name: self.rows(name, top) for name in quantities}
        if inclusive:
            found["inclusive"] = {name: self.inclusive(name, top) for name in ("held", "kept")}
        return found


def culprit(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Of the rows of one quantity the one that a reader can act on: the first of the program's own, unless it has less
    than a hundredth; else the first."""
    own = next((row for row in rows if row["own"]), None)
    if own is not None and own["share"] >= 0.01:
        return own
    return rows[0] if rows else None
