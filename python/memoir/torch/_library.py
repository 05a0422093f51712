# SPDX-License-Identifier: Apache-2.0
"""The shared object that PyTorch's CUDAPluggableAllocator loads, as Python calls it."""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

import torch

from memoir import Error, _torch
from memoir.torch import _parts

LowMemoryCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
NO_CAP = 2**64 - 1  # bytes


def path() -> Path:
    return Path(_torch.__file__).with_name("libmemoir_cuda.so")


@functools.cache
def library() -> ctypes.CDLL:
    """Loaded once, after torch, whose libraries it needs."""
    try:
        loaded = ctypes.CDLL(str(path()))
    except OSError as error:
        raise Error(_parts.does_not_load(torch.__version__, error)) from error
    loaded.memoir_cuda_problem.restype = ctypes.c_char_p
    loaded.memoir_cuda_open.restype = ctypes.c_char_p
    loaded.memoir_cuda_open.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
    loaded.memoir_cuda_on_low_memory.argtypes = [LowMemoryCallback, ctypes.c_void_p]
    for name in ("stats", "snapshot", "policies"):
        getattr(loaded, f"memoir_cuda_{name}").restype = ctypes.c_void_p
    loaded.memoir_cuda_free_text.argtypes = [ctypes.c_void_p]
    return loaded


def read(name: str, *arguments: int) -> list[dict[str, Any]]:
    """What memoir_cuda_<name> says, parsed."""
    text = getattr(library(), f"memoir_cuda_{name}")(*arguments)
    if text is None:
        raise MemoryError
    try:
        rows: list[dict[str, Any]] = json.loads(ctypes.string_at(text).decode())
        return rows
    finally:
        library().memoir_cuda_free_text(text)


def address(name: str) -> int:
    found = ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
    assert found is not None  # dlsym found it
    return found


def check_driver() -> None:
    problem = library().memoir_cuda_problem()
    if problem is not None:
        raise Error(problem.decode())


def open_slot(slot: int, policy: str, cap: int | None, history: int) -> None:
    problem = library().memoir_cuda_open(slot, policy.encode(), NO_CAP if cap is None else cap, history)
    if problem is not None:
        raise Error(problem.decode())
