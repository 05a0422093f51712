# SPDX-License-Identifier: Apache-2.0
"""What profiles say of each context, as training needs it: its names, its class, and whether its objects are long-lived.

Two labels. The *class* is the LLAMA paper's: of the 95th percentile of the lifetimes in wall time. *Long* is relative to
turnover, as memoir's malloc asks: an object is long-lived when it outlives the allocation of `tau` times the largest heap, and
a context when more than LONG_SHARE of its decided objects are. An object that was alive at the end of its run is censored:
it counts as what it had outlived, and not at all where that decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import is_allocation_name, plain_name, size_name
from memoir.lifetimes import (
    BYTES,
    CENSORED,
    FREED,
    MILLISECONDS,
    NO_MODULE,
    ONE_OBJECT,
    Lifetimes,
    bucket_begins,
)
from memoir.lifetimes.summary import CLASSES_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = 8
NEVER = CLASSES - 1
LONG_SHARE = 0.3  # of the decided objects of a context
QUANTILE = 0.95
# Names that every program of a language has: they tell nothing of which program a stack is of.
PLUMBING = ("__libc_start", "std::", "__gnu_cxx::", "__cxxabiv1::")
EVERYWHERE = frozenset(
    (
        "main",
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "call_init",
        "_dl_init",
    )
)
# Libraries that programs of all kinds have: what they are asked to do, the program decides.
_RUNTIME = re.compile(r"/?(ld-linux|lib(c|m|pthread|dl|rt|gcc_s|stdc\+\+|c\+\+|c\+\+abi))[-.][^/]*$")
_OUTER = 2


@dataclass
class Contexts:
    """Arrays with an entry for each context, those of several profiles one behind the other."""

    stacks: list[
        tuple[str, ...]
    ]  # plain names, innermost first, without allocation functions and unknown ones
    raw: list[list[str]]  # names as the profile has them, "" where it has none
    outer: list[tuple[str, ...]]  # the outermost names that are the program's own, at most _OUTER
    runtime: list[tuple[str, ...]]  # those of its names that are of the C and C++ libraries
    programs: list[tuple[str, ...]]  # paths of the executables that its profile is of
    calls: list[tuple[str, int] | None]  # build id and return address of the call that allocates
    heights: NDArray[numpy.int64]  # bytes of stack in use; 0: not known
    sizes: NDArray[numpy.int64]  # of its objects; 0: they are of several
    classes: NDArray[numpy.int64]
    long_share: NDArray[numpy.float64]  # of the decided objects; NaN where none is decided
    samples: NDArray[numpy.float64]
    decided: NDArray[numpy.float64]  # samples of which it is known whether they are long
    objects: NDArray[numpy.float64]  # estimates
    bytes: NDArray[numpy.float64]
    profile: NDArray[numpy.int64]  # which one it is of
    number: NDArray[numpy.int64]  # in its profile

    def __len__(self) -> int:
        return len(self.stacks)

    @property
    def is_long(self) -> NDArray[numpy.bool_]:
        return numpy.nan_to_num(self.long_share) > LONG_SHARE

    @property
    def is_decided(self) -> NDArray[numpy.bool_]:
        return ~numpy.isnan(self.long_share)

    def take(self, chosen: NDArray[Any]) -> Contexts:
        """Some of them: by number, or by a mask."""
        numbers = numpy.arange(len(self))[chosen]
        values: dict[str, Any] = {
            name: [getattr(self, name)[i] for i in numbers]
            for name in ("stacks", "raw", "outer", "runtime", "programs", "calls")
        }
        values |= {
            name: getattr(self, name)[numbers]
            for name in (
                "heights",
                "sizes",
                "classes",
                "long_share",
                "samples",
                "decided",
                "objects",
                "bytes",
                "profile",
                "number",
            )
        }
        return Contexts(**values)


def read_contexts(profiles: Sequence[Lifetimes], tau: float) -> Contexts:
    """The contexts of all profiles. Those without a named frame are among them."""
    parts = [_of_profile(profile, number, tau) for number, profile in enumerate(profiles)]
    joined: dict[str, Any] = {}
    for name in Contexts.__dataclass_fields__:
        values: list[Any] = [getattr(part, name) for part in parts]
        if isinstance(values[0], list):
            joined[name] = [each for value in values for each in value]
        else:
            joined[name] = numpy.concatenate(values)
    return Contexts(**joined)


def horizon(lifetimes: Lifetimes, tau: float) -> float:
    """Bytes of allocation that a long-lived object outlives: of all runs that are kept, the mean by what they allocated."""
    peaks, weights = [], []
    for number, (_, points) in enumerate(lifetimes.run_slices()):
        curve = lifetimes.points[points]
        peaks.append(float(curve["live"].max()) if len(curve) else 0.0)
        weights.append(float(lifetimes.runs[number]["allocated"]))
    total = sum(weights)
    return (
        tau * sum(peak * weight for peak, weight in zip(peaks, weights, strict=True)) / total
        if total
        else 0.0
    )


def _of_profile(lifetimes: Lifetimes, number: int, tau: float) -> Contexts:
    contexts = lifetimes.contexts
    raw_frames, plain_frames, calls_of_frames = _frames(lifetimes)
    stacks, raw, outer, runtime, calls = [], [], [], [], []
    own, common = _own_frames(lifetimes, plain_frames)
    allocates = [is_allocation_name(name) for name in plain_frames]
    everything = lifetimes.stacks.tolist()
    for first, count in zip(contexts["first"].tolist(), contexts["frames"].tolist(), strict=True):
        frames = everything[first : first + count]
        raw.append([raw_frames[frame] for frame in frames])
        inner = 0
        while inner < len(frames) and (allocates[frames[inner]] or not plain_frames[frames[inner]]):
            if not plain_frames[frames[inner]] and calls_of_frames[frames[inner]] is not None:
                break  # code that nobody named, but not an allocation function either
            inner += 1
        calls.append(calls_of_frames[frames[inner]] if inner < len(frames) else None)
        while inner < len(frames) and allocates[frames[inner]]:
            inner += 1
        stacks.append(tuple(name for frame in frames[inner:] if (name := plain_frames[frame])))
        outer.append(
            tuple([plain_frames[frame] for frame in reversed(frames[inner:]) if own[frame]][:_OUTER])
        )
        runtime.append(tuple(plain_frames[frame] for frame in frames[inner:] if common[frame]))
    objects = contexts["estimates"]["objects"].astype(float).sum(axis=1) / ONE_OBJECT
    amounts = contexts["estimates"]["bytes"].astype(float).sum(axis=1)
    share, decided = _long_shares(lifetimes, tau)
    programs = tuple(dict.fromkeys(lifetimes.program(run) for run in range(len(lifetimes.runs))))
    return Contexts(
        stacks=stacks,
        raw=raw,
        outer=outer,
        runtime=runtime,
        programs=[programs] * len(stacks),
        calls=calls,
        heights=contexts["height"].astype(numpy.int64),
        sizes=_sizes(contexts),
        classes=_classes(lifetimes),
        long_share=share,
        samples=contexts["estimates"]["samples"].astype(float).sum(axis=1),
        decided=decided,
        objects=objects,
        bytes=amounts,
        profile=numpy.full(len(lifetimes), number),
        number=numpy.arange(len(lifetimes)),
    )


def _sizes(contexts: NDArray[Any]) -> NDArray[numpy.int64]:
    least, most = contexts["least_size"].tolist(), contexts["most_size"].tolist()
    same = [size_name(low) == size_name(high) for low, high in zip(least, most, strict=True)]
    return numpy.where(same, contexts["least_size"].astype(numpy.int64), 0)


def _frames(lifetimes: Lifetimes) -> tuple[list[str], list[str], list[tuple[str, int] | None]]:
    """Of each frame: its function's name, the same plain, and its build id and offset where both are known."""
    builds = [lifetimes.build_id(module) for module in range(len(lifetimes.modules))]
    raw, plain, calls = [], [], []
    known: dict[str, str] = {}
    for frame, row in enumerate(lifetimes.frames):
        names = lifetimes.frame_names(frame)
        name = names[-1] if names else ""  # the function that is called, not those inlined into it
        if name not in known:
            known[name] = plain_name(name) if name else ""
        raw.append(name)
        plain.append(known[name])
        module, offset = int(row["module"]), int(row["offset"])
        has_call = module != NO_MODULE and builds[module] and offset < 2**32
        calls.append((builds[module], offset) if has_call else None)
    return raw, plain, calls


def _own_frames(lifetimes: Lifetimes, plain: list[str]) -> tuple[list[bool], list[bool]]:
    """Of each frame, whether its function has a name that tells of which program it is, and whether it has one that is
    of the C or C++ library."""
    runtime = [
        _RUNTIME.search(lifetimes.module_path(module)) is not None for module in range(len(lifetimes.modules))
    ]
    own, common = [], []
    for name, module in zip(plain, lifetimes.frames["module"].tolist(), strict=True):
        is_common = name != "" and module != NO_MODULE and runtime[module]
        everywhere = name == "" or name in EVERYWHERE or name.startswith(PLUMBING)
        own.append(not everywhere and not is_common)
        common.append(is_common)
    return own, common


def _histograms(lifetimes: Lifetimes, clock: int, fate: int) -> NDArray[numpy.float64]:
    """Samples, by context and bucket."""
    cells = lifetimes.cells[(lifetimes.cells["clock"] == clock) & (lifetimes.cells["fate"] == fate)]
    buckets = len(bucket_begins())
    places = cells["context"].astype(numpy.int64) * buckets + cells["bucket"]
    amounts = cells["estimate"]["samples"].astype(float)
    sums = numpy.bincount(places, amounts, minlength=len(lifetimes) * buckets).astype(numpy.float64)
    return sums.reshape(len(lifetimes), buckets)


def _classes(lifetimes: Lifetimes) -> NDArray[numpy.int64]:
    """The class of each context's 95th percentile, by Kaplan and Meier's estimate."""
    freed = _histograms(lifetimes, MILLISECONDS, FREED)
    censored = _histograms(lifetimes, MILLISECONDS, CENSORED)
    at_risk = numpy.cumsum((freed + censored)[:, ::-1], axis=1)[:, ::-1]
    steps = numpy.where(at_risk > 0, 1 - freed / numpy.maximum(at_risk, 1e-300), 1.0)
    # Sums of shares come out a little below one.
    reached = (1 - numpy.cumprod(steps, axis=1) >= QUANTILE - 1e-12) & (freed > 0)
    of_bucket = numpy.searchsorted(
        numpy.array(CLASSES_MS, dtype=float), bucket_begins().astype(float), "right"
    )
    return numpy.where(reached.any(axis=1), of_bucket[reached.argmax(axis=1)], NEVER).astype(numpy.int64)


def _long_shares(lifetimes: Lifetimes, tau: float) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """Of each context: the share of long-lived ones among its decided samples (NaN: none is), and how many are decided."""
    freed = _histograms(lifetimes, BYTES, FREED)
    censored = _histograms(lifetimes, BYTES, CENSORED)
    beyond = bucket_begins().astype(float) >= horizon(lifetimes, tau)
    long = freed[:, beyond].sum(axis=1) + censored[:, beyond].sum(axis=1)
    decided = long + freed[:, ~beyond].sum(axis=1)
    return numpy.where(decided > 0, long / numpy.maximum(decided, 1e-300), numpy.nan), decided
