# SPDX-License-Identifier: Apache-2.0
"""What memoir remembers of one callable: its plans, its slabs, and when to record again.

first call of a signature       second call                    later calls
------------------------        ------------------------       ----------------------------------------------
record (PyTorch's allocator)    plan, lease a slab, follow     follow; in step without listening to operators
                                                               after a pass that differed: listen, record again
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from memoir import Error, _core, _torch
from memoir.torch.signature import describe, signature

# A first sight is a call with a signature that is new. These count first sights in a row, which tell how varied the
# inputs are; the first signature that is seen again sets the count back.
FIRST_SIGHTS_APART = 4  # up to here a recorded pass keeps its large objects apart from malloc's memory
FIRST_SIGHTS_RECORDED = (
    8  # up to here every signature is recorded at once; later ones when they are seen again
)
FIRST_SIGHTS_WARNED = 32  # after so many memoir warns that nothing repeats

LONGEST_PAUSE = 64  # passes between two recordings of a signature whose passes keep differing
SECONDS_FOR_OTHERS = 2.0  # that a call waits at most while another one records the same signature
UNREPEATED_KEPT = 4096  # signatures seen once and not recorded that are remembered, the latest ones


@dataclass(frozen=True)
class Options:
    """max_plans: input signatures remembered, the least recently used forgotten first.
    max_slabs: passes that may run from a slab at the same time; more run on PyTorch's allocator.
    max_bytes: over all slabs; None for no limit. A plan that does not fit runs on PyTorch's allocator.
    plan: a plan file for the signature that it was recorded with, which then needs no recording.
    poison: freed bytes of a slab are overwritten, which shows whoever reads them; slow."""

    max_plans: int = 16
    max_slabs: int = 8
    max_bytes: int | None = None
    plan: str | os.PathLike[str] | None = None
    poison: bool = False


@dataclass
class Stats:
    """Counts since `remember`; bytes as they are now."""

    calls: int = 0  # of the remembered callable, nested ones not counted
    recorded_passes: int = 0
    plan_hits: int = 0  # passes that followed a plan
    in_step_passes: int = 0  # of those, passes that repeated their recording to the last allocation
    plain_passes: int = 0  # neither: no slab was free, or the signature is not remembered
    planned: int = 0  # allocations served from a slab
    escaping: int = 0  # allocations known to outlive their pass, served by PyTorch's allocator
    fallen_back: int = 0  # allocations that should have been planned and were not: unmatched + occupied
    unmatched: int = 0  # ... because the recording has no such allocation
    occupied: int = 0  # ... because the planned range was still taken
    plans: int = 0
    slabs: int = 0
    slab_bytes: int = 0  # memory held by all slabs
    arena_size: int = 0  # of the plan used last: the bytes that one pass needs
    peak_live_bytes: int = 0  # of the plan used last: the floor of arena_size


@dataclass
class _Remembered:
    """One input signature."""

    words: str
    trace: bytes | None = None  # recorded and not planned yet
    plan: _core.RecordedPlan | None = None
    layout: _torch.Layout | None = None
    recording: bool = False
    scoped: bool = True  # the first pass of a plan listens to operators; later ones only after a difference
    wait: int = 1  # passes that may differ before the next recording
    differed: int = 0  # passes that differed since the last recording
    lock: threading.Condition = field(default_factory=threading.Condition)  # notified when a recording ends

    def needs_recording(self) -> bool:
        return self.trace is None and (self.layout is None or self.differed >= self.wait)


class Memory:
    """Thread-safe: concurrent calls each lease a slab of their own."""

    def __init__(self, name: str, options: Options):
        self.name = name
        self.options = options
        self._pool = self._new_pool()
        self._given = _open_plan(name, options.plan) if options.plan is not None else None
        self._lock = threading.Lock()  # guards all below
        self._remembered: OrderedDict[tuple[Any, ...], _Remembered] = OrderedDict()
        self._stats = Stats()
        self._last: _Remembered | None = None
        self._first_sights = 0  # in a row: signatures that were new
        self._said = False
        self._waits = True  # for another caller's recording; not any more once that took too long
        self._seen: OrderedDict[tuple[Any, ...], None] = (
            OrderedDict()
        )  # while nothing repeats: signatures, not recorded

    def _new_pool(self) -> _torch.SlabPool:
        most = self.options.max_bytes
        return _torch.SlabPool(
            self.options.max_slabs, 2**64 - 1 if most is None else most, self.options.poison
        )

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _torch.in_pass():  # an outer pass covers this one: one plan for all of it is the better plan
            return function(*args, **kwargs)
        remembered = self._look_up(signature(args, kwargs), args, kwargs)
        if remembered is None:
            return self._plain(function, args, kwargs)
        if remembered.needs_recording() and self._claim_recording(remembered):
            return self._record(remembered, function, args, kwargs)
        layout = self._layout(remembered)  # may be another caller's, of just now
        if layout is None:
            return self._plain(function, args, kwargs)
        return self._follow(remembered, layout, function, args, kwargs)

    # --- one pass, in each of the three ways ---

    def _plain(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            self._stats.plain_passes += 1
        return function(*args, **kwargs)

    def _record(
        self,
        remembered: _Remembered,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        try:
            recording = _torch.Recording()
            describe_recording(recording, self.name, remembered.words)
            # A pass from fresh pages peaks at its live bytes, but takes their faults: not where nothing repeats.
            recording.begin(large_apart=self._first_sights <= FIRST_SIGHTS_APART)
            try:
                recording.pass_begin()
                result = function(*args, **kwargs)
                recording.pass_end()
            finally:
                recording.end()  # an exception leaves nothing remembered
            with remembered.lock:
                remembered.trace, remembered.layout = recording.bytes(), None
                remembered.scoped, remembered.differed = True, 0
        finally:
            with remembered.lock:
                remembered.recording = False
                remembered.lock.notify_all()
        with self._lock:
            self._stats.recorded_passes += 1
        return result

    def _claim_recording(self, remembered: _Remembered) -> bool:
        """True: the caller records now. False: somebody else does or did. Without a plan to follow meanwhile, callers wait
        for it, since a pass on malloc beside it would leave malloc with memory that no later pass needs; but not for long:
        the recorded pass may itself be waiting for this caller's."""
        with remembered.lock:
            if not remembered.recording:
                remembered.recording = remembered.needs_recording()
                return remembered.recording
            if remembered.layout is None and self._waits:
                self._waits = remembered.lock.wait_for(lambda: not remembered.recording, SECONDS_FOR_OTHERS)
            return False

    def _follow(
        self,
        remembered: _Remembered,
        layout: _torch.Layout,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        planned_pass = _torch.begin_planned(self._pool, layout, remembered.scoped)
        if planned_pass is None:
            return self._plain(function, args, kwargs)
        finished = False
        try:
            result = function(*args, **kwargs)
            finished = True
            return result
        finally:
            self._account(remembered, planned_pass.end(), finished)

    def _account(self, remembered: _Remembered, outcome: tuple[Any, ...], finished: bool) -> None:
        planned, escaping, unmatched, occupied, in_step, at_end = outcome
        repeated = in_step and at_end
        with self._lock:
            stats = self._stats
            stats.plan_hits += 1
            stats.in_step_passes += repeated
            stats.planned += planned
            stats.escaping += escaping
            stats.fallen_back += unmatched + occupied
            stats.unmatched += unmatched
            stats.occupied += occupied
            if not finished:  # cut off by an exception: says nothing about the plan
                return
            remembered.scoped = not repeated
            if repeated:
                remembered.differed = 0
            else:
                remembered.differed += 1

    # --- plans ---

    def _layout(self, remembered: _Remembered) -> _torch.Layout | None:
        if remembered.layout is None and remembered.trace is not None:
            self._make_layout(remembered)
        return remembered.layout

    def _make_layout(self, remembered: _Remembered) -> None:
        with remembered.lock:
            if remembered.layout is not None or remembered.trace is None:
                return
            plan = _core.plan_recording(remembered.trace)
            # A signature that keeps changing is recorded after 1, 2, 4, ... differing passes.
            if remembered.plan is not None:
                remembered.wait = min(2 * remembered.wait, LONGEST_PAUSE)
            remembered.plan, remembered.layout, remembered.trace = plan, _torch.Layout(plan), None

    def _look_up(
        self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Remembered | None:
        with self._lock:
            self._stats.calls += 1
            remembered = self._remembered.get(key)
            if remembered is not None:
                self._remembered.move_to_end(key)
                self._first_sights = 0
                self._last = remembered
                return remembered
            self._first_sights += 1
            if self._first_sights <= FIRST_SIGHTS_RECORDED:
                return self._remember(key, args, kwargs)
            return self._look_up_unrepeating(key, args, kwargs)

    def _remember(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Remembered:
        remembered = self._remembered[key] = _Remembered(describe(args, kwargs))
        if self._given is not None and dict(self._given.meta)["signature"] == remembered.words:
            remembered.plan, remembered.layout = self._given, _torch.Layout(self._given)
        while len(self._remembered) > self.options.max_plans:
            self._remembered.popitem(last=False)
        return remembered

    def _look_up_unrepeating(
        self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Remembered | None:
        if not self._said and self._first_sights > FIRST_SIGHTS_WARNED:
            self._said = True
            warnings.warn(
                f"memoir: {self.name} was called {FIRST_SIGHTS_WARNED} times in a row with inputs of a new shape each time; "
                "a shape is recorded only when it is seen again (memoir.torch.stats shows what is remembered)",
                stacklevel=5,
            )
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > UNREPEATED_KEPT:
                self._seen.popitem(last=False)
            return None
        del self._seen[key]
        self._first_sights = 0
        return self._remember(key, args, kwargs)

    # --- for the user ---

    def stats(self) -> Stats:
        with self._lock:
            last = self._last.plan if self._last is not None else None
            return Stats(
                **{
                    **vars(self._stats),
                    "plans": sum(r.layout is not None for r in self._remembered.values()),
                    "slabs": self._pool.slabs,
                    "slab_bytes": self._pool.held_bytes,
                    "arena_size": last.arena_size if last is not None else 0,
                    "peak_live_bytes": last.load if last is not None else 0,
                }
            )

    def forget(self) -> None:
        with self._lock:
            self._remembered.clear()
            self._seen.clear()
            self._last = None
            self._first_sights = 0
            pool, self._pool = self._pool, self._new_pool()
        pool.retire_all()


def _open_plan(name: str, path: str | os.PathLike[str]) -> _core.RecordedPlan:
    plan = _core.open_plan(os.fspath(path))
    meta = dict(plan.meta)
    if "signature" not in meta or "model" not in meta:
        raise Error(f"{path}: not the plan of a recorded model: plan a trace that memoir.torch.record wrote")
    if meta["model"] != name:
        raise Error(f"{path}: a plan for {meta['model']}, and this is {name}")
    return plan.recorded_for()


def describe_recording(recording: _torch.Recording, model: str, words: str) -> None:
    """Writes the meta records that every trace of a PyTorch program carries."""
    recording.meta("model", model)
    recording.meta("signature", words)
    recording.meta("torch", torch.__version__)
    recording.meta("threads", str(torch.get_num_threads()))
