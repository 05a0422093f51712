# SPDX-License-Identifier: Apache-2.0
"""Stacks and operator chains as one tree: a site is a frame reached from its parent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from memoir._core import Trace
from memoir.base.quantities import printable

LONGEST_NAME = 240  # characters of one frame: longer names are cut in the middle
_DEEPEST = 400


@dataclass
class SiteTree:
    """Sites by number: `frame` is the number of its name in `frames`, `parent` the site below, -1 at the bottom."""

    frames: list[str] = field(default_factory=list)
    frame: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    _frame_of: dict[str, int] = field(default_factory=dict)
    _site_of: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def add(self, name: str, parent: int = -1) -> int:
        """The number of the site of that name below that parent; a new one the first time."""
        name = shortened(printable(name), LONGEST_NAME)
        frame = self._frame_of.setdefault(name, len(self.frames))
        if frame == len(self.frames):
            self.frames.append(name)
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
        """A smaller tree of the sites that are `used`: of each stack the `deepest` innermost frames, names of at most
        `longest` characters; and the new number of each of them."""
        tree = SiteTree()
        renamed = [shortened(name, longest) for name in self.frames]
        new = np.zeros(len(self), np.int64)
        for site in used.tolist():
            names: list[str] = []
            at = site
            while at >= 0 and len(names) < deepest:
                names.append(renamed[self.frame[at]])
                at = self.parent[at]
            new[site] = tree.add_stack(names[::-1])
        return tree, new


def sites_of(trace: Trace, ids: np.ndarray) -> tuple[SiteTree, np.ndarray]:
    """The tree of a trace's sites, and the number in it of each of `ids`."""
    tree = SiteTree()
    unique, which = np.unique(ids, return_inverse=True)
    numbers: dict[int, int] = {0: -1}

    def number(site: int) -> int:
        path: list[int] = []
        while site not in numbers and len(path) < _DEEPEST:
            path.append(site)
            site = trace.site_parent(site) or 0
        below = numbers.get(site, -1)
        for one in reversed(path):
            below = numbers[one] = tree.add(trace.site_name(one) or "(unknown)", below)
        return below

    found = [number(site) for site in unique.tolist()]
    unknown = tree.add("(unknown)") if -1 in found else -1
    return tree, np.array([unknown if site < 0 else site for site in found], np.int64)[which]


_FOLDERS = re.compile(r"(?:[^\s/\\]*[/\\])+([^\s/\\]+)")


def short_frame(name: str) -> str:
    """Of "/a/b/c.py:12 f" what is read first, as script/text.js has it."""
    return _FOLDERS.sub(r"\1", name, count=1)


def shortened(text: str, longest: int) -> str:
    """Cut in the middle, where names of functions and paths say least."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
