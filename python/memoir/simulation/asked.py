# SPDX-License-Identifier: Apache-2.0
"""A request that failed and is not in the recording: its bytes, or the text of PyTorch's error, pasted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memoir._core import Error
from memoir.base.quantities import BYTE_UNITS, read_amount

_UNITS = {
    "bytes": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 2**10,
    "mb": 2**20,
    "gb": 2**30,
}
_AMOUNT = r"(\d+(?:\.\d+)?)\s*(bytes|[KMGT]i?B)"
# What PyTorch says, in the words of its versions since 1.0.
_FIGURES = {
    "asked": (rf"[Tt]ried to allocate {_AMOUNT}",),
    "total": (rf"total capacity of {_AMOUNT}", rf"{_AMOUNT} total capacity"),
    "free": (rf"of which {_AMOUNT} is free", rf"{_AMOUNT} free"),
    "allowed": (rf"{_AMOUNT} allowed",),
    "allocated": (rf"allocated memory {_AMOUNT} is allocated", rf"{_AMOUNT} already allocated"),
    "idle": (rf"and {_AMOUNT} is reserved by PyTorch but unallocated", rf"{_AMOUNT} cached"),
    "reserved": (rf"{_AMOUNT} reserved in total",),
}


@dataclass(frozen=True)
class Asked:
    """Bytes, as far as they are said; those of an error's text are rounded to its digits."""

    asked: int
    device: int | None = None
    total: int | None = None  # the device has
    free: int | None = None  # of it, on the device
    allowed: int | None = None  # by per_process_memory_fraction
    allocated: int | None = None
    reserved: int | None = None

    @property
    def cap(self) -> int | None:
        """The most that the allocator could have held; None when it is not said."""
        if self.allowed is not None and (self.total is None or self.allowed < self.total):
            return self.allowed
        if self.reserved is None or self.free is None:
            return None
        return self.reserved + self.free


def read_asked(text: str) -> Asked:
    """Of bytes (2GiB), or of the text of an error. Raises Error for what is neither."""
    amount = read_amount(text)
    if amount is not None and amount[1] in BYTE_UNITS and amount[0] > 0:
        size = int(amount[0] * BYTE_UNITS[amount[1]])
        if size >= 2**62:
            raise Error(f"'{text.strip()[:80]}': no device has 2^62 bytes; what was asked for?")
        return Asked(size)
    found = {name: _figure(text, patterns) for name, patterns in _FIGURES.items()}
    if found["asked"] is None:
        raise Error(
            f"'{text.strip()[:80]}' is neither bytes (2GiB) nor PyTorch's error: paste its whole text, which begins with "
            "'CUDA out of memory. Tried to allocate'"
        )
    gpu = re.search(r"GPU\s+(\d+)", text)
    allocated, idle, reserved = found["allocated"], found["idle"], found["reserved"]
    if reserved is None and allocated is not None and idle is not None:
        reserved = allocated + idle
    return Asked(
        found["asked"],
        None if gpu is None else int(gpu[1]),
        found["total"],
        found["free"],
        found["allowed"],
        allocated,
        reserved,
    )


def _figure(text: str, patterns: tuple[str, ...]) -> int | None:
    for pattern in patterns:
        match = re.search(pattern, " ".join(text.split()))
        if match is not None:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    return None
