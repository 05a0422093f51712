# SPDX-License-Identifier: Apache-2.0
"""Names for the frames of a profile, from the files of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy

from memoir._core import Error
from memoir.lifetimes import Lifetimes
from memoir.record.name_reader import Line, NameReader


def name_frames(lifetimes: Lifetimes, servers: Sequence[str] = ()) -> Lifetimes:
    """A profile in which frames have the names of their functions, those that are inlined first, where the files of
    their modules are here and are the same build, or one of these debuginfod `servers` has them. What has a name keeps
    it."""
    frames = lifetimes.frames
    names: dict[int, str] = {}
    with NameReader() as reader:
        for module in range(len(lifetimes.modules)):
            of_module = (frames["module"] == module) & (frames["name"][:, 1] == 0) & (frames["offset"] > 0)
            wanted = {int(frames["offset"][number]): int(number) for number in numpy.flatnonzero(of_module)}
            if not wanted:
                continue
            path, build_id = Path(lifetimes.module_path(module)), lifetimes.build_id(module)
            found: dict[int, list[Line]] = {}
            with contextlib.suppress(Error):
                found, _ = reader.find_lines(path, build_id, wanted, servers)
            for offset, lines in found.items():
                names[wanted[offset]] = "\n".join(_plain(line) for line in lines)
    return Lifetimes(lifetimes.profile.with_names(names)) if names else lifetimes


def _plain(line: Line) -> str:
    """Without the version that symbols of the C library have."""
    return line[0].partition("@")[0].replace("\n", " ").replace("\0", " ")
