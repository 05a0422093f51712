# SPDX-License-Identifier: Apache-2.0
"""Questions to the jemalloc that serves this process, by mallctl(3)."""

from __future__ import annotations

import ctypes
from typing import Any

_mallctl = getattr(ctypes.CDLL(None), "mallctl", None)
IS_HERE = _mallctl is not None


def control(name: str, into: Any = None, new: Any = None) -> bool:
    """Reads into a value of ctypes, writes one, or neither. False where this process's malloc has no such name."""

    if _mallctl is None:
        return False
    size = ctypes.byref(ctypes.c_size_t(ctypes.sizeof(into))) if into is not None else None
    length = ctypes.c_size_t(ctypes.sizeof(new) if new is not None else 0)
    old, value = (ctypes.byref(one) if one is not None else None for one in (into, new))
    return _mallctl(name.encode(), old, size, value, length) == 0  # what has no value takes no pointer at all


def read(name: str) -> int:
    """A counter of eight bytes; 0 where there is no such name."""
    value = ctypes.c_uint64()
    return value.value if control(name, value) else 0
