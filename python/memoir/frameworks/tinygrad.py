# SPDX-License-Identifier: Apache-2.0
"""memoir's planner for tinygrad's schedules, instead of its own first fit in time.

    memoir.tinygrad.install()   # before what is to be planned; uninstall() takes it back

A schedule that memoir cannot plan, or not in less memory, tinygrad plans as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memoir.frameworks.plug import DEADLINE, Placed, hand_over, place

__all__ = ["install", "uninstall"]

BLOCK = 256  # bytes: tinygrad's alignment and rounding
USERS = ("tinygrad.schedule", "tinygrad.engine.jit")  # modules that hold the function by its name

_theirs: Callable[..., Any] | None = None


def install(deadline: float = DEADLINE) -> None:
    """tinygrad's schedules and JITs are planned by memoir from now on, each with at most `deadline` seconds of search.
    Not thread-safe. Raises ImportError where tinygrad is not, or is one without memory_plan_rewrite()."""
    global _theirs
    import importlib

    modules = [importlib.import_module(name) for name in USERS]
    if _theirs is None:
        _theirs = importlib.import_module("tinygrad.schedule.memory").memory_plan_rewrite
    theirs = _theirs

    def memory_plan_rewrite(linear: Any, held_bufs: Any = None) -> Any:
        try:
            ours = _plan(linear, held_bufs, deadline)
        except Exception as error:
            hand_over("tinygrad", f"{type(error).__name__}: {error}")
            ours = None
        return theirs(linear, held_bufs) if ours is None else ours

    for module in modules:
        if not hasattr(module, "memory_plan_rewrite"):
            raise ImportError(f"this tinygrad's {module.__name__} plans no memory: memoir knows 0.14")
    for module in modules:
        module.memory_plan_rewrite = memory_plan_rewrite  # type: ignore[attr-defined]


def uninstall() -> None:
    """tinygrad plans for itself again."""
    global _theirs
    import importlib

    if _theirs is not None:
        for name in USERS:
            importlib.import_module(name).memory_plan_rewrite = _theirs  # type: ignore[attr-defined]
        _theirs = None


def _plan(linear: Any, held_bufs: Any, deadline: float) -> Any:
    """The schedule with each buffer in the arena of its lane; None where tinygrad's own plan is as small, or it plans none."""
    from tinygrad.dtype import dtypes
    from tinygrad.helpers import DEBUG, NO_MEMORY_PLANNER
    from tinygrad.schedule.memory import _can_plan, _collect_bufs
    from tinygrad.uop.ops import Ops, UOp

    if NO_MEMORY_PLANNER:
        return None
    held = held_bufs or set()
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    copied = set()
    for tick, item in enumerate(linear.src):
        used = [b for source in item.src[1:] for b in _collect_bufs(source) if _can_plan(b, held)]
        for buffer in used:
            first.setdefault(buffer, tick)
            last[buffer] = tick
        if item.src[0].op is Ops.COPY:
            copied.update(used)
    # What copies use has arenas of its own, and is kept for twice its life: computing never waits for a copy.
    lanes: dict[tuple[Any, bool], list[Any]] = {}
    for buffer in first:
        lanes.setdefault((buffer.device, buffer in copied), []).append(buffer)
    arenas: dict[Any, Any] = {}
    offsets: dict[Any, int] = {}
    taken = theirs_take = 0
    for lane, buffers in lanes.items():
        ends = [last[b] + 1 + (last[b] - first[b] + 1 if lane[1] else 0) for b in buffers]
        sizes = [max(BLOCK, _round_up(_bytes(b))) for b in buffers]
        placed = place([first[b] for b in buffers], ends, sizes, BLOCK, deadline)
        arenas[lane] = UOp.new_buffer(lane[0], placed.arena_size, dtypes.int8)
        offsets.update(zip(buffers, placed.offsets, strict=True))
        taken += placed.arena_size
        theirs_take += _theirs_takes([first[b] for b in buffers], ends, buffers, placed)
    if not offsets or taken > theirs_take:
        return None
    if DEBUG >= 1:
        print(
            f"memoir: {len(offsets)} buffers in {len(arenas)}: {taken / 1e6:.2f} MB, tinygrad {theirs_take / 1e6:.2f} MB"
        )
    places = {
        buffer: arenas[(buffer.device, buffer in copied)][at : at + buffer.nbytes()].bitcast(buffer.dtype)
        for buffer, at in offsets.items()
    }
    return linear.substitute(places, name="memory plan", walk=True)


def _theirs_takes(first: list[int], ends: list[int], buffers: list[Any], placed: Placed) -> int:
    """The bytes that tinygrad's planner would take for a lane; asked only where ours may be more."""
    if placed.arena_size == placed.load:
        return placed.arena_size
    from tinygrad.runtime.support.memory import TLSFAllocator

    sizes = [_round_up(_bytes(buffer)) for buffer in buffers]
    allocator = TLSFAllocator(2 * sum(sizes), block_size=BLOCK, lv2_cnt=32)
    events = sorted(
        [(tick, True, index) for index, tick in enumerate(first)]
        + [(tick, False, index) for index, tick in enumerate(ends)],
        key=lambda event: event[:2],
    )
    at: dict[int, int] = {}
    peak = 0
    for _, opens, index in events:
        if opens:
            at[index] = allocator.alloc(sizes[index])
            peak = max(peak, at[index] + _bytes(buffers[index]))
        else:
            allocator.free(at[index])
    return _round_up(peak)


def _bytes(buffer: Any) -> int:
    return int(buffer.max_numel() * buffer.dtype.itemsize)


def _round_up(size: int) -> int:
    return size + -size % BLOCK
