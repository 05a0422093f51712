# SPDX-License-Identifier: Apache-2.0
"""`remember`, `stats` and `forget`: the wrappers that a user holds."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from memoir.torch.device_statistics import device_stats
from memoir.torch.memory import Memory, Options, Stats

F = TypeVar("F", bound=Callable[..., Any])


def remember(
    function: F,
    *,
    max_plans: int = 16,
    max_slabs: int = 8,
    max_bytes: int | None = None,
    plan: str | os.PathLike[str] | None = None,
    poison: bool = False,
) -> F:
    """A callable that does what `function` does, out of planned memory. Thread-safe; results are the same bit for bit.

    function: any nn.Module (the result is one too: parameters, state_dict, train, to and hooks are the module's own) or
    callable, such as a whole training step or what torch.compile returned.
    max_plans: how many input signatures are remembered; the least recently used is forgotten first.
    max_slabs: how many passes may run from a slab at the same time; more run on PyTorch's allocator.
    max_bytes: the most memory that all slabs may hold together; None for no limit.
    plan: a plan file (`memoir plan x.trace -o y.plan` of a trace of this model): calls with the signature that it was
    recorded with follow it from the first on. Raises memoir.Error for a file that is no plan, or one of another model.

    poison: overwrites the bytes of each planned tensor when it is freed, to show who reads them afterwards. For tests.

    Tensors that outlive their call (outputs, caches, gradients that are kept) never live in a slab.
    """
    if max_plans < 1 or max_slabs < 1 or (max_bytes is not None and max_bytes < 0):
        raise ValueError("max_plans and max_slabs must be at least 1, and max_bytes not negative")
    options = Options(max_plans, max_slabs, max_bytes, plan, poison)
    if isinstance(function, RememberedModule) or hasattr(function, "__memoir__"):
        raise ValueError("this callable is remembered already")
    if isinstance(function, torch.nn.Module):
        return cast(F, RememberedModule(function, options))
    if not callable(function):
        raise TypeError(
            f"memoir.torch.remember takes an nn.Module or a callable, not {type(function).__name__}"
        )
    memory = Memory(getattr(function, "__qualname__", type(function).__name__), options)

    @functools.wraps(function)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        return memory.call(function, args, kwargs)

    remembered.__memoir__ = memory  # type: ignore[attr-defined]
    return cast(F, remembered)


class RememberedModule(torch.nn.Module):
    """The remembered module itself, but for its call: an instance of the module's own class that shares its attribute
    dictionary. So parameters, buffers, submodules, hooks and `training` are the same objects whichever of the two is
    asked, and every method of the class works, those that call `self(...)` included."""

    __slots__ = ("__memoir__", "_remembered_module")

    __memoir__: Memory
    _remembered_module: torch.nn.Module

    def __new__(cls, module: torch.nn.Module, options: Options) -> RememberedModule:
        return super().__new__(_class_for(type(module)))  # type: ignore[arg-type]  # a class is hashable

    def __init__(self, module: torch.nn.Module, options: Options):
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_remembered_module", module)
        object.__setattr__(self, "__memoir__", Memory(type(module).__name__, options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__memoir__.call(self._remembered_module, args, kwargs)

    def __repr__(self) -> str:
        return f"remembered {self._remembered_module!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> RememberedModule:
        return RememberedModule(copy.deepcopy(self._remembered_module, memo), self.__memoir__.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RememberedModule, (self._remembered_module, self.__memoir__.options))


@functools.cache
def _class_for(module_class: type) -> type:
    name = f"Remembered{module_class.__name__}"
    return type(
        name, (RememberedModule, module_class), {"__slots__": (), "__module__": module_class.__module__}
    )


def _memory_of(function: Callable[..., Any]) -> Memory:
    memory = getattr(function, "__memoir__", None)
    if not isinstance(memory, Memory):
        raise TypeError("not a remembered callable: pass what memoir.torch.remember returned")
    return memory


def stats(
    what: Callable[..., Any] | torch.cuda.MemPool | None = None, *, device: int | None = None
) -> Stats | dict[str, Any]:
    """What a remembered callable did so far, and the memory that it holds; or, for a pool that `pool` made and, without
    an argument, for the allocator that `use_pool` put in place, statistics of a device's memory, named as those of
    torch.cuda.memory_stats."""
    if what is None or isinstance(what, torch.cuda.MemPool):
        return device_stats(what, device)
    return _memory_of(what).stats()


def forget(function: Callable[..., Any]) -> None:
    """Drops every plan and gives all slabs back: at once, or with the pass or tensor that still uses one. The callable
    goes on to work, and records again on its next call. The counters of `stats` go on."""
    _memory_of(function).forget()
