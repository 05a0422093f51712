# SPDX-License-Identifier: Apache-2.0
"""The input signature of a call: all that decides which allocations it makes, as far as one can see from outside.

Two calls of equal signature are expected to allocate alike; when they do not, the run is looser, never wrong. So a
signature may be coarse, but must be cheap: it is taken on every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """A hashable key: tensors by shape, strides, dtype, device and requires_grad; numbers that may be sizes (int, bool),
    strings and None by value; floats and other objects by type; and the state of the calling thread that changes what
    operators allocate (grad and inference mode, intra-op threads, autocast)."""
    return (
        tuple([_key(value) for value in args]),
        tuple([(name, _key(value)) for name, value in kwargs.items()]) if kwargs else (),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
    )


def _key(value: object) -> object:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return (value.shape, value.layout, value.dtype, value.device, value.requires_grad)
        return (value.shape, value.stride(), value.dtype, value.device, value.requires_grad)
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, (tuple, list)):
        return (type(value), tuple([_key(entry) for entry in value]))
    if isinstance(value, dict):
        return (type(value), tuple([(name, _key(entry)) for name, entry in value.items()]))
    if type(value) in pytree.SUPPORTED_NODES:  # what libraries registered: caches, dataclasses
        leaves, _ = pytree.tree_flatten(value)
        return (type(value), tuple([_key(leaf) for leaf in leaves if leaf is not value]))
    return type(value)


def describe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The signature in words, for a trace's meta and for messages: `float32[1,3,224,224], no_grad, 2 threads`."""
    parts = [_words(value) for value in args]
    parts += [f"{name}={_words(value)}" for name, value in kwargs.items()]
    grad = "grad" if torch.is_grad_enabled() else "no_grad"
    mode = "inference_mode" if torch.is_inference_mode_enabled() else grad
    threads = torch.get_num_threads()
    return ", ".join([*parts, mode, f"{threads} thread{'s' if threads != 1 else ''}"])


def _words(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
    if value is None or isinstance(value, (int, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_words, value))})"
    return type(value).__name__
