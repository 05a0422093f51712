# SPDX-License-Identifier: Apache-2.0
"""Contexts as the sections of a model file."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import name_hash, program_name, size_name, token_hash, write_model
from memoir.train import words
from memoir.train.calibration import Calibration
from memoir.train.calls import MOST_BETWEEN, Calls
from memoir.train.contexts import CLASSES, EVERYWHERE, PLUMBING, Contexts
from memoir.train.trie import Answers, Reduced, Trie, Votes, reduce_stack

if TYPE_CHECKING:
    from numpy.typing import NDArray

ADDRESS, NAMES, NEAR, WORDS, NETWORK = 1, 2, 4, 8, 16  # stages
STAGE_NAMES = ("address", "names", "near", "words", "network")
ONE_CLASS, PRIVATE, SIZES, OTHER_BUILD = 1, 2, 4, 8  # flags of the settings
MOST_BYTES = 1_000_000  # of a model; larger ones leave details of the trie out
_MOST_NAMES = 65_535
_MOST_MODULES = 65_535
_UNDECIDED = 2  # neither long nor not
_LEAST_AT_START = 0.3  # probability of long from which on a context is told to a malloc at its start
SETTINGS = struct.Struct("<IIHHfffffIffIf12x")


@dataclass
class Settings:
    """What a model file says of how it is used; docs/reference/formats-model.md has the fields."""

    stages: int = ADDRESS | NAMES | NEAR | WORDS
    least_frames: int = 2
    prior_worth: int = 2
    least_coverage: float | None = None  # None: by how many words there are
    words_in_near: float = 0.8
    network_in_words: float = 0.0
    least_long: float = 0.5
    tau: float = 2.0
    least_tokens: int = 3
    words_in_names: float = 0.2
    least_share: float = 0.15
    hot_samples: int = 0  # of an answer: from there on it is called long as least_long_hot says
    least_long_hot: float = 0.5
    one_class: bool = False
    key: int = 0  # of hashes; not 0: private

    def record(self, tokens: int) -> bytes:
        """tokens: how many words the model knows."""
        flags = (ONE_CLASS if self.one_class else 0) | (PRIVATE if self.key else 0) | SIZES | OTHER_BUILD
        return SETTINGS.pack(
            flags,
            self.stages,
            self.least_frames,
            self.prior_worth,
            coverage_for(tokens) if self.least_coverage is None else self.least_coverage,
            self.words_in_near,
            self.network_in_words,
            self.least_long,
            self.tau,
            self.least_tokens,
            self.words_in_names,
            self.least_share,
            self.hot_samples,
            self.least_long_hot,
        )


def coverage_for(tokens: int) -> float:
    """The more words a model knows, the more of another program's it knows by chance."""
    return min(max(0.4 + 0.13 * math.log2(max(tokens, 1) / 400), 0.32), 0.8)


@dataclass
class Parts:
    """What is fitted once and goes into several files."""

    weights: bytes = b""
    network: bytes = b""
    calibration: Calibration = field(default_factory=Calibration)
    facts: dict[str, Any] = field(default_factory=dict)


def votes_of(contexts: Contexts) -> Votes:
    worth = numpy.log2(1 + contexts.samples)
    classes = numpy.zeros((len(contexts), CLASSES))
    classes[numpy.arange(len(contexts)), contexts.classes] = worth
    decided = numpy.where(contexts.is_decided, numpy.log2(1 + contexts.decided), 0)
    return Votes(
        classes,
        numpy.where(contexts.is_long, decided, 0),
        numpy.where(contexts.is_long, 0, decided),
        contexts.samples,
    )


def linear_targets(contexts: Contexts) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """For words.fit(). Contexts weigh by the logarithm of their samples."""
    targets = numpy.zeros((len(contexts), CLASSES + 1))
    targets[numpy.arange(len(contexts)), contexts.classes] = 1
    targets[:, CLASSES] = contexts.is_long
    return targets, numpy.column_stack([_weights(contexts.samples), _weights(contexts.decided)])


def _weights(samples: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    often = numpy.log2(1 + samples)
    return often / max(float(often.mean()), 1e-9) * float((samples / (samples + 1)).mean())


def _with_sizes(contexts: Contexts, numbers: dict[str, int]) -> tuple[list[Reduced], Votes]:
    """What the trie is built of. Where contexts of one stack disagree, and differ in the size of their objects, each gets
    the name of its size as one more frame; the stack itself then stays in the trie with what they say together."""
    stacks = [reduce_stack(stack, numbers) for stack in contexts.stacks]
    votes = votes_of(contexts)
    members: dict[Reduced, list[int]] = {}
    for number, stack in enumerate(stacks):
        members.setdefault(stack, []).append(number)
    said = numpy.where(contexts.is_decided, contexts.is_long, 2)
    labels = [numbers.get(size_name(size)) if size else None for size in contexts.sizes.tolist()]
    alone = []
    for stack, own in members.items():
        one_answer = len({(int(contexts.classes[i]), int(said[i])) for i in own}) == 1
        if not stack or one_answer or len({labels[i] for i in own}) == 1:
            continue
        for i in own:
            label = labels[i]
            stacks[i] = stack if label is None else (*stack, label)
        alone.append(stack)
    none = numpy.zeros(len(alone))
    return stacks + alone, Votes(
        numpy.vstack([votes.classes, numpy.zeros((len(alone), CLASSES))]),
        numpy.append(votes.long, none),
        numpy.append(votes.short, none),
        numpy.append(votes.samples, none),
    )


def fit_words(contexts: Contexts, settings: Settings) -> bytes:
    if not len(contexts):
        return b""
    return words.fit(contexts.stacks, contexts.sizes, *linear_targets(contexts), key=settings.key)


def model_bytes(contexts: Contexts, settings: Settings, parts: Parts) -> bytes:
    """A model file. Raises memoir.Error when it breaks a rule of the format."""
    vocabulary = [
        *_vocabulary(contexts),
        *sorted({size_name(size) for size in contexts.sizes.tolist() if size}),
    ]
    hashes = sorted({name_hash(name, settings.key): name for name in vocabulary}.items())[:_MOST_NAMES]
    numbers = {name: number for number, (_, name) in enumerate(hashes)}
    reduced, votes = _with_sizes(contexts, numbers)
    content = b""
    calls = Calls({reduce_stack(stack, numbers) for stack in contexts.stacks})
    for short, between in ((False, MOST_BETWEEN), (True, MOST_BETWEEN), (True, 1)):
        content = _content(contexts, settings, parts, hashes, (reduced, votes), calls.section(between), short)
        if len(content) <= MOST_BYTES:
            break
    return content


def _content(
    contexts: Contexts,
    settings: Settings,
    parts: Parts,
    hashes: list[tuple[int, str]],
    entries: tuple[list[Reduced], Votes],
    calls: bytes,
    short: bool,
) -> bytes:
    answers = Answers()
    reduced, votes = entries
    some = [number for number, stack in enumerate(reduced) if stack]
    chosen = numpy.array(some, dtype=numpy.int64)
    trie = Trie(
        [reduced[number] for number in some],
        Votes(votes.classes[chosen], votes.long[chosen], votes.short[chosen], votes.samples[chosen]),
        _prior(votes),
    )
    trie.build(answers, short=short)
    modules, addresses = _addresses(contexts, votes_of(contexts), answers)
    tokens, texts = words.token_section(contexts, settings.key)
    sections = {
        "settings": settings.record(len(texts)),
        "modules": modules,
        "addresses": addresses,
        "names": numpy.array([number for number, _ in hashes], "<u8").tobytes(),
        "nodes": trie.section(),
        "labels": trie.label_section(),
        "answers": answers.section(),
        "calibration": parts.calibration.section(),
    }
    outer = {name for names in contexts.outer for name in names}
    own = [number for number, (_, name) in enumerate(hashes) if name in outer]
    passed = {name for stack in contexts.stacks for name in stack} - {name for _, name in hashes}
    if passed:
        short_hashes = sorted({token_hash(name, settings.key) for name in passed})
        sections["passed_over"] = numpy.array(short_hashes, "<u4").tobytes()
    programs = {program_name(path) for paths in contexts.programs for path in paths} - {""}
    if programs:
        known = sorted({name_hash(name, settings.key) for name in programs})
        sections["programs"] = numpy.array(known[:_MOST_NAMES], "<u8").tobytes()
    if calls:
        sections["calls"] = calls
    if own:
        sections["outer"] = numpy.array(own, "<u2").tobytes()
    if parts.weights or parts.network:
        sections["tokens"] = tokens
    if parts.weights:
        sections["weights"] = parts.weights
    if parts.network:
        sections["network"] = parts.network
    if not settings.key and not short:
        sections |= _texts([name for _, name in hashes], texts if parts.weights or parts.network else [])
    sections["facts"] = json.dumps(parts.facts, separators=(",", ":")).encode()
    return write_model(sections, settings.key)


def _prior(votes: Votes) -> tuple[NDArray[numpy.float64], float]:
    """What all contexts say together."""
    wall = votes.classes.sum(axis=0) + 0.1
    long, short = votes.long.sum(), votes.short.sum()
    return wall / wall.sum(), float((long + 0.1) / (long + short + 1))


def _vocabulary(contexts: Contexts) -> list[str]:
    names = {name for stack in contexts.stacks for name in stack}
    return sorted(name for name in names if name not in EVERYWHERE and not name.startswith(PLUMBING))


def _addresses(contexts: Contexts, votes: Votes, answers: Answers) -> tuple[bytes, bytes]:
    """Of calls where all contexts agree: a wrapper's call says nothing of who called the wrapper. And with the height of
    the stack, which tells a wrapper's callers apart, of those that are not surely short-lived: what a malloc knows of
    no context is short-lived anyway."""
    by_call: dict[tuple[str, int], list[int]] = {}
    by_height: dict[tuple[str, int, int], list[int]] = {}
    heights = contexts.heights.tolist()
    for number, call in enumerate(contexts.calls):
        if call is not None:
            by_call.setdefault(call, []).append(number)
            if 0 < heights[number] < 2**32:
                by_height.setdefault((*call, heights[number]), []).append(number)
    builds = {
        build: number for number, build in enumerate(sorted({build for build, _ in by_call})[:_MOST_MODULES])
    }
    prior = _prior(votes)
    classes = contexts.classes.tolist()
    said = numpy.where(contexts.is_decided, contexts.is_long, _UNDECIDED).tolist()
    rows = []

    def add(build: str, offset: int, height: int, members: list[int]) -> None:
        of_long = {said[each] for each in members} - {_UNDECIDED}
        if build not in builds or len({classes[each] for each in members}) > 1 or len(of_long) > 1:
            return
        sums = votes.classes[members].sum(axis=0) + 0.25 * prior[0]
        long, short = votes.long[members].sum(), votes.short[members].sum()
        share = float((long + 0.25 * prior[1]) / (long + short + 0.25))
        if height and share < _LEAST_AT_START:
            return
        answer = answers.add(sums / sums.sum(), share, float(votes.samples[members].sum()))
        rows.append((builds[build], offset, height, answer))

    for (build, offset), members in by_call.items():
        add(build, offset, 0, members)
    for (build, offset, height), members in by_height.items():
        add(build, offset, height, members)
    table = numpy.zeros(
        len(rows), [("offset", "<u4"), ("height", "<u4"), ("module", "<u2"), ("answer", "<u2")]
    )
    for place, (module, offset, height, answer) in enumerate(sorted(rows)):
        table[place] = (offset, height, module, answer)
    modules = b"".join(
        struct.pack("<II32s", len(build) // 2, 0, bytes.fromhex(build)[:32])
        for build in sorted(builds, key=builds.__getitem__)
    )
    return modules, table.tobytes()


def _texts(names: list[str], tokens: list[str]) -> dict[str, bytes]:
    text = bytearray()
    places: dict[str, tuple[int, int]] = {}
    result = {}
    for section, all_words in (("name_texts", names), ("token_texts", tokens)):
        rows = []
        for word in all_words:
            if word not in places:
                encoded = word.encode()
                places[word] = (len(text), len(encoded))
                text += encoded + b"\0"
            rows.append(places[word])
        if rows:
            result[section] = numpy.array(rows, "<u4").tobytes()
    return {"text": bytes(text), **result} if text else {}
