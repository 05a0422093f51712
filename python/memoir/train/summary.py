# SPDX-License-Identifier: Apache-2.0
"""What a .model file holds in figures, for people and for --json."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy

from memoir._core import LifetimeModel, name_hash, size_name
from memoir.lifetimes import Lifetimes
from memoir.train.assembly import ONE_CLASS, PRIVATE, SETTINGS, STAGE_NAMES
from memoir.train.contexts import CLASSES, read_contexts
from memoir.train.evaluation import Answers, ask, compare

_NETWORKS = {1: "lstm", 2: "mingru"}
_MOST_FRAMES = 6


def summarize(model: LifetimeModel, size: int, most: int = 20) -> dict[str, Any]:
    """size: bytes of the file. The classes are of all stacks; the sites are the `most` stacks with the most samples, of
    each class."""
    fields = SETTINGS.unpack(bytes(model.records("settings")))
    facts = bytes(model.records("facts"))
    network = bytes(model.records("network"))
    return {
        "bytes": size,
        "one_class": bool(fields[0] & ONE_CLASS),
        "private": bool(fields[0] & PRIVATE),
        "stages": [name for number, name in enumerate(STAGE_NAMES) if fields[1] >> number & 1],
        "prior_worth": fields[3],
        "least_long": round(fields[7], 4),
        "least_long_hot": round(fields[13], 4),
        "hot_samples": fields[12],
        "tau": round(fields[8], 4),
        "builds": model.count("modules"),
        "addresses": model.count("addresses"),
        "names": model.count("names"),
        "words": model.count("tokens"),
        "network": _NETWORKS.get(struct.unpack_from("<I", network)[0]) if network else None,
        "facts": json.loads(facts) if facts else {},
        **_sites(model, fields, most),
    }


def _sites(model: LifetimeModel, fields: tuple[Any, ...], most: int) -> dict[str, list[dict[str, Any]]]:
    """Stacks of the trie: what the model says of each, before calibration; and of all of them by class."""
    nodes = model.records("nodes").view("<u4").reshape(-1, 3)
    answers = model.records("answers").reshape(-1, 12)
    wall = answers[:, :CLASSES].astype(float)
    long = answers[:, 8:10].copy().view("<u2")[:, 0] / 65_535
    samples = answers[:, 10:12].copy().view("<u2")[:, 0]
    parents = numpy.zeros(len(nodes), dtype=numpy.int64)
    first, children = nodes[:, 0] & 0xFFFFFF, nodes[:, 2] >> 16
    for number in numpy.flatnonzero(children).tolist():
        parents[int(first[number]) : int(first[number]) + int(children[number])] = number
    of = nodes[:, 2] & 0xFFFF
    ends = numpy.flatnonzero(nodes[:, 1] >> 24 & 1)
    best = wall[of[ends]].argmax(axis=1)
    order = numpy.argsort(-samples[of[ends]].astype(int), kind="stable")
    left = [most] * CLASSES
    rows = []
    classes = [
        {"class": kind, "sites": 0, "samples": 0, "confidence": 0.0, "called_long": 0}
        for kind in range(CLASSES)
    ]
    labels = _labels(model)
    sizes = _size_texts(model)
    for place in order.tolist():
        kind, answer = int(best[place]), int(of[ends[place]])
        count = int(samples[answer])
        sure = float(wall[answer, kind] / wall[answer].sum())
        called_long = bool(long[answer] >= _least_long(fields, count))
        row = classes[kind]
        row["sites"] += 1
        row["samples"] += count
        row["confidence"] += sure * count
        row["called_long"] += called_long
        if not left[kind]:
            continue
        left[kind] -= 1
        stack = _path(nodes, parents, labels, int(ends[place]))
        size = sizes.get(stack[-1]) if stack else None
        rows.append(
            {
                "stack": (stack if size is None else stack[:-1])[:_MOST_FRAMES],
                "size": size,
                "class": kind,
                "confidence": round(sure, 3),
                "long": round(float(long[answer]), 3),
                "called_long": called_long,
                "samples": count,
            }
        )
    for row in classes:
        row["confidence"] = round(row["confidence"] / max(row["samples"], 1), 3)
    return {
        "classes": [row for row in classes if row["sites"]],
        "sites": sorted(rows, key=lambda row: (row["class"], -row["samples"])),
    }


def _least_long(fields: tuple[Any, ...], samples: int) -> float:
    """The probability from which on a context with so many samples is called long."""
    return float(fields[13] if 0 < fields[12] <= samples else fields[7])


def _labels(model: LifetimeModel) -> list[str]:
    """A text for each label of the trie: a name, or its hash."""
    labels = model.records("labels").view("<u2").tolist()
    hashes = model.records("names").view("<u8").tolist()
    texts = model.records("name_texts")
    if len(texts):
        text = bytes(model.records("text"))
        names = [
            text[begin : begin + size].decode() for begin, size in texts.view("<u4").reshape(-1, 2).tolist()
        ]
    else:
        names = [f"#{number:016x}" for number in hashes]
    return [names[label] for label in labels]


def _size_texts(model: LifetimeModel) -> dict[str, int]:
    """By how _labels() shows them, what the sizes that stand in the trie as frames begin at."""
    found = {}
    for bits in range(64):
        for size in {(4 + quarter) << bits >> 2 for quarter in range(4)}:
            name = size_name(size)
            begin = int(name.split()[1])
            found[name] = found[f"#{name_hash(name, model.key):016x}"] = begin
    return found


def _path(nodes: Any, parents: Any, labels: list[str], node: int) -> list[str]:
    edges = []
    while node:
        begin, count = int(nodes[node, 1] & 0xFFFFFF), int(nodes[node, 0] >> 24)
        edges.append(labels[begin : begin + count])
        node = int(parents[node])
    return [name for edge in reversed(edges) for name in edge]


def against(model: LifetimeModel, lifetimes: Lifetimes, most: int = 20) -> dict[str, Any]:
    """What the model says of a profile's contexts, next to what the profile says."""
    fields = SETTINGS.unpack(bytes(model.records("settings")))
    contexts = read_contexts([lifetimes], fields[8])
    answers = ask(model, contexts)
    largest = numpy.argsort(-contexts.bytes, kind="stable")[:most].tolist()
    return {
        **compare(answers, contexts),
        "largest": [_said(answers, contexts, number) for number in largest],
    }


def _said(answers: Answers, contexts: Any, number: int) -> dict[str, Any]:
    known = bool(answers.known[number])
    kind = int(answers.classes[number])
    decided = bool(contexts.is_decided[number])
    return {
        "stack": list(contexts.stacks[number][:_MOST_FRAMES]),
        "bytes": round(float(contexts.bytes[number])),
        "stage": STAGE_NAMES[int(answers.stage[number])] if known else None,
        "class": kind if known else None,
        "confidence": round(float(answers.wall[number, kind]), 3) if known else None,
        "long": round(float(answers.long[number]), 3) if known else None,
        "called_long": bool(answers.called_long[number]),
        "true_class": int(contexts.classes[number]),
        "true_long": bool(contexts.is_long[number]) if decided else None,
    }
