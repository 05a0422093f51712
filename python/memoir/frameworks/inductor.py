# SPDX-License-Identifier: Apache-2.0
"""memoir's planner for the memory pools of torch.compile's Inductor.

    memoir.inductor.install()   # before compiling; uninstall() takes it back

Inductor places what its kernels hand to each other in pools, size by size. memoir plans the same buffers together. Buffers
whose sizes are symbols stay where Inductor puts them, and so do outputs, which outlive the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memoir.frameworks.plug import DEADLINE, hand_over, place

__all__ = ["install", "uninstall"]

TAG = (
    "memoir-pools"  # of compiled code in PyTorch's caches: what was planned otherwise is not taken from there
)

_before: dict[str, Any] | None = None


def install(deadline: float = DEADLINE) -> None:
    """What torch.compile compiles for inference from now on has its memory planned, each graph with at most `deadline`
    seconds of search. Turns on `torch._inductor.config.memory_planning`. Not thread-safe."""
    global _before
    import torch._inductor.config as settings
    import torch.compiler.config as caching
    from torch._inductor.codegen.memory_planning import MemoryPlanner

    if _before is None:
        _before = {
            "allocate_groups": MemoryPlanner.allocate_groups,
            "memory_planning": settings.memory_planning,
            "cache_key_tag": caching.cache_key_tag,
        }
    theirs: Callable[[Any], None] = _before["allocate_groups"]

    def allocate_groups(planner: Any) -> None:
        theirs(planner)
        try:
            _replan(planner, deadline)
        except Exception as error:  # before anything of theirs is changed
            hand_over("Inductor", f"{type(error).__name__}: {error}")

    MemoryPlanner.allocate_groups = allocate_groups  # type: ignore[method-assign]
    settings.memory_planning = True
    caching.cache_key_tag = f"{_before['cache_key_tag']}{TAG}"


def uninstall() -> None:
    """Inductor plans for itself again, if it did."""
    global _before
    if _before is None:
        return
    import torch._inductor.config as settings
    import torch.compiler.config as caching
    from torch._inductor.codegen.memory_planning import MemoryPlanner

    MemoryPlanner.allocate_groups = _before["allocate_groups"]  # type: ignore[method-assign]
    settings.memory_planning = _before["memory_planning"]
    caching.cache_key_tag = _before["cache_key_tag"]
    _before = None


def _replan(planner: Any, deadline: float) -> None:
    """Moves the buffers of each device's pools into one, where that is smaller. Nothing changes when this raises."""
    from torch._inductor import config

    moves = []
    for device, pools in planner.pools.device_to_pools.items():
        members: dict[int, list[Any]] = {id(pool): [] for pool in pools}
        fixed = set()  # pools that stay: they hold an output, or a size that only a run knows
        for group in planner.buffer_groups:
            block = group.allocation
            if id(block.pool) not in members:
                continue
            members[id(block.pool)].append(block)
            symbolic = not getattr(block.symbolic_size, "is_Integer", isinstance(block.symbolic_size, int))
            if symbolic or block.earliest_available or (group.is_output and config.memory_pool != "combined"):
                fixed.add(id(block.pool))
        ours = [pool for pool in pools if id(pool) not in fixed and members[id(pool)]]
        blocks = [block for pool in ours for block in members[id(pool)]]
        if len(blocks) > 1 and config.memory_pool != "none":
            moves.append((device, pools, ours, blocks, *_place(ours, blocks, deadline)))
    for device, pools, ours, blocks, offsets, size in moves:
        if offsets is not None:
            _move(device, pools, ours, blocks, offsets, size)


def _place(ours: list[Any], blocks: list[Any], deadline: float) -> tuple[list[int] | None, int]:
    """Offsets, and the bytes of the one pool; no offsets where theirs are as small."""
    from torch._inductor.utils import ALIGN_BYTES

    lower = [int(block.live_range.begin) for block in blocks]
    upper = [max(int(block.live_range.end), low + 1) for block, low in zip(blocks, lower, strict=True)]
    placed = place(lower, upper, [int(block.symbolic_size) for block in blocks], ALIGN_BYTES, deadline)
    if placed.arena_size >= sum(int(pool.root.get_size_hint()) for pool in ours):
        return None, 0
    return placed.offsets, placed.arena_size


def _move(
    device: Any, pools: list[Any], ours: list[Any], blocks: list[Any], offsets: list[int], size: int
) -> None:
    import sympy

    pool = _pool_class()(device, _root(blocks), name=ours[0].name)
    pool.names_to_del, pool.size = [pool.name], size
    for block, offset in zip(blocks, offsets, strict=True):
        block.pool, block.offset = pool, sympy.Integer(offset)
    pools[:] = [other for other in pools if all(other is not one for one in ours)] + [pool]


def _root(blocks: list[Any]) -> Any:
    from torch._inductor.codegen.memory_planning import TemporalSplit

    return TemporalSplit(list(blocks))  # asked for when its buffers live, and for nothing else


def _pool_class() -> Any:
    import torch
    from torch._inductor.codegen.memory_planning import AllocationPool

    class PlannedPool(AllocationPool):
        """One tensor of bytes, in which every buffer has an offset of memoir's."""

        size = 0  # bytes

        def codegen_create(self, wrapper: Any, code: Any) -> None:
            code.writeline(
                wrapper.make_allocation(
                    self.name, device=self.device, dtype=torch.uint8, shape=(self.size,), stride=(1,)
                )
            )

    return PlannedPool
