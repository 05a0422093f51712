# SPDX-License-Identifier: Apache-2.0
"""An arena in which a model is run as it was planned: every byte that is not live is overwritten before and after each
step. What reads a tensor that the plan thinks dead, or lets two that live share bytes, computes something else."""

import numpy as np

import memoir
from memoir import _core


class Arena:
    """The rows of an Imported, placed by the planner; values are stored by the rows' names."""

    def __init__(self, imported, seed=0):
        problem = _core.parse_csv(imported.csv(), imported.path).problem
        found = memoir.plan(problem, work_limit=5000, threads=1)
        self.size = found.arena_size
        self.rows = {
            row.id: (row, int(offset)) for row, offset in zip(imported.rows, found.offsets, strict=True)
        }
        assert len(self.rows) == len(imported.rows)
        self._bytes = np.zeros(self.size, np.uint8)
        self._noise = np.random.default_rng(seed)
        self._forms = {}  # name: (row, dtype, shape)

    def write(self, name, value, within=None):
        """`within`: the row whose bytes it has, where it is a view."""
        row, offset = self.rows[within or name]
        value = np.asarray(value, order="C")
        assert value.nbytes <= row.size, f"{name} has {value.nbytes} bytes, and {row.size} are planned"
        self._forms[name] = (within or name, value.dtype, value.shape)
        self._bytes[offset : offset + value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)

    def read(self, name):
        inside, dtype, shape = self._forms[name]
        offset = self.rows[inside][1]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(self._bytes[offset : offset + size].tobytes(), dtype).reshape(shape)

    def has(self, name):
        return name in self._forms

    def destroy(self, tick):
        """All that the plan does not say to live at that tick."""
        dead = np.ones(self.size, bool)
        for row, offset in self.rows.values():
            pauses = [tuple(map(int, gap.split("-"))) for gap in row.gaps.split()]
            if row.lower <= tick < row.upper and not any(a <= tick < b for a, b in pauses):
                dead[offset : offset + row.size] = False
        self._bytes[dead] = self._noise.integers(0, 256, int(dead.sum()), np.uint8)
