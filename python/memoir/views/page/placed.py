# SPDX-License-Identifier: Apache-2.0
"""Where a simulated policy puts the objects of a trace, as a map."""

from __future__ import annotations

import numpy as np

from memoir import _core
from memoir._core import Trace, Workload
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import Curve, Map, Mark

_NOWHERE = np.uint64(2**64 - 1)


def placed_map(
    trace: Trace,
    device: int,
    policy: str,
    objects: ObjectSet,
    *,
    name: str,
    cap: int | None = None,
    recorded: str = "",
    held: str = "held",
) -> Map:
    """`objects`: objects_of(trace) or of this device, whose order is that of the trace. `held`: what the curve of what the
    policy held is called. Raises Error as _core.simulate does."""
    workload = Workload(trace, device)
    places = _core.placements(workload, policy, cap, recorded)
    born = places["born"].astype(np.int64)
    order = np.argsort(born, kind="stable")
    at = np.searchsorted(born[order], objects.born)
    at = np.minimum(at, max(len(order) - 1, 0))
    which = order[at]
    found = born[which] == objects.born
    offset = places["offset"][which]
    placed = found & (offset != _NOWHERE)
    marks = []
    stopped = len(places["event"]) < workload.operations and len(places["event"]) > 0
    if stopped and (offset == _NOWHERE).any():
        failed = int(objects.born[found & (offset == _NOWHERE)].min())
        marks = [Mark(failed, "failed", "out of memory")]
    space = _stacked(places["space"][which], offset, objects.size, placed)
    curve = Curve(held, "held", places["event"].astype(np.int64), places["reserved"].astype(np.int64))
    lines = [] if cap is None else [("cap", cap)]
    return Map(name, offset + space, placed=placed, curves=[curve], marks=marks, lines=lines)


def _stacked(space: np.ndarray, offset: np.ndarray, size: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """What to add to offsets, so that heaps with address spaces of their own (streams, pools) are drawn one above the
    other."""
    added = np.zeros(len(offset), np.uint64)
    base = np.uint64(0)
    for one in np.unique(space[placed]):
        mine = placed & (space == one)
        added[mine] = (int(base) - int(offset[mine].min())) % 2**64  # what is added to it wraps back
        base += np.uint64(int((offset[mine] - offset[mine].min() + size[mine].astype(np.uint64)).max()))
        base += np.uint64(int(base) // 64)
    return added
