# SPDX-License-Identifier: Apache-2.0
"""Many .lifetimes files as one, on all cores or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence

from memoir._core import Error
from memoir.lifetimes import Lifetimes
from memoir.sweep import sweep

_GROUP = 32  # files that one task merges


def merge_files(
    paths: Sequence[str],
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    title: str | None = None,
) -> Lifetimes:
    """All of them as one: the same bytes, whatever their order and whatever runs it. The options are sweep()'s.

    Raises memoir.Error when one cannot be read, or a run is in two of them.
    """
    if len(paths) <= _GROUP and engine == "local":
        return Lifetimes.merge((Lifetimes.open(path) for path in paths), paths)
    tasks = [(tuple(paths[i : i + _GROUP]),) for i in range(0, len(paths), _GROUP)]
    swept = sweep(_merge_group, tasks, engine=engine, workers=workers, address=address, title=title)
    if swept.failed:
        raise Error(swept.failed[0].error)
    names = [f"{group[0]} ... {group[-1]}" for (group,) in tasks]
    parts = [Lifetimes.from_bytes(content, name) for content, name in zip(swept.values, names, strict=True)]
    return Lifetimes.merge(parts, names)


def _merge_group(paths: tuple[str, ...]) -> bytes:
    return Lifetimes.merge((Lifetimes.open(path) for path in paths), paths).to_bytes()
