# SPDX-License-Identifier: Apache-2.0
"""Stacks and operator chains as one tree: a site is a frame reached from its parent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from memoir._core import Trace
from memoir.base.quantities import printable
from memoir.traces.stacks import NONE, Stacks

LEFT_OUT = "(outer frames left out)"
_NOBODY = 255  # an owner that no frame of a stack has: such a frame is told last
LONGEST_NAME = 240  # characters of one frame: longer names are cut in the middle


@dataclass
class SiteTree:
    """Sites by number: `frame` is the number of its name in `frames`, `parent` the site below, -1 at the bottom."""

    frames: list[str] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)  # of each frame: traces/own_code.py's Owner
    frame: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    _frame_of: dict[str, int] = field(default_factory=dict)
    _site_of: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def add(self, name: str, parent: int = -1, owner: int = 0) -> int:
        """The number of the site of that name below that parent; a new one the first time."""
        name = shortened(printable(name), LONGEST_NAME)
        frame = self._frame_of.setdefault(name, len(self.frames))
        if frame == len(self.frames):
            self.frames.append(name)
            self.owners.append(owner)
        site = self._site_of.setdefault((parent, frame), len(self.frame))
        if site == len(self.frame):
            self.frame.append(frame)
            self.parent.append(parent)
        return site

    def add_stack(self, names: Iterable[str]) -> int:
        """The site of a stack, outermost frame first; -1 for an empty one."""
        site = -1
        for name in names:
            site = self.add(name, site)
        return site

    def chain(self, site: int) -> list[str]:
        """Names, outermost first."""
        names = []
        while site >= 0:
            names.append(self.frames[self.frame[site]])
            site = self.parent[site]
        return names[::-1]

    def cut(self, used: np.ndarray, deepest: int, longest: int) -> tuple[SiteTree, np.ndarray]:
        """A smaller tree of the sites that are `used`: of each stack the `deepest` innermost frames, below a frame that says
        so where there were more, names of at most `longest` characters; and the new number of each of them."""
        tree = SiteTree()
        renamed = [shortened(name, longest) for name in self.frames]
        new = np.zeros(len(self), np.int64)
        for site in used.tolist():
            frames: list[int] = []
            at = site
            while at >= 0 and len(frames) < deepest:
                frames.append(self.frame[at])
                at = self.parent[at]
            below = -1 if at < 0 else tree.add(LEFT_OUT, owner=_NOBODY)
            for frame in reversed(frames):
                below = tree.add(renamed[frame], below, self.owners[frame])
            new[site] = below
        return tree, new


def sites_of(trace: Trace, ids: np.ndarray) -> tuple[SiteTree, np.ndarray]:
    """The tree of a trace's sites, inlined functions are sites too, and the number in it of each of `ids`."""
    tree = SiteTree()
    unique, which = np.unique(ids, return_inverse=True)
    stacks = Stacks(trace, unique)
    texts = [stacks.text(frame) for frame in stacks.frames]
    numbers: list[int] = []
    for parent, frame in zip(stacks.parent.tolist(), stacks.frame.tolist(), strict=True):
        below = -1 if parent == NONE else numbers[parent]
        numbers.append(tree.add(texts[frame], below, int(stacks.frames[frame].owner)))
    unknown = tree.add("(unknown)") if bool((stacks.row == NONE).any()) else -1
    found = [unknown if row == NONE else numbers[row] for row in stacks.row.tolist()]
    return tree, np.array(found, np.int64)[which]


_FOLDERS = re.compile(r"(?:[^\s/\\(]*[/\\])+([^\s/\\]+)")


def short_frame(name: str) -> str:
    """Of "/a/b/c.py:12 f" what is read first, as script/text.js has it."""
    return _FOLDERS.sub(r"\1", name, count=1)


def shortened(text: str, longest: int) -> str:
    """Cut in the middle, where names of functions and paths say least."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
