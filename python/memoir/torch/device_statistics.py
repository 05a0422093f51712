# SPDX-License-Identifier: Apache-2.0
"""What memoir counts of a device's memory, and what lies where in it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from memoir import Error
from memoir.base.files import write_output
from memoir.torch import _library

_STATS = ("allocation", "allocated_bytes", "active", "active_bytes", "segment", "reserved_bytes")


def device_stats(pool: torch.cuda.MemPool | None = None, device: int | None = None) -> dict[str, Any]:
    """Statistics of one device, with the names of torch.cuda.memory_stats where the quantity is the same, all 0 while
    nothing was allocated there."""
    wanted = _device_index(device)
    for one in _library.read("stats", _slot_of(pool)):
        if one["device"] == wanted:
            flat = {"policy": one["policy"], "cap_bytes": one["cap_bytes"], "total_bytes": one["total_bytes"]}
            for name in _STATS:
                for part in ("current", "peak", "allocated", "freed"):
                    flat[f"{name}.all.{part}"] = one[name][part]
            return flat | {name: value for name, value in one.items() if name.startswith("num_")}
    return {f"{name}.all.{part}": 0 for name in _STATS for part in ("current", "peak", "allocated", "freed")}


def reset_peak_stats(pool: torch.cuda.MemPool | None = None) -> None:
    """Restarts the peaks, on every device."""
    _library.library().memoir_cuda_reset_peaks(_slot_of(pool))


def snapshot(
    path: str | os.PathLike[str] | None = None, *, pool: torch.cuda.MemPool | None = None, force: bool = False
) -> dict[str, Any]:
    """What is where, and the history, in the form of torch.cuda.memory._snapshot(): a dictionary, also written to `path`
    as torch.cuda.memory._dump_snapshot writes it. PyTorch's memory viewer (pytorch.org/memory_viz) and `memoir import`
    open the file. force: overwrites it."""
    devices = _library.read("snapshot", _slot_of(pool))
    traces: list[list[dict[str, Any]]] = [
        [] for _ in range(max((one["device"] + 1 for one in devices), default=0))
    ]
    segments = []
    for one in devices:
        for segment in one["state"]["segments"]:
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
            segments.append(segment)
        traces[one["device"]] = one["state"]["trace"]
    result = {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {"backend": "memoir"},
        "external_annotations": [],
    }
    if path is not None:
        if Path(path).exists() and not force:
            raise Error(f"{path} exists: choose another name, or force=True to overwrite it")
        write_output(Path(path), pickle.dumps(result, protocol=4), True)  # the viewer reads no newer protocol
    return result


def _slot_of(pool: torch.cuda.MemPool | None) -> int:
    slot = 0 if pool is None else getattr(pool, "memoir_slot", None)
    if slot is None:
        raise TypeError("not a pool of memoir's: pass what memoir.torch.pool returned")
    return slot


def _device_index(device: Any) -> int:
    if device is None:
        return torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    index = device if isinstance(device, int) else torch.device(device).index
    return 0 if index is None else index
