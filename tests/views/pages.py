# SPDX-License-Identifier: Apache-2.0
"""Pages for the tests, and the heap map drawn a second time, by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from memoir.traces.files import open_trace
from memoir.views.page import HeapMaps, Map, ObjectSet, Page
from memoir.views.page.of_trace import trace_page
from memoir.views.trace_summary import summarize

DATA = Path(__file__).parents[1] / "data"
NO_OBJECT, HELD = 0xFFFFFFFF, 0xFFFFFFFE


def page_of(path: Path) -> str:
    trace = open_trace(path)
    return trace_page(path.name, trace, summarize(trace)).render()


def random_objects(count: int, seed: int, ticks: int = 4000) -> tuple[ObjectSet, np.ndarray]:
    """Objects of all sizes anywhere: some overlap, some are far less than a pixel."""
    random = np.random.default_rng(seed)
    born = np.sort(random.integers(0, ticks, count))
    died = np.minimum(born + 1 + (random.pareto(0.7, count) * 3).astype(np.int64), ticks)
    size = (2 ** random.uniform(3, 22, count)).astype(np.int64)
    addresses = random.integers(0, 2**26, count).astype(np.uint64)
    columns = {"thread": random.integers(0, 5, count)}
    return ObjectSet(born, died, size, ticks, "step", columns=columns), addresses


def map_page(objects: ObjectSet, *addresses: np.ndarray) -> str:
    maps = [Map(f"map {number}", each) for number, each in enumerate(addresses)]
    return Page("made up").add(HeapMaps("Where is everything?", objects, maps)).render()


def drawn_by_numpy(born, died, low, size, width, height, view) -> np.ndarray:
    """The rule of script/raster.js: object numbers, row 0 at the top."""
    t0, t1, a0, a1 = view
    sx, sy = width / (t1 - t0), height / (a1 - a0)
    ids = np.full((height, width), NO_OBJECT, np.uint32)
    area = size.astype(float) * np.maximum(died - born, 1)
    order = np.argsort(np.frexp(area)[1], kind="stable")
    for k in order.tolist():
        if born[k] >= t1 or died[k] < t0 or low[k] >= a1 or low[k] + size[k] <= a0:
            continue
        x0, x1 = int(np.floor((born[k] - t0) * sx)), int(np.floor((died[k] - t0) * sx))
        y0, y1 = int(np.floor((low[k] - a0) * sy)), int(np.floor((low[k] + size[k] - a0) * sy))
        x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)
        if x1 > x0 and y1 > y0:
            ids[height - y1 : height - y0, x0:x1] = k
    return ids
