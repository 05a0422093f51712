# SPDX-License-Identifier: Apache-2.0
"""What memoir remembers of a callable, as its user sees it: options, statistics, slabs that several share. The decisions
and the way of a call are in C++ (src/memoir/remember, bindings/_torch.cpp)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memoir import Error, _core, _torch
from memoir.torch.signature import describe

SECONDS_FOR_OTHERS = 2.0  # that a call waits at most for another one: its recording, or the slab of a group


@dataclass(frozen=True)
class Options:
    """max_plans: plans remembered, the least recently used forgotten first.
    max_slabs: passes that may run from a slab at the same time; more run on PyTorch's allocator.
    max_bytes: over all slabs; None for no limit. A plan that does not fit runs on PyTorch's allocator.
    plan: plan files for the signatures that they were recorded with, which then need no recording; from two and more of
    one form those of other dimensions need none either.
    poison: freed bytes of a slab are overwritten, which shows whoever reads them; slow."""

    max_plans: int = 16
    max_slabs: int = 8
    max_bytes: int | None = None
    plan: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    poison: bool = False


@dataclass
class Stats:
    """Counts since `remember`; bytes as they are now."""

    calls: int = 0  # of the remembered callable, nested ones not counted
    recorded_passes: int = 0
    plan_hits: int = 0  # passes that followed a plan
    in_step_passes: int = 0  # of those, passes that repeated it to the last allocation
    derived_passes: int = 0  # of plan_hits, passes whose plan was made from recordings of other shapes
    plain_passes: int = (
        0  # neither: no slab was free, the signature is not remembered, or learning cost too much
    )
    learning_seconds: float = 0.0  # spent on recording, planning and deriving
    looking_seconds: float = 0.0  # spent on finding plans and keeping to them
    pass_seconds: float = 0.0  # that passes took
    planned: int = 0  # allocations served from a slab
    escaping: int = 0  # allocations known to outlive their pass, served by PyTorch's allocator
    fallen_back: int = 0  # allocations that should have been planned and were not: unmatched + occupied
    unmatched: int = 0  # ... because the recording has no such allocation
    occupied: int = 0  # ... because the planned range was still taken
    guests: int = 0  # of fallen_back, those that found free room in the slab all the same
    plans: int = 0
    slabs: int = 0  # that it shares with every other callable that has no limits of its own
    slab_bytes: int = 0  # memory held by these slabs, and by what is kept of slabs that were given up
    arena_size: int = 0  # of the plan used last: the bytes that one pass needs
    peak_live_bytes: int = 0  # of the plan used last: the floor of arena_size


class Share:
    """One arena for callables that do not run at the same time: `remember(..., share=Share())`.

    A call that comes while another one of the group runs waits for it, two seconds at most; then it runs on PyTorch's
    allocator. max_bytes: the most that the arena may hold; None for no limit. Thread-safe."""

    def __init__(self, *, max_bytes: int | None = None, poison: bool = False):
        self._slabs = _torch.SlabSet(1, _bytes(max_bytes), poison, SECONDS_FOR_OTHERS)

    @property
    def slab_bytes(self) -> int:
        """What the arena holds now."""
        return self._slabs.held_bytes


class Memory:
    """Of one callable. Thread-safe."""

    def __init__(
        self,
        name: str,
        options: Options,
        share: Share | None = None,
        ledger: _torch.Ledger | None = None,
    ):
        """ledger: of what is remembered together with others; without it, this one has its own."""
        self.name = name
        self.options = options
        self.share = share
        self._slabs = share._slabs if share is not None else _slabs_for(options)
        self.core = _torch.Memory(
            options.max_plans,
            SECONDS_FOR_OTHERS,
            self._slabs,
            new_ledger() if ledger is None else ledger,
            _describe,
            _repeats_nothing(name),
        )
        for path in _paths(options.plan):
            given = _open_plan(name, path)
            self.core.give_plan(given, dict(given.meta)["signature"])
        self.call = self.core.call

    def stats(self) -> Stats:
        return Stats(**self.core.stats(), slabs=self._slabs.slabs, slab_bytes=self._slabs.held_bytes)

    def forget(self) -> None:
        self.core.forget()


def _slabs_for(options: Options) -> _torch.SlabSet:
    """All callables without limits of their own share the slabs of the process."""
    if (options.max_slabs, options.max_bytes, options.poison) == (Options.max_slabs, None, False):
        return _torch.SlabSet.of_process()
    return _torch.SlabSet(options.max_slabs, _bytes(options.max_bytes), options.poison)


def new_ledger() -> _torch.Ledger | None:
    """None: learning may cost what it takes."""
    return _torch.Ledger()


def _repeats_nothing(name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """The warning. It knows the name alone: what C++ holds on to must not hold the memory in turn, or neither ever goes."""

    def say(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        warnings.warn(
            f"memoir: {name} was called many times in a row with inputs that no plan could be made for, the last time "
            f"with {describe(args, kwargs)}; such a shape is recorded only when it is seen again "
            "(memoir.torch.stats shows what is remembered)",
            stacklevel=4,
        )

    return say


def _describe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return describe(args, kwargs)


def _paths(
    plan: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> Sequence[str | os.PathLike[str]]:
    if plan is None:
        return []
    return [plan] if isinstance(plan, (str, os.PathLike)) else plan


def _bytes(most: int | None) -> int:
    return 2**64 - 1 if most is None else most


def open_model_plan(path: str | os.PathLike[str]) -> tuple[str, _core.RecordedPlan]:
    """The model that a plan file is for, and the plan. Raises memoir.Error for a file that is not the plan of a model."""
    plan = _core.open_plan(os.fspath(path))
    meta = dict(plan.meta)
    if "signature" not in meta or "model" not in meta:
        raise Error(f"{path}: not the plan of a recorded model: plan a trace that memoir.torch.record wrote")
    return meta["model"], plan.recorded_for()


def _open_plan(name: str, path: str | os.PathLike[str]) -> _core.RecordedPlan:
    model, plan = open_model_plan(path)
    if model != name:
        raise Error(f"{path}: a plan for {model}, and this is {name}")
    return plan


def describe_recording(
    recording: _torch.Recording | _torch.ProgramsRecording, model: str, words: str
) -> None:
    """Writes the meta records that every trace of a PyTorch program carries."""
    recording.meta("model", model)
    recording.meta("signature", words)
    recording.meta("torch", torch.__version__)
    recording.meta("threads", str(torch.get_num_threads()))
