# SPDX-License-Identifier: Apache-2.0
"""The linear model on words of names: a softmax over the classes, and one more output for long. Fitted with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from memoir._core import name_words, stack_features, token_hash
from memoir.train.contexts import CLASSES, PLUMBING

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = CLASSES + 1
ROWS = 1 << 14
_FRAMES = 16  # that features look at
_BATCH = 256  # at most; an eighth of the contexts where they are few
_PASSES = 24
_RATE = 0.35
_L2 = 1e-5
_DROP = (
    0.3  # share of the features left out of an example each time it is seen: names change between versions
)


def fit(
    stacks: Sequence[tuple[str, ...]],
    sizes: NDArray[numpy.int64],
    targets: NDArray[numpy.float64],
    weights: NDArray[numpy.float64],
    *,
    key: int = 0,
    rows: int = ROWS,
    seed: int = 1,
) -> bytes:
    """The weights section. targets: (n, 9), the class as one of eight, then long; weights: (n, 2), of either."""
    indices, begins = stack_features([list(stack) for stack in stacks], sizes.tolist(), rows, key)
    matrix, bias = _descend(
        indices.astype(numpy.int64), begins.astype(numpy.int64), targets, weights, rows, seed
    )
    scale = numpy.abs(matrix).max(axis=0) / 127
    scale[scale == 0] = 1
    whole = numpy.clip(numpy.rint(matrix / scale), -127, 127).astype(numpy.int8)
    parts: list[bytes] = [scale.astype("<f4").tobytes(), bias.astype("<f4").tobytes(), whole.tobytes()]
    return b"".join(parts)


def _descend(
    indices: NDArray[numpy.int64],
    begins: NDArray[numpy.int64],
    targets: NDArray[numpy.float64],
    weights: NDArray[numpy.float64],
    rows: int,
    seed: int,
) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """Adagrad in small batches."""
    count = len(begins) - 1
    random = numpy.random.default_rng(seed)
    matrix = numpy.zeros((COLUMNS, rows), numpy.float32)
    squares = numpy.full((COLUMNS, rows), 1e-3, numpy.float32)
    total = numpy.maximum(weights.sum(axis=0), 1e-9)
    mean = (targets[:, :CLASSES] * weights[:, :1]).sum(axis=0) / total[0]
    bias = numpy.zeros(COLUMNS, numpy.float32)
    bias[:CLASSES] = numpy.log(mean + 1e-3)
    base = float((targets[:, CLASSES] * weights[:, 1]).sum() / total[1])
    bias[CLASSES] = numpy.log((base + 0.02) / (1 - base + 0.02))
    size = max(16, min(_BATCH, count // 8))
    passes = max(6, min(_PASSES, 30_000 // max(count, 1)))
    by_column = numpy.repeat(weights, [CLASSES, 1], axis=1).astype(numpy.float32)
    wanted = targets.astype(numpy.float32)
    for turn in range(passes):
        rate = numpy.float32(_RATE * (1 - turn / passes))
        order = random.permutation(count)
        for first in range(0, count, size):
            batch = order[first : first + size]
            lengths = begins[batch + 1] - begins[batch]
            offsets = numpy.cumsum(lengths) - lengths
            places = numpy.repeat(begins[batch] - offsets, lengths) + numpy.arange(lengths.sum())
            of = numpy.repeat(numpy.arange(len(batch)), lengths)
            kept = random.random(len(places), dtype=numpy.float32) >= _DROP
            chosen, of = indices[places[kept]], of[kept]
            if len(chosen) == 0:
                continue
            share = 1 / numpy.sqrt(numpy.maximum(numpy.bincount(of, minlength=len(batch)), 1))
            values = share[of].astype(numpy.float32)
            rows_of = matrix[:, chosen] * values
            outputs = numpy.empty((len(batch), COLUMNS), numpy.float32)
            for column in range(COLUMNS):
                outputs[:, column] = numpy.bincount(of, rows_of[column], minlength=len(batch)) + bias[column]
            error = (probabilities(outputs) - wanted[batch]) * by_column[batch] / len(batch)
            for column in range(COLUMNS):
                slope = numpy.bincount(chosen, values * error[of, column], minlength=rows).astype(
                    numpy.float32
                )
                slope += _L2 * matrix[column]
                squares[column] += slope * slope
                matrix[column] -= rate * slope / numpy.sqrt(squares[column])
            bias -= rate * numpy.float32(0.1) * error.sum(axis=0)
    return matrix.T, bias


def probabilities(outputs: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    result = numpy.empty_like(outputs)
    classes = outputs[:, :CLASSES]
    powers = numpy.exp(classes - classes.max(axis=1, keepdims=True))
    result[:, :CLASSES] = powers / powers.sum(axis=1, keepdims=True)
    result[:, CLASSES] = 1 / (1 + numpy.exp(-numpy.clip(outputs[:, CLASSES], -60, 60)))
    return result


def token_section(stacks: Sequence[tuple[str, ...]], key: int = 0) -> tuple[bytes, list[str]]:
    """The tokens section and their texts: words of all names, with how much each tells of being of these programs."""
    words: dict[str, list[str]] = {}
    seen: dict[str, int] = {}
    for stack in stacks:
        in_stack: set[str] = set()
        for name in stack[:_FRAMES]:
            if name not in words:
                words[name] = name_words(name)
            in_stack.update(words[name])
        for word in in_stack:
            seen[word] = seen.get(word, 0) + 1
    by_hash: dict[int, tuple[int, str]] = {}
    total = max(len(stacks), 2)
    common = _EVERYWHERE.union(*(words[name] for name in words if name.startswith(PLUMBING)))
    for word, count in seen.items():
        rarity = numpy.log(total / count) / numpy.log(total)
        value = 0 if word in common else round(65_535 * max(min(float(rarity), 1.0), 0.02))
        by_hash[token_hash(word, key)] = (value, word)
    if len(by_hash) > 65_535:
        by_hash = dict(sorted(by_hash.items(), key=lambda item: item[1][0])[:65_535])
    rows = numpy.zeros(len(by_hash), [("hash", "<u4"), ("rarity", "<u2"), ("reserved", "<u2")])
    ordered = sorted(by_hash.items())
    rows["hash"] = [number for number, _ in ordered]
    rows["rarity"] = [value for _, (value, _) in ordered]
    return rows.tobytes(), [word for _, (_, word) in ordered]


# Words that programs of all kinds use: they tell nothing of whether a stack is of a program that was seen.
_EVERYWHERE = frozenset(
    """
    main start libc call thread clone std gnu cxx new delete alloc allocate allocator malloc calloc realloc free create
    init make copy get set add insert append push emplace back resize reserve grow string str vector map list hash table
    node buffer data value key size read write open close file run process execute handle next impl base traits type
    operator construct unique ptr shared function invoke begin end find assign move basic char int internal mem memory
    xmalloc xrealloc zmalloc dup strdup array item obj object ctx context state do ensure load parse print format
    """.split()  # noqa: SIM905
)
