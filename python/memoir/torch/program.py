# SPDX-License-Identifier: Apache-2.0
"""What `memoir run` starts in the Python program that it runs, when that has imported torch: every outermost module call
is remembered, plans are given, a pool for GPUs is put in place. Nothing here raises: what cannot be done is said in a
line, and the program runs without it."""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from memoir import Error, _torch
from memoir.base.quantities import BYTE_UNITS, read_amount
from memoir.torch.device import use_pool
from memoir.torch.memory import Memory, Options, new_ledger, open_model_plan

# What `memoir run` sets, for the program and for the processes that it starts.
REMEMBER, PLANS, POOL, REPORT = "MEMOIR_REMEMBER", "MEMOIR_PLANS", "MEMOIR_POOL", "MEMOIR_REPORT"

_is_compiling = torch.compiler.is_dynamo_compiling


def begin(asked: Mapping[str, str]) -> None:
    """asked: the variables above, those that are set."""
    if text := asked.get(POOL):
        _try(f"--pool {text}", lambda: put_pool(text))
    plans = [path for path in asked.get(PLANS, "").split(os.pathsep) if path]
    if not asked.get(REMEMBER) and not plans:
        return
    program = RememberedProgram(everything=bool(asked.get(REMEMBER)))
    for path in plans:
        _try(f"--plan {path}", lambda path=path: program.give(path))  # type: ignore[misc]
    program.begin()
    if asked.get(REPORT):
        atexit.register(program.report)


def put_pool(text: str) -> None:
    """use_pool with what follows --pool: a policy with its settings, cap= and plan= among them."""
    words: list[str] = []
    arguments: dict[str, Any] = {}
    for word in _words(text):
        name, equals, value = word.partition("=")
        if equals and name in ("cap", "plan"):
            arguments[name] = _bytes(value) if name == "cap" else value.strip("[]")
        else:
            words.append(word)
    use_pool(",".join(words), **arguments)


def _bytes(text: str) -> int:
    amount = read_amount(text)
    if amount is None or amount[1] not in BYTE_UNITS:
        raise Error(f"cap={text}: give bytes, or a number with KiB, MiB or GiB")
    return min(int(amount[0] * BYTE_UNITS[amount[1]]), 2**62)


def _words(text: str) -> list[str]:
    """Between the commas that are in no brackets."""
    words, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            words.append(text[begin:i])
            begin = i + 1
    return [*words, text[begin:]]


def _try(what: str, act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as error:
        print(f"memoir: {what}: {error}; the program runs without it", file=sys.stderr)


_THEIRS: Any = True  # in the place of a Memory: the program remembers this module itself


@dataclass
class _Class:
    """The modules of one class: what learning from them may cost together, and figures for the report."""

    ledger: _torch.Ledger | None = field(default_factory=new_ledger)
    memories: weakref.WeakSet[Memory] = field(default_factory=weakref.WeakSet)
    ended: dict[str, int] = field(default_factory=dict)  # figures of those that are gone
    modules: int = 0


class RememberedProgram:
    """Remembers each module from the second call on that no other module makes, or from the first where plans were
    given: many modules are made, called and dropped. A module's plans go with the module.

    everything: otherwise only modules of the classes that a plan was given for. Thread-safe.
    """

    def __init__(self, everything: bool):
        self.everything = everything
        self._plans: dict[str, list[str]] = {}
        self._memories: dict[int, tuple[weakref.ref[torch.nn.Module] | None, Any, Any]] = {}
        self._classes: dict[str, _Class] = {}
        self._lock = threading.Lock()
        self._plain = torch.nn.Module.__call__

    def give(self, path: str) -> None:
        """The first module of the plan's class that is called follows it, and the others given for that class, from its
        first call on."""
        model, _ = open_model_plan(path)
        self._plans.setdefault(model, []).append(path)

    def begin(self) -> None:
        plain = self._plain
        remembered = _torch.call_modules(plain, self._memories, self._know, not self._plans)

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # A compiler that traces this takes the first branch, and sees the module alone.
            if _is_compiling():
                return plain(module, *args, **kwargs)
            return remembered(module, *args, **kwargs)

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        _torch.modules_are_called_by(torch.nn.Module, call)

    def _know(self, module: torch.nn.Module) -> Any:
        """A weak reference to the module, its memory, made now, and what C++ calls of that."""
        key = id(module)
        with self._lock:
            if key in self._memories:
                return self._memories[key]
            try:
                reference = weakref.ref(module, lambda _: self._forget(key))
                memory = self._make(module)
            except Exception as error:
                self._give_up(f"{type(module).__name__} cannot be remembered: {error}")
                return (None, None, None)
            self._memories[key] = (
                reference,
                memory,
                memory.core if isinstance(memory, Memory) else memory,
            )
            return self._memories[key]

    def _give_up(self, why: str) -> None:
        torch.nn.Module.__call__ = self._plain  # type: ignore[method-assign]
        print(f"memoir: {why}; from here on the program runs without it", file=sys.stderr)

    def _make(self, module: torch.nn.Module) -> Any:
        name = type(module).__name__
        if hasattr(module, "__memoir__"):
            return _THEIRS
        forward = getattr(module, "forward", None)
        if (
            inspect.iscoroutinefunction(forward)
            or inspect.isgeneratorfunction(forward)
            or inspect.isasyncgenfunction(forward)
        ):  # the call returns before it allocates
            return None
        plans = self._plans.pop(name, [])
        if not plans and not self.everything:
            return None
        kind = self._classes.setdefault(name, _Class())
        try:
            memory = Memory(name, Options(plan=plans), ledger=kind.ledger)
        except Exception as error:
            if not plans:
                raise
            print(f"memoir: --plan {', '.join(plans)}: {error}; {name} is recorded instead", file=sys.stderr)
            memory = Memory(name, Options(), ledger=kind.ledger)
        kind.memories.add(memory)
        kind.modules += 1
        return memory

    def _forget(self, key: int) -> None:
        """The module is gone. Called wherever the last reference went: no lock may be waited for."""
        known = self._memories.pop(key, None)
        if known is None or known[1] is None or known[1] is _THEIRS:
            return
        memory = known[1]
        ended = self._classes[memory.name].ended
        for figure, value in _figures(memory).items():
            ended[figure] = ended.get(figure, 0) + value

    def report(self) -> None:
        """What was remembered, a line for each class of modules, on stderr."""
        for name, kind in self._classes.items():
            sums = dict(kind.ended)
            for memory in list(kind.memories):
                for figure, value in _figures(memory).items():
                    sums[figure] = sums.get(figure, 0) + value
            several = f" ({kind.modules:,} modules)" if kind.modules > 1 else ""
            share = kind.ledger.share if kind.ledger is not None else 0.0
            print(
                f"memoir: {name}{several}: {sums['calls']:,} calls, {sums['plan_hits']:,} from a plan "
                f"({sums['in_step_passes']:,} in step), {sums['recorded_passes']:,} recorded, "
                f"{sums['plain_passes']:,} plain; learning took {share:.1%} of their time",
                file=sys.stderr,
            )
        if once := _torch.called_once():
            print(f"memoir: {once:,} modules were called once, and not remembered", file=sys.stderr)
        elif not self._classes:
            print("memoir: no module was called: nothing was remembered", file=sys.stderr)
        for model, path in ((model, path) for model, paths in self._plans.items() for path in paths):
            print(f"memoir: --plan {path}: no module of class {model} was called", file=sys.stderr)


def _figures(memory: Memory) -> dict[str, int]:
    stats = memory.stats()
    return {
        name: getattr(stats, name)
        for name in ("calls", "plan_hits", "in_step_passes", "recorded_passes", "plain_passes")
    }
