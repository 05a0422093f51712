# SPDX-License-Identifier: Apache-2.0
"""What memoir's plugs for other frameworks share: a problem in lists, placed; and the way back to the framework's own planner.

No framework is imported here."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from memoir.planning import Problem, plan

DEADLINE = 1.0  # seconds that a plan may search, unless the user says otherwise


class Placed(NamedTuple):
    offsets: list[int]  # bytes, one per buffer
    arena_size: int  # bytes
    load: int  # bytes: no arena can be smaller
    seconds: float


def place(
    lower: Sequence[int],
    upper: Sequence[int],
    sizes: Sequence[int],
    alignment: int,
    deadline: float = DEADLINE,
) -> Placed:
    """Offsets for buffers that live from tick `lower` to before `upper`. Sizes in bytes, 0 allowed: such a buffer gets
    the offset 0. Every offset is a multiple of `alignment`. Raises memoir.Error for what is not a problem."""
    import numpy as np

    held = [index for index, size in enumerate(sizes) if size > 0]
    offsets = [0] * len(sizes)
    if not held:
        return Placed(offsets, 0, 0, 0.0)

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array([values[index] for index in held], np.uint64)

    problem = Problem(column(lower), column(upper), column(sizes), np.full(len(held), alignment, np.uint64))
    result = plan(problem, deadline=deadline)
    for index, offset in zip(held, result.offsets.tolist(), strict=True):
        offsets[index] = offset
    return Placed(offsets, result.arena_size, result.load, result.seconds)


@functools.lru_cache(maxsize=64)  # the same words once, not at every model
def hand_over(framework: str, why: str) -> None:
    """Warns that the framework's own planner plans, since memoir could not."""
    warnings.warn(
        f"memoir could not plan for {framework}, so its own planner does it: {why}",
        RuntimeWarning,
        stacklevel=3,
    )
