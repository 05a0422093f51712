# SPDX-License-Identifier: Apache-2.0
"""The stacks of a trace as one forest with a row for each function, and who asked at each of them: the innermost frame of
the program's own, as own_code.py has it. Its cost is that of the different stacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np

from memoir._core import FrameKind, Trace
from memoir.traces.own_code import Frame, Owner, frame_of

NONE = 2**32 - 1  # no row
_NAMELESS = (
    "operator()",
    "{{closure}}",
    "{lambda}",
    "{closure}",
)  # what a function is that stands in another one
# What comes before the part of a path that people know a library's file by.
_LIBRARY_FOLDERS = re.compile(
    r".*(?:/(?:site|dist)-packages/|/lib/python[\d.]+t?/|/node_modules/|/registry/src/[^/]+/|/pkg/mod/|/include/c\+\+/[\d.]+/|"
    r"/include/|/rustc/[^/]+/|/go/src/)"
)


class Stacks:
    """Of these sites. `all_frames`: nothing is folded, the innermost frame asked."""

    def __init__(self, trace: Trace, sites: np.ndarray, *, all_frames: bool = False):
        ids = np.ascontiguousarray(sites, np.uint64)
        self.row, self.parent, self.frame, rows = trace.forest(ids)  # of each site; of each row; of each row
        self.program = _program(trace)
        self.frames: list[Frame] = [frame_of(row, self.program) for row in rows]
        self.root = _common_folder(self.frames)
        self.all_frames = all_frames
        self.asked, self.through = self._asked()

    def _asked(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each row the row that asked, and the row of the library that it called for it, NONE where it called none."""
        owners = [int(frame.owner) for frame in self.frames]
        nameless = [frame.function in _NAMELESS for frame in self.frames]
        asked, through, lowest = [0] * len(self.parent), [NONE] * len(self.parent), [0] * len(self.parent)
        foreign = (int(Owner.PACKAGE), int(Owner.LIBRARY))
        # Code of Python in a text is the program's own where it is the program, and a start-up hook's elsewhere.
        is_python = [frame.kind == FrameKind.kPython for frame in self.frames]
        is_text = [frame.file == "<string>" for frame in self.frames]
        below_python = [False] * len(self.parent)
        rows = zip(self.parent.tolist(), self.frame.tolist(), strict=True)
        for row, (parent, frame) in enumerate(rows):
            owner = owners[frame]
            if parent != NONE and below_python[parent]:
                owner = int(Owner.PACKAGE) if is_text[frame] else owner
                below_python[row] = True
            else:
                below_python[row] = is_python[frame]
            below = parent != NONE and (owner > lowest[parent] or nameless[frame] and owner == lowest[parent])
            if self.all_frames or not below:
                asked[row], lowest[row] = row, owner
            else:
                asked[row], lowest[row], through[row] = asked[parent], lowest[parent], through[parent]
                if through[row] == NONE and owner in foreign:
                    through[row] = row
        return np.array(asked, np.uint32), np.array(through, np.uint32)

    def frame_at(self, row: int) -> Frame:
        frame: Frame = self.frames[self.frame[row]]
        return frame

    def outward(self, row: int) -> Iterator[Frame]:
        """Its frames, innermost first."""
        while row != NONE:
            yield self.frames[self.frame[row]]
            row = int(self.parent[row])

    def callers(self, row: int, most: int = 2) -> list[str]:
        """The functions of the program's own that called the one that asked at `row`, innermost first."""
        if row == NONE:
            return []
        row = int(self.asked[row])
        before = self.frame_at(row)
        found: list[str] = []
        for frame in self.outward(int(self.parent[row])):
            if len(found) == most:
                break
            is_told = frame.is_named and frame.function not in (before.function, *_NAMELESS)
            if frame.owner == before.owner and is_told:
                found.append(frame.function)
                before = frame
        return found

    def place(self, frame: Frame, line: int | None = None) -> str:
        """ "server.cc:12", as short as people know it by: of the program's own relative to it."""
        if not frame.file:
            return frame.module.rpartition("/")[2]
        at = frame.line if line is None else line
        return f"{self.file(frame)}:{at}" if at else self.file(frame)

    def file(self, frame: Frame) -> str:
        path = frame.file.removeprefix("file://")
        if frame.owner == Owner.OWN and self.root and path.startswith(self.root):
            return path[len(self.root) :]
        known = _LIBRARY_FOLDERS.match(path)
        return path[known.end() :] if known else path.rpartition("/")[2]

    def text(self, frame: Frame) -> str:
        """One line: "SessionCache::add (server.cc:12)"."""
        place = self.place(frame)
        if not place or not frame.file and not frame.is_named:
            return frame.function
        return f"{frame.function} ({place})"


def _program(trace: Trace) -> str:
    """The path of the executable: the first module, when the command or the loader says nothing else."""
    name = trace.meta("command").split(" ")[0].rpartition("/")[2]
    modules: list[str] = [module["path"] for module in trace.modules]
    named = [path for path in modules if path.rpartition("/")[2] == name]
    return (named or [path for path in modules if ".so" not in path] or [""])[0]


def _common_folder(frames: list[Frame]) -> str:
    """That all files of the program's own lie in, with its last "/"; "" where there is none."""
    folders = {
        frame.file.rpartition("/")[0]
        for frame in frames
        if frame.owner == Owner.OWN and frame.file.startswith("/")
    }
    if not folders:
        return ""
    common = os.path.commonpath(sorted(folders))
    return f"{common}/" if common != "/" else ""
