# SPDX-License-Identifier: Apache-2.0
"""memoir's pools for GPU memory, in the place of PyTorch's allocator or under a MemPool."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from memoir import Error, _core
from memoir.base.files import write_new
from memoir.torch import _library, pytorch_statistics
from memoir.traces.files import is_trace, only_device, open_trace, read_begin

# PyTorch's names of the hooks, and ours
HOOKS = {
    "set_init_fn": "memoir_cuda_init",
    "set_reset_fn": "memoir_cuda_reset",
    "set_memory_fraction_fn": "memoir_cuda_memory_fraction",
    "set_base_alloc_fn": "memoir_cuda_base_alloc",
    "set_record_stream_fn": "memoir_cuda_record_stream",
    "set_begin_allocate_to_pool": "memoir_cuda_begin_pool",
    "set_end_allocate_to_pool_fn": "memoir_cuda_end_pool",
    "set_release_pool": "memoir_cuda_release_pool",
}

_kept_alive: list[Any] = []  # what C holds on to


def pools() -> dict[str, dict[str, Any]]:
    """The policies for GPUs: a description of each, and its settings with their initial values."""
    return {
        one["name"]: {
            "what": one["what"],
            "settings": {setting["name"]: setting for setting in one["settings"]},
        }
        for one in _library.read("policies")
    }


def use_pool(
    policy: str = "memoir",
    *,
    cap: int | None = None,
    history: int = 0,
    sites: bool = False,
    collect: bool = False,
    plan: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> None:
    """From now on, all GPU memory of this process comes from a pool of memoir's instead of PyTorch's allocator.

    To be called before the first use of CUDA, since PyTorch cannot change its allocator later.

    policy: "memoir", "pytorch", "expandable", "split", "binned", "rmm", ...: see `pools()`, which also says what
    `settings` each one has. "memoir,slack=0.02" is the same as "memoir", slack=0.02.
    cap: the most bytes that are taken from each device; None for no limit.
    history: how many events (allocations, frees, memory taken and given back) are kept for `snapshot`.
    sites: notes the operators that each allocation was made in, for snapshots and out-of-memory errors; costs about
    0.4 us per operator.
    collect: runs Python's garbage collector when there is no memory, before giving up.
    plan: for the policy "guided": an earlier run of the same program, as a plan file (`memoir plan --planner guided`), a
    trace, or a snapshot with the history of that whole run. Where this run differs, the pool works as "memoir" does.

    torch.cuda.memory_stats() and the functions built on it (memory_allocated, max_memory_reserved, memory_summary,
    ...) still work, with memoir's numbers; so do torch.cuda.memory_snapshot() and torch.cuda.memory._dump_snapshot().

    Raises memoir.Error when there is no CUDA driver, when CUDA was used already, and for an unknown policy or
    setting. Out of memory is a torch.OutOfMemoryError, which says which operators hold how much.
    """
    _check_numbers(cap, history)
    if torch.cuda.is_initialized():
        raise Error("memoir.torch.use_pool must be called before the first use of CUDA in the process")
    if torch.version.cuda is None:
        raise Error(
            "this PyTorch was built without CUDA: install one that was, to use memoir's pools for GPUs"
        )

    _library.check_driver()
    with _plan_file(plan) as file:
        _library.open_slot(0, _policy_text(policy, settings, file), cap, history)
    allocator = _pluggable("memoir_cuda_alloc", "memoir_cuda_free")
    for hook, function in HOOKS.items():
        getattr(allocator.allocator(), hook)(_library.address(function))
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise Error(f"PyTorch does not let its allocator be changed any more: {error}") from error
    _kept_alive.append(allocator)
    pytorch_statistics.replace_pytorchs()
    if sites:
        _library.library().memoir_cuda_listen_to_sites()
    if collect:
        on_low_memory(lambda device: gc.collect())


def pool(
    policy: str = "direct", *, cap: int | None = None, history: int = 0, **settings: Any
) -> torch.cuda.MemPool:
    """A torch.cuda.MemPool whose memory memoir takes from the device, for `with torch.cuda.use_mem_pool(...)`.

    PyTorch itself caches and splits the memory that it takes from a MemPool. So this is useful with "direct" (plain
    memory, which NICs can register) and "memoir_plain", and for a cap on the part of a program that allocates inside.
    To replace PyTorch's caching, use `use_pool`. `stats(pool)` has the statistics. When the MemPool ends, and the tensors
    in it, all of its memory goes back to the device. At most 129 at a time in a process.
    """
    text = _policy_text(policy, settings)
    _check_numbers(cap, history)
    _library.check_driver()
    slot = _library.library().memoir_cuda_free_slot()
    if slot < 0:
        raise Error("all 129 of memoir's MemPools are in use: give up one, and the tensors in it, first")
    _library.open_slot(slot, text, cap, history)
    allocator = _of_slot(slot)
    made = torch.cuda.MemPool(allocator.allocator())
    made.memoir_slot = slot  # type: ignore[attr-defined]  # ours: what stats() and snapshot() know it by
    # Called before PyTorch gives the pool's memory back to us: the last of it ends the slot.
    weakref.finalize(made, _library.library().memoir_cuda_close, slot).atexit = False
    return made


@functools.cache
def _of_slot(slot: int) -> torch.cuda.memory.CUDAPluggableAllocator:
    """Kept for ever: what is left of a pool may be freed by it later."""
    return _pluggable(f"memoir_cuda_alloc_{slot}", f"memoir_cuda_free_{slot}")


def _pluggable(allocate: str, free: str) -> torch.cuda.memory.CUDAPluggableAllocator:
    return torch.cuda.memory.CUDAPluggableAllocator(str(_library.path()), allocate, free)


def on_low_memory(callback: Callable[[int], object]) -> None:
    """Calls `callback(device)` when a request of `use_pool`'s allocator finds no memory, before it gives up: the
    place to drop caches. The callback may free tensors, but not make them. Its exceptions are shown as warnings."""

    def call(device: int, _context: int | None) -> None:
        try:
            callback(device)
        except Exception as error:  # there is no Python above to raise it in
            warnings.warn(f"memoir: on_low_memory's callback raised {error!r}", stacklevel=2)

    function = _library.LowMemoryCallback(call)
    _kept_alive.append(function)
    _library.library().memoir_cuda_on_low_memory(function, None)


def _check_numbers(cap: int | None, history: int) -> None:
    if (cap is not None and not 0 < cap < 2**64) or history < 0:
        raise ValueError("cap is a number of bytes, and history one of entries")


@contextlib.contextmanager
def _plan_file(source: str | os.PathLike[str] | None) -> Iterator[str | None]:
    """The plan file that `source` is, or one that is made of it and removed afterwards: memoir reads it at once."""
    if source is None or not is_trace(read_begin(os.fspath(source))):
        yield None if source is None else os.fspath(source)
        return
    trace = open_trace(os.fspath(source))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.plan"
        write_new(file, _core.plan_run(trace, only_device(trace, None)).to_bytes())
        yield str(file)


def _policy_text(policy: str, settings: dict[str, Any], plan: str | None = None) -> str:
    """ "memoir,slack=0.02": what the settings of a policy look like everywhere in memoir."""
    words = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in settings.items()
    ]
    if plan is not None:
        words.append(f"plan=[{plan}]")
    return ",".join([policy, *words])
