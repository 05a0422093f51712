# SPDX-License-Identifier: Apache-2.0
"""What a model saw, for people who look at it: the section `facts` of its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from memoir._core import name_words
from memoir.lifetimes import Lifetimes
from memoir.train.assembly import Settings
from memoir.train.contexts import CLASSES, Contexts

_MOST_WORDS = 20
_MOST_PROGRAMS = 50


def facts_of(
    profiles: Sequence[Lifetimes],
    contexts: Contexts,
    settings: Settings,
    held_out: dict[str, Any],
    gain: float | None,
    network: str | None,
) -> dict[str, Any]:
    programs = sorted(
        {Path(profile.program(run)).name for profile in profiles for run in range(len(profile.runs))}
    )
    facts: dict[str, Any] = {
        "profiles": len(profiles),
        "runs": sum(profile.totals["runs"] for profile in profiles),
        "samples": sum(profile.totals["samples"] for profile in profiles),
        "contexts": len(contexts),
        "stacks": len(set(contexts.stacks)),
        "classes": numpy.bincount(contexts.classes, minlength=CLASSES).tolist(),
        "decided": int(contexts.is_decided.sum()),
        "long": int(contexts.is_long.sum()),
        "network": network,
        "gain": None if gain is None else round(gain, 2),
        "held_out": {name: _rounded(each) for name, each in held_out.items()},
    }
    if not settings.key:
        facts["programs"] = programs[:_MOST_PROGRAMS]
        facts["words_for_long"] = _words(contexts)
    return facts


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value


def _words(contexts: Contexts) -> list[dict[str, Any]]:
    """Words of the names of long contexts that others have not: by the logarithm of the odds, from the most on."""
    seen: dict[str, list[int]] = {}
    known: dict[str, list[str]] = {}
    decided, long = contexts.is_decided, contexts.is_long
    for number in numpy.flatnonzero(decided).tolist():
        found: set[str] = set()
        for name in contexts.stacks[number][:16]:
            if name not in known:
                known[name] = name_words(name)
            found.update(known[name])
        for word in found:
            seen.setdefault(word, [0, 0])[int(long[number])] += 1
    total = [int((decided & ~long).sum()), int((decided & long).sum())]
    rows = []
    for word, (short, much) in seen.items():
        odds = numpy.log((much + 0.5) / (short + 0.5)) - numpy.log((total[1] + 0.5) / (total[0] + 0.5))
        if much >= 2 and odds > 0:
            rows.append((float(odds) * numpy.log1p(much), word, float(odds), much, short))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [
        {"word": word, "log_odds": round(odds, 2), "long": much, "short": short}
        for _, word, odds, much, short in rows[:_MOST_WORDS]
    ]
