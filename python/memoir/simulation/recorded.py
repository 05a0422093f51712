# SPDX-License-Identifier: Apache-2.0
"""What a trace tells of the allocator of PyTorch that it was recorded from."""

from __future__ import annotations

import json
import re
from typing import Any

from memoir import _core
from memoir._core import Error, Trace, Workload


def recorded_settings(trace: Trace) -> str | None:
    """The settings that PyTorch's allocator had, as a text of PYTORCH_CUDA_ALLOC_CONF; None when they were not recorded.

    Not of it: which kind of segments it used, which the segments tell; and per_process_memory_fraction, a share of what
    was not recorded.
    """
    try:
        settings = json.loads(trace.meta("torch_settings") or "null")
    except ValueError:
        return None
    if not isinstance(settings, dict):
        return None
    parts = []
    split = settings.get("max_split_size")
    if isinstance(split, int) and 0 <= split < 2**62:  # -1: no limit
        parts.append(f"max_split_size_mb:{split >> 20}")
    threshold = settings.get("garbage_collection_threshold")
    if isinstance(threshold, (int, float)) and threshold > 0:
        parts.append(f"garbage_collection_threshold:{threshold}")
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and any(value not in (0, 1) for value in divisions.values()):
        steps = ",".join(f"{size}:{value}" for size, value in divisions.items())
        alike = len(divisions) == 16 and len(set(divisions.values())) == 1  # every range that there is
        parts.append(f"roundup_power2_divisions:{next(iter(divisions.values())) if alike else f'[{steps}]'}")
    text = str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or "")
    for key in ("large_segment_size_mb", "max_non_split_rounding_mb"):  # that have no entry of their own
        parts += [f"{key}:{value}" for value in re.findall(rf"\b{key}\s*:\s*(\d+)", text)[-1:]]
    return ",".join(parts)


def recorded_policy(workload: Workload, settings: str | None) -> str:
    """The policy that made the recording. Raises Error when it cannot be told, or cannot have been in that state."""
    name = _core.recorded_policy(workload)
    policy = f"{name}:{settings}" if settings else name
    try:
        _core.check_policy(policy)
    except Error as error:
        raise Error(f"its recorded settings cannot be PyTorch's: {error}") from None
    _core.check_recorded_start(workload, policy)
    return policy


def recorded_cap(failure: dict[str, Any]) -> tuple[int, str]:
    """(bytes that the recorded allocator could have had at least, where they are known from) of one of
    Workload.failures; see recorded_limits()."""
    low, _, known_from = recorded_limits(failure)
    return low, known_from


def recorded_limits(failure: dict[str, Any]) -> tuple[int, int, str]:
    """(the least that the limit of the recorded allocator was, the most, where they are known from): bytes.

    They differ where the device had room: a share of it (per_process_memory_fraction) was the limit, which was no less
    than what was held, and less than that and what the allocator asked the device for.
    """
    asked = _device_asked(failure["asked"])
    if failure["device_free"] < asked + _UNIT:
        return failure["cap"], failure["cap"], "held and free"
    low = max(failure["reserved"], 1)
    return low, low + asked, "held"


_UNIT = 20 * 2**20  # bytes: PyTorch's allocator asks the device for so much more than it needs at most


def _device_asked(size: int) -> int:
    """What PyTorch's allocator asks of the device, at most, when no block serves a request."""
    return -(-size // _UNIT) * _UNIT
