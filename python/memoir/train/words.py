# SPDX-License-Identifier: Apache-2.0
"""The linear model on words of names: a softmax over the classes, and one more output for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from memoir._core import fit_words, name_words, stack_features, token_hash
from memoir.train.contexts import CLASSES, PLUMBING, Contexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = CLASSES + 1
ROWS = 1 << 14
_FRAMES = 16  # that features look at
_L2 = 0.01  # what the squares of weights cost, next to the losses of the contexts
_MOST_STEPS = 80


def fit(
    stacks: Sequence[tuple[str, ...]],
    sizes: NDArray[numpy.int64],
    targets: NDArray[numpy.float64],
    weights: NDArray[numpy.float64],
    *,
    key: int = 0,
    rows: int = ROWS,
) -> bytes:
    """The weights section. targets: (n, 9), the class as one of eight, then long; weights: (n, 2), of either."""
    indices, begins = stack_features([list(stack) for stack in stacks], sizes.tolist(), rows, key)
    matrix, bias = fit_words(
        indices, begins, targets.astype(numpy.float32), weights.astype(numpy.float32), rows, _L2, _MOST_STEPS
    )
    scale = numpy.abs(matrix).max(axis=0) / 127
    scale[scale == 0] = 1
    whole = numpy.clip(numpy.rint(matrix / scale), -127, 127).astype(numpy.int8)
    parts: list[bytes] = [scale.astype("<f4").tobytes(), bias.astype("<f4").tobytes(), whole.tobytes()]
    return b"".join(parts)


def token_section(contexts: Contexts, key: int = 0) -> tuple[bytes, list[str]]:
    """The tokens section and their texts: words of all names, with how much each tells of being of these programs, and
    whether the outermost names have it."""
    stacks = contexts.stacks
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
    runtime = {name for names in contexts.runtime for name in names}
    common = _EVERYWHERE.union(
        *(name_words(name) for name in {*words} | runtime if name in runtime or name.startswith(PLUMBING))
    )
    outer = {
        word for name in {name for names in contexts.outer for name in names} for word in name_words(name)
    }
    outer -= common
    for word, count in seen.items():
        rarity = numpy.log(total / count) / numpy.log(total)
        value = 0 if word in common else round(65_535 * max(min(float(rarity), 1.0), 0.02))
        by_hash[token_hash(word, key)] = (value, word)
    if len(by_hash) > 65_535:
        by_hash = dict(sorted(by_hash.items(), key=lambda item: item[1][0])[:65_535])
    rows = numpy.zeros(len(by_hash), [("hash", "<u4"), ("rarity", "<u2"), ("flags", "<u2")])
    ordered = sorted(by_hash.items())
    rows["hash"] = [number for number, _ in ordered]
    rows["rarity"] = [value for _, (value, _) in ordered]
    rows["flags"] = [word in outer for _, (_, word) in ordered]
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
