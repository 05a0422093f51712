# SPDX-License-Identifier: Apache-2.0
"""A call's input signature in words, for a trace's meta and for messages. What decides which plan a call follows is
taken in C++ (bindings/torch_call_shape.h)."""

from __future__ import annotations

from typing import Any

import torch

DEPTH = 8  # of arguments within arguments


def describe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`float32[1,3,224,224], no_grad, 2 threads`."""
    parts = [_words(value, 0) for value in args]
    parts += [f"{name}={_words(value, 0)}" for name, value in kwargs.items()]
    grad = "grad" if torch.is_grad_enabled() else "no_grad"
    mode = "inference_mode" if torch.is_inference_mode_enabled() else grad
    threads = torch.get_num_threads()
    return ", ".join([*parts, mode, f"{threads} thread{'s' if threads != 1 else ''}"])


def _words(value: object, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        try:
            return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
        except (RuntimeError, ValueError):  # nested, or not initialised yet
            return type(value).__name__
    if value is None or isinstance(value, (int, str)):
        return repr(value)
    if isinstance(value, (tuple, list)) and depth < DEPTH:
        return f"({', '.join(_words(entry, depth + 1) for entry in value)})"
    return type(value).__name__
