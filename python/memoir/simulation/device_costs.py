# SPDX-License-Identifier: Apache-2.0
"""What calls to a GPU's driver cost: a price list, and the time of what a simulation counted."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

from memoir._core import Error
from memoir.base.files import read_regular

# The driver's names of what is counted.
CALLS = {
    "takes": "cuMemAlloc",
    "give_backs": "cuMemFree",
    "creates": "cuMemCreate",
    "releases": "cuMemRelease",
    "maps": "cuMemMap",
    "unmaps": "cuMemUnmap",
    "accesses": "cuMemSetAccess",
    "syncs": "cuCtxSynchronize",
    "waits": "cuStreamWaitEvent",
}

# Microseconds a call on an A100, for handles of 2 MiB: Prabhu et al., vAttention, ASPLOS 2025, table 3. Not in it, and
# estimates: cuMemAlloc and cuMemFree, the call of a synchronisation (what it waits for comes on top), and a wait
# between streams. bench/gpu.py measures all of them on the device at hand.
A100 = {
    "cuMemAlloc": 100.0,
    "cuMemFree": 100.0,
    "cuMemCreate": 29.0,
    "cuMemRelease": 23.0,
    "cuMemMap": 2.0,
    "cuMemUnmap": 34.0,
    "cuMemSetAccess": 38.0,
    "cuCtxSynchronize": 10.0,
    "cuStreamWaitEvent": 2.0,
}


@functools.lru_cache(maxsize=8)
def read_costs(path: str) -> dict[str, float]:
    """The price list of a file: a JSON object of microseconds by the driver's names, alone or as its "us" (bench/gpu.py
    writes both). What it leaves out costs what an A100 takes; "" is that list. Raises Error for anything else."""
    if not path:
        return A100
    try:
        content: Any = json.loads(read_regular(path))
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Error(f"{path}: is not JSON: {error}") from None
    costs = content.get("us", content) if isinstance(content, dict) else None
    if not isinstance(costs, dict):
        raise Error(
            f'{path}: is not a price list: an object such as {{"cuMemCreate": 29.0, "cuMemUnmap": 34.0}}'
        )
    for name, cost in costs.items():
        if name not in A100:
            raise Error(f"{path}: {name!r} is none of {', '.join(A100)}")
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 <= cost < math.inf:
            raise Error(f"{path}: {name} costs {cost!r}, which is not a number of microseconds")
    return A100 | {name: float(cost) for name, cost in costs.items()}


def milliseconds(calls: dict[str, int], costs: dict[str, float]) -> float:
    """Of the driver calls that a simulation counted (result["device_calls"])."""
    return sum(calls[kind] * costs[name] for kind, name in CALLS.items()) / 1000
