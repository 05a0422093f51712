# SPDX-License-Identifier: Apache-2.0
"""Models of lifetimes, learned from profiles: `memoir train`.

model = memoir.train.train([memoir.Lifetimes.open("a.lifetimes"), ...])
Path("x.model").write_bytes(model.content)

What a model answers is docs/guides/train.md, what is in its file docs/reference/formats-model.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import Error, LifetimeModel
from memoir.base.files import read_regular
from memoir.base.kinds import check_begins_like
from memoir.lifetimes import Lifetimes
from memoir.train import replay
from memoir.train.assembly import NETWORK, Parts, Settings, fit_words, model_bytes
from memoir.train.calibration import Calibration, Predictions, calibrate, least_long
from memoir.train.contexts import Contexts, read_contexts
from memoir.train.evaluation import Answers, ask, compare, predictions
from memoir.train.facts import facts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRECISION = 0.9  # of hot contexts that are called long, by bytes, where they were held out
_HOT_BYTES = 0.8  # of all bytes are of hot contexts
NETWORKS = ("lstm", "mingru")
_LEAST_CONTEXTS = 20  # to hold some out
_TURNS = 3  # one in so many is held out at a time
_FEW = 2_000  # contexts; of more a single part says enough
_RENAMED = 0.12  # share of the functions that another build does not have, as calibration imagines it


@dataclass
class TrainedModel:
    content: bytes  # of a .model file
    facts: dict[str, Any]  # what it saw, and how well it did on what was held out
    model: LifetimeModel
    one_class: bool  # whether it says that two classes do not pay


def train(
    profiles: Sequence[Lifetimes],
    *,
    settings: Settings | None = None,
    network: str | None = None,
    private: bool = False,
    replayed: bool = True,
    seed: int = 1,
) -> TrainedModel:
    """Learns from all profiles. The same profiles, settings and seed give the same bytes, but for a private model's key.

    network: one of NETWORKS, which takes torch; None: the stages without one.
    private: names are hashed with a random key, and none is in the file.
    replayed: False leaves out whether two classes pay (and they are taken to).
    Raises memoir.Error when no context of the profiles has a name or a build id.
    """
    settings = replace(settings or Settings())
    if private:
        settings.key = secrets.randbits(63) | 1
    contexts = read_contexts(profiles, settings.tau)
    usable = [
        bool(stack) or call is not None for stack, call in zip(contexts.stacks, contexts.calls, strict=True)
    ]
    if not any(usable):
        raise Error(
            "the profiles have no names and no build ids to learn from: run memoir symbolize on them first"
        )
    contexts = contexts.take(numpy.array(usable))
    parts, held_out = learn(contexts, settings, network=network, seed=seed)
    content = model_bytes(contexts, settings, parts)
    gain, part = _gain(content, profiles, contexts, settings, seed) if replayed else (None, 1.0)
    settings.one_class = gain is not None and not replay.pays(gain, part)
    parts.facts = facts_of(profiles, contexts, settings, held_out, gain, network)
    content = model_bytes(contexts, settings, parts)
    model = LifetimeModel.from_bytes(content, "the model")
    return TrainedModel(content, parts.facts, model, settings.one_class)


def learn(
    contexts: Contexts, settings: Settings, *, network: str | None = None, seed: int = 1
) -> tuple[Parts, dict[str, Any]]:
    """What is fitted of contexts, and how it did where some were held out. Sets in `settings` when to call a context long."""
    if network:
        settings.stages |= NETWORK
    calibration, held_out = _held_out(contexts, settings, network, seed)
    return Parts(
        fit_words(contexts, settings), _network(contexts, settings, network, seed), calibration
    ), held_out


def _network(contexts: Contexts, settings: Settings, kind: str | None, seed: int) -> bytes:
    if kind is None:
        return b""
    from memoir.train.network import fit_network  # torch, an extra

    return fit_network(contexts, kind, key=settings.key, seed=seed)


def _held_out(
    contexts: Contexts, settings: Settings, network: str | None, seed: int
) -> tuple[Calibration, dict[str, Any]]:
    """What is learned of a model by training others without some stacks, and asking them: of those, and of all when some
    functions are not there, as after inlining or renaming. Few contexts are held out in turns, a part each time; not with a
    network, which takes most of the time at each turn."""
    random = numpy.random.default_rng(seed)
    named = contexts.take(numpy.array([bool(stack) for stack in contexts.stacks]))
    if len(named) < _LEAST_CONTEXTS:
        return Calibration(), {}
    turns = _TURNS if len(named) < _FEW and network is None else 1
    stacks = {stack: None for stack in named.stacks}
    turn_of = dict(zip(stacks, random.integers(0, _TURNS, len(stacks)).tolist(), strict=True))
    turn_of_context = numpy.array([turn_of[stack] for stack in named.stacks])
    asked = []  # (part, model, contexts that it did not see, contexts that are changed)
    for turn in range(turns):
        some = named.take(turn_of_context != turn)
        if len(some) == 0 or len(some) == len(named):
            continue
        parts = Parts(fit_words(some, settings), _network(some, settings, network, seed))
        unseen = named.take(turn_of_context == turn)
        changed = _renamed(named.take(random.permutation(len(named))[: -(-len(named) // turns)]), random)
        asked.append((some, parts, unseen, changed))
    if not asked:
        return Calibration(), {}
    pool = []
    for some, parts, unseen, changed in asked:
        model = LifetimeModel.from_bytes(model_bytes(some, settings, parts), "held out")
        pool += [predictions(ask(model, each, calibrated=False), each) for each in (unseen, changed)]
    calibration = calibrate(_join(pool))
    models = [
        LifetimeModel.from_bytes(
            model_bytes(some, settings, replace(parts, calibration=calibration)), "held out"
        )
        for some, parts, _, _ in asked
    ]
    answers = [
        [(ask(model, each), each) for each in (unseen, changed)]
        for model, (_, _, unseen, changed) in zip(models, asked, strict=True)
    ]
    _set_thresholds(settings, named, [each for pair in answers for each in pair])
    return calibration, {
        name: compare(_with_thresholds(pair[0], settings), pair[1])
        for name, pair in zip(("unseen", "renamed"), answers[0], strict=True)
    }


def _set_thresholds(settings: Settings, contexts: Contexts, answers: list[tuple[Answers, Contexts]]) -> None:
    """Any context is called long when that is likelier than not; one of the hottest when it is sure, by bytes."""
    settings.hot_samples = _hot_samples(contexts)
    long, true, amounts = [], [], []
    for said, each in answers:
        chosen = said.known & each.is_decided & (said.samples >= settings.hot_samples)
        long.append(said.long[chosen])
        true.append(each.is_long[chosen])
        amounts.append(each.bytes[chosen])
    settings.least_long_hot = max(
        settings.least_long,
        least_long(numpy.concatenate(long), numpy.concatenate(true), numpy.concatenate(amounts), PRECISION),
    )


def _hot_samples(contexts: Contexts) -> int:
    """Samples from which on answers are of contexts that hold most of the bytes. An answer counts those of all contexts
    with its stack, in all profiles."""
    numbers: dict[tuple[str, ...], int] = {}
    of = [numbers.setdefault(stack, len(numbers)) for stack in contexts.stacks]
    samples = numpy.bincount(of, contexts.samples)
    order = numpy.argsort(-samples, kind="stable")
    held = numpy.cumsum(numpy.bincount(of, contexts.bytes)[order])
    last = int(numpy.searchsorted(held, _HOT_BYTES * held[-1]))
    return max(1, min(int(samples[order[min(last, len(order) - 1)]]), 65_535))


def _with_thresholds(answers: Answers, settings: Settings) -> Answers:
    needed = numpy.where(
        answers.samples >= settings.hot_samples, settings.least_long_hot, settings.least_long
    )
    return replace(answers, called_long=answers.known & (answers.long >= needed))


def _renamed(contexts: Contexts, random: numpy.random.Generator) -> Contexts:
    """The contexts as another build might have them: some functions are gone from all stacks, some have new names."""
    names = sorted({name for raw in contexts.raw for name in raw if name})
    fate = dict(zip(names, random.random(len(names)).tolist(), strict=True))
    raw = [
        [
            name if fate.get(name, 1) >= _RENAMED else "unheard_of"
            for name in names_of
            if fate.get(name, 1) >= _RENAMED / 2
        ]
        for names_of in contexts.raw
    ]
    return replace(contexts, raw=raw)


def _join(parts: list[Predictions]) -> Predictions:
    return Predictions(
        **{
            name: numpy.concatenate([getattr(part, name) for part in parts])
            for name in Predictions.__dataclass_fields__
        }
    )


def _gain(
    content: bytes, profiles: Sequence[Lifetimes], contexts: Contexts, settings: Settings, seed: int
) -> tuple[float | None, float]:
    """What two classes save, on average over the profiles by what their runs allocated (None: there is nothing to replay),
    and the smallest part of a profile's objects that was replayed."""
    model = LifetimeModel.from_bytes(content, "the model")
    answers = ask(model, contexts)
    is_long = answers.called_long
    gains, weights, parts = [], [], [1.0]
    for number, lifetimes in enumerate(profiles):
        if not len(lifetimes.pairs):
            continue
        own = contexts.profile == number
        long: NDArray[numpy.bool_] = numpy.zeros(len(lifetimes), dtype=bool)
        long[contexts.number[own]] = is_long[own]
        found, part = replay.gain(lifetimes, long, tau=settings.tau, seed=seed)
        gains.append(found)
        parts.append(part)
        weights.append(float(lifetimes.runs["allocated"].sum()))
    return float(numpy.average(gains, weights=weights)) if gains and sum(weights) else None, min(parts)


def read_model(path: str | Path) -> LifetimeModel:
    """Reads and checks a .model file. Raises memoir.Error when it is none."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None
    check_begins_like(path, content, "a model of lifetimes")
    return LifetimeModel.from_bytes(content, str(path))
