# SPDX-License-Identifier: Apache-2.0
"""`remember`, `stats` and `forget`: the wrappers that a user holds."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch

from memoir.torch.device_statistics import device_stats
from memoir.torch.memory import Memory, Options, Share, Stats

F = TypeVar("F")

_is_compiling = torch.compiler.is_dynamo_compiling  # under an exporter there are modes, which C++ sees


def remember(
    function: F,
    *,
    max_plans: int = 16,
    max_slabs: int = 8,
    max_bytes: int | None = None,
    plan: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    share: Share | None = None,
    poison: bool = False,
) -> F:
    """A callable that does what `function` does, out of planned memory. Thread-safe; results are the same bit for bit.

    function: any nn.Module (the result is one too: parameters, state_dict, train, to and hooks are the module's own) or
    callable, such as a whole training step or what torch.compile returned; or a list of them, for a list of what they
    become. Not a coroutine or generator function, whose calls return before they allocate.
    max_plans: how many input signatures are remembered; the least recently used is forgotten first.
    max_slabs: how many passes may run from a slab at the same time; more run on PyTorch's allocator.
    max_bytes: the most memory that all slabs may hold together; None for no limit.
    plan: a plan file (`memoir plan x.trace -o y.plan` of a trace of this model), or several: calls with the signature that
    one was recorded with follow it from the first on, and with two or more so do calls of other dimensions. Raises
    memoir.Error for a file that is not a plan, or for the plan of another model.
    share: the arena that these callables share with others, which do not run at the same time: see `Share`. Its limits are
    then those of all.

    poison: overwrites the bytes of each planned tensor when it is freed, to show who reads them afterwards. For tests.

    Tensors that outlive their call (outputs, caches, gradients that are kept) never live in a slab.
    """
    if max_plans < 1 or max_slabs < 1 or (max_bytes is not None and max_bytes < 0):
        raise ValueError("max_plans and max_slabs must be at least 1, and max_bytes not negative")
    if share is not None and (not isinstance(share, Share) or max_bytes is not None or poison):
        raise ValueError("share must be a memoir.torch.Share; max_bytes and poison are then given to it")
    options = Options(max_plans, max_slabs, max_bytes, plan, poison)
    if isinstance(function, (list, tuple)):
        return cast(F, type(function)([_remember(one, options, share) for one in function]))
    return cast(F, _remember(function, options, share))


def _remember(function: Any, options: Options, share: Share | None) -> Any:
    if isinstance(function, RememberedModule) or hasattr(function, "__memoir__"):
        raise ValueError("this callable is remembered already")
    if not callable(function):
        raise TypeError(
            f"memoir.torch.remember takes an nn.Module or a callable, not {type(function).__name__}"
        )
    _refuse_what_returns_early(function)
    if isinstance(function, torch.nn.Module):
        return RememberedModule(function, options, share)
    memory = Memory(getattr(function, "__qualname__", type(function).__name__), options, share)
    call = memory.call

    @functools.wraps(function)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():  # the compiler plans what it sees: it is to see the function alone
            return function(*args, **kwargs)
        return call(function, *args, **kwargs)

    remembered.__memoir__ = memory  # type: ignore[attr-defined]
    return remembered


def _refuse_what_returns_early(function: Any) -> None:
    runs = function.forward if isinstance(function, torch.nn.Module) else function
    while isinstance(runs, functools.partial):
        runs = runs.func
    if not inspect.isroutine(runs):
        runs = type(runs).__call__
    for is_one, what in (
        (inspect.iscoroutinefunction, "a coroutine function"),
        (inspect.isasyncgenfunction, "an asynchronous generator function"),
        (inspect.isgeneratorfunction, "a generator function"),
    ):
        if is_one(runs):
            raise TypeError(
                f"memoir.torch.remember cannot remember {what}: its call returns before it allocates anything; remember the "
                "functions that it calls"
            )


class RememberedModule(torch.nn.Module):
    """The remembered module itself, but for its call: an instance of a class derived from the module's own, of the same
    name, that shares its attribute dictionary. So parameters, buffers, submodules, hooks and `training` are the same
    objects whichever of the two is asked, and every method of the class works, those that call `self(...)` included."""

    __slots__ = ("__memoir__", "_remembered_module")

    __memoir__: Memory
    _remembered_module: torch.nn.Module

    def __new__(
        cls, module: torch.nn.Module, options: Options, share: Share | None = None
    ) -> RememberedModule:
        return cast(RememberedModule, super().__new__(_class_for(cast(Any, type(module)))))

    def __init__(self, module: torch.nn.Module, options: Options, share: Share | None = None):
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_remembered_module", module)
        object.__setattr__(self, "__memoir__", Memory(type(module).__name__, options, share))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_compiling():  # the compiler plans what it sees: it is to see the module alone
            return self._remembered_module(*args, **kwargs)
        return self.__memoir__.call(super().__call__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """What the module's class got after this one was made from it: torch.nn.utils.parametrize gives it another."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not hasattr(type(self._remembered_module), name):
                raise
            return getattr(self._remembered_module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            _change_class(self, value)
        else:
            super().__setattr__(name, value)

    def __copy__(self) -> RememberedModule:
        memory = self.__memoir__
        return RememberedModule(copy.copy(self._remembered_module), memory.options, memory.share)

    def __deepcopy__(self, memo: dict[int, Any]) -> RememberedModule:
        memory = self.__memoir__
        copied = RememberedModule(copy.deepcopy(self._remembered_module, memo), memory.options, memory.share)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return (RememberedModule, (self._remembered_module, self.__memoir__.options))


@functools.cache
def _class_for(module_class: Any) -> Any:
    body = {"__slots__": (), "__module__": module_class.__module__, "__doc__": module_class.__doc__}
    made = type(module_class.__name__, (RememberedModule, module_class), body)
    made.__qualname__ = module_class.__qualname__
    return made


def _change_class(remembered: RememberedModule, to: type) -> None:
    """torch.nn.utils.parametrize swaps a module's class for one with properties in place of parameters: the module that
    shares the dictionary finds them through a class of its own."""
    object.__setattr__(remembered, "__class__", to)
    module = remembered._remembered_module
    plain: Any = next(base for base in to.__mro__ if not issubclass(base, RememberedModule))
    if to is _class_for(plain):
        module.__class__ = plain
        return

    def find(self: torch.nn.Module, name: str) -> Any:
        found = to.__dict__.get(name)
        return found.fget(self) if isinstance(found, property) and found.fget else _find(self, name)

    _find = plain.__getattr__
    module.__class__ = type(to.__name__, (plain,), {"__module__": plain.__module__, "__getattr__": find})


def _memory_of(function: object) -> Memory:
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
    """Drops every plan and gives all slabs back: at once, or with the end of the pass that still uses one. A tensor
    that is still alive keeps the pages that it lies on. The callable still works, and records again on its next call.
    The counters of `stats` go on."""
    _memory_of(function).forget()
