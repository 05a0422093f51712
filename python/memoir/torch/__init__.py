# SPDX-License-Identifier: Apache-2.0
"""memoir for PyTorch: on CPUs, a model that remembers what it allocates; on GPUs, memory from memoir's pools.

    import memoir.torch
    model = memoir.torch.remember(model)

The first calls record every allocation of their passes; then their memory is planned, and later calls run out of one
preallocated slab, those with shapes never seen before too. A pass that departs from its recording is served by
PyTorch's own allocator where it does: looser, never wrong.

    memoir.torch.use_pool("memoir", cap=40 * 2**30)

Before the first use of CUDA: all GPU memory of the process comes from the pool of that name. docs/guides/gpu.md says more.
"""

from __future__ import annotations

from pathlib import Path

try:
    import torch as _pytorch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("memoir.torch needs PyTorch: pip install 'memoir-alloc[torch]'") from error

from memoir.torch import _parts

_parts.load(_pytorch.__version__, Path(_pytorch.__file__).parent)

from memoir.torch.device import on_low_memory, pool, pools, use_pool  # noqa: E402
from memoir.torch.device_statistics import reset_peak_stats, snapshot  # noqa: E402
from memoir.torch.memory import Share, Stats  # noqa: E402
from memoir.torch.recording import graph_allocations, record  # noqa: E402
from memoir.torch.remembered import forget, remember, stats  # noqa: E402

__all__ = [
    "Share",
    "Stats",
    "forget",
    "graph_allocations",
    "on_low_memory",
    "pool",
    "pools",
    "record",
    "remember",
    "reset_peak_stats",
    "snapshot",
    "stats",
    "use_pool",
]
