# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory_stats() and its like, answered by memoir while its pool is in the place of PyTorch's allocator.

PyTorch raises an error there for every allocator that is not its own, so that a program that only prints
torch.cuda.max_memory_allocated() would stop working. Its functions in Python all go through a few of torch._C, which
are replaced."""

from __future__ import annotations

from typing import Any

import torch

from memoir.torch import device_statistics

_SAMPLES = ("current", "peak", "allocated", "freed")
_POOLS = ("all", "small_pool", "large_pool")
_FAMILIES = {  # PyTorch's name -> memoir's, where there is one
    "allocation": "allocation",
    "allocated_bytes": "allocated_bytes",
    "requested_bytes": "allocated_bytes",  # memoir counts what was asked for
    "active": "active",
    "active_bytes": "active_bytes",
    "segment": "segment",
    "reserved_bytes": "reserved_bytes",
    "inactive_split": None,  # what cannot be given back: memoir's free ranges can
    "inactive_split_bytes": None,
}

_counted_before: dict[int, dict[str, int]] = {}  # per device: the totals when they were last reset


def replace_pytorchs() -> None:
    """Called once, when memoir's allocator has taken PyTorch's place."""
    for name, function in {
        "_cuda_memoryStats": _statistics,
        "_cuda_resetPeakMemoryStats": _reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": _reset_totals,
        "_cuda_memorySnapshot": _snapshot,
        # torch.accelerator asks for the same in another place, and would get the numbers of an allocator that is not used.
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_emptyCache": torch._C._cuda_emptyCache,
        "_accelerator_getDeviceStats": _statistics,
        "_accelerator_resetPeakStats": _reset_peaks,
        "_accelerator_resetAccumulatedStats": _reset_totals,
    }.items():
        setattr(torch._C, name, function)

    set_fraction = torch._C._cuda_setMemoryFraction
    fractions: dict[int, float] = {}

    def set_and_keep(fraction: float, device: int) -> None:
        set_fraction(fraction, device)
        fractions[device] = fraction

    torch._C._cuda_setMemoryFraction = set_and_keep
    torch._C._cuda_getMemoryFraction = lambda device: fractions.get(device, 1.0)


def _statistics(index: int) -> dict[str, Any]:
    """The nested dictionary of torch.cuda.memory_stats_as_nested_dict(). memoir has no small and large pools: all is
    under "all"."""
    flat = device_statistics.device_stats(None, index)
    before = _counted_before.get(index, {})
    nested: dict[str, Any] = {}
    for theirs, ours in _FAMILIES.items():
        nested[theirs] = {pool: dict.fromkeys(_SAMPLES, 0) for pool in _POOLS}
        if ours is not None:
            for sample in _SAMPLES:
                name = f"{ours}.all.{sample}"
                nested[theirs]["all"][sample] = flat[name] - before.get(name, 0)
    for name in ("oversize_allocations", "oversize_segments"):
        nested[name] = dict.fromkeys(_SAMPLES, 0)
    for name in (
        "num_alloc_retries",
        "num_ooms",
        "num_device_alloc",
        "num_device_free",
        "num_sync_all_streams",
    ):
        nested[name] = flat.get(name, 0) - before.get(name, 0)
    return nested | {"max_split_size": -1}


def _reset_peaks(_index: int) -> None:
    device_statistics.reset_peak_stats()


def _reset_totals(index: int) -> None:
    _counted_before[index] = {
        name: value
        for name, value in device_statistics.device_stats(None, index).items()
        if name.startswith("num_") or name.endswith((".allocated", ".freed"))
    }


def _snapshot(_what: object = None) -> dict[str, Any]:
    """All pools and all the history that there is, whatever part was asked for."""
    return device_statistics.snapshot()
