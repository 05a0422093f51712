# SPDX-License-Identifier: Apache-2.0
"""Sequence models: the LLAMA paper's LSTM over the frames of a stack, and minGRU, a gated recurrence whose gates do not look at
the state, so that all steps are found at once. Trained with torch, run without it: the section `network` has the weights.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import Error, name_parts, name_words, network_tokens, token_hash
from memoir.train.contexts import CLASSES, Contexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = {"lstm": 1, "mingru": 2}
SPLITS = {"lstm": 0, "mingru": 1}  # the paper splits at special characters; words also survive renaming
MOST_TOKENS = 96
_VOCABULARY = 2_000  # of the commonest tokens
_SPECIAL = 3  # separator, unknown, start
_EMBEDDING, _HIDDEN = 32, 48
_BATCH = 64  # at most
_UNKNOWN_SHARE = 0.05  # of tokens that training replaces: there are unknown ones elsewhere
_RATE = 4e-3
_KEEP = 1.0  # the bias of the LSTM's forget gates at first


def fit_network(
    contexts: Contexts, kind: str, *, key: int = 0, seed: int = 1, passes: int | None = None
) -> bytes:
    """The network section. Raises memoir.Error when torch is not installed."""
    try:
        import torch
    except ImportError:
        raise Error(f"--model {kind} is trained with torch: pip install torch") from None
    stacks = [list(stack) for stack in contexts.stacks]
    hashes = _vocabulary(contexts.stacks, SPLITS[kind], key)
    tokens, begins = network_tokens(stacks, hashes, SPLITS[kind], MOST_TOKENS, key)
    torch.manual_seed(seed)
    module = make_module(kind, len(hashes) + _SPECIAL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with matrices so small, threads wait for each other more than they compute
    try:
        _descend(
            torch, module, tokens.astype(numpy.int64), begins.astype(numpy.int64), contexts, seed, passes
        )
    finally:
        torch.set_num_threads(threads)
    return section(kind, hashes, module)


def section(kind: str, hashes: NDArray[numpy.uint32], module: Any) -> bytes:
    """The network section of a module from make_module()."""
    head = struct.pack(
        "<IIIIIIQ",
        KINDS[kind],
        SPLITS[kind],
        len(hashes) + _SPECIAL,
        _EMBEDDING,
        _HIDDEN,
        MOST_TOKENS,
        0,
    )
    words = hashes.astype("<u4").tobytes()
    words += b"\0" * (-len(words) % 8)
    if kind == "lstm":
        cell = module.cell
        order = [cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0]
    else:
        order = [module.z.weight, module.z.bias, module.h.weight, module.h.bias]
    matrices = [module.embedding.weight, *order, module.out.weight, module.out.bias]
    return head + words + b"".join(each.detach().numpy().astype("<f4").tobytes() for each in matrices)


def _vocabulary(stacks: Sequence[tuple[str, ...]], split: int, key: int) -> NDArray[numpy.uint32]:
    of_name: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for stack in stacks:
        for name in stack:
            if name not in of_name:
                of_name[name] = name_words(name) if split else name_parts(name)
            counts.update(of_name[name])
    common = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_VOCABULARY]]
    return numpy.array(sorted({token_hash(word, key) for word in common}), dtype=numpy.uint32)


def make_module(kind: str, tokens: int) -> Any:
    """A torch module: numbers of tokens (batch, steps), padded behind, and their lengths, to nine outputs."""
    import torch
    from torch import nn

    class SequenceModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(tokens, _EMBEDDING)
            nn.init.normal_(self.embedding.weight, std=0.3)
            if kind == "lstm":
                self.cell = nn.LSTM(_EMBEDDING, _HIDDEN, batch_first=True)
                # Gates that first keep what they saw learn long stacks (Jozefowicz et al. 2015, section 2.2).
                nn.init.constant_(self.cell.get_parameter("bias_ih_l0")[_HIDDEN : 2 * _HIDDEN], _KEEP)
            else:
                self.z, self.h = nn.Linear(_EMBEDDING, _HIDDEN), nn.Linear(_EMBEDDING, _HIDDEN)
            self.out = nn.Linear(_HIDDEN, CLASSES + 1)

        def forward(self, numbers: Any, lengths: Any, drop: float = 0.0) -> Any:
            values = self.embedding(numbers)
            last = (lengths - 1)[:, None, None].expand(-1, 1, _HIDDEN)
            if kind == "lstm":
                states = self.cell(values)[0]
            else:
                gates = torch.sigmoid(self.z(values))
                states = _scan(torch, 1 - gates, gates * self.h(values))
            state = states.gather(1, last)[:, 0]
            return self.out(nn.functional.dropout(state, drop, self.training))

    return SequenceModel()


def _scan(torch: Any, keep: Any, add: Any) -> Any:
    """All states of state = keep * state + add, from zero on; (batch, steps, hidden). Each round doubles how many steps a state
    looks back: seven rounds for a hundred steps, where a loop would take torch a hundred small operations, forth and back."""
    reach = 1
    while reach < add.shape[1]:
        add = torch.cat([add[:, :reach], add[:, reach:] + keep[:, reach:] * add[:, :-reach]], dim=1)
        keep = torch.cat([keep[:, :reach], keep[:, reach:] * keep[:, :-reach]], dim=1)
        reach *= 2
    return add


def _descend(
    torch: Any,
    module: Any,
    tokens: NDArray[numpy.int64],
    begins: NDArray[numpy.int64],
    contexts: Contexts,
    seed: int,
    passes: int | None,
) -> None:
    """Adam with a warm start and a rate that falls to zero; samples weigh by the logarithm of how often they were seen."""
    lengths = numpy.maximum(begins[1:] - begins[:-1], 1)
    padded = numpy.full((len(lengths), int(lengths.max())), 2)
    for row, (begin, end) in enumerate(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)):
        padded[row, : end - begin] = tokens[begin:end]
    numbers, ends = torch.from_numpy(padded), torch.from_numpy(lengths)
    classes = torch.from_numpy(contexts.classes)
    weight = torch.from_numpy(
        numpy.log2(1 + contexts.samples) / numpy.log2(1 + contexts.samples).mean()
    ).float()
    long = torch.from_numpy(contexts.is_long.astype(numpy.float32))
    decided = torch.from_numpy(contexts.is_decided.astype(numpy.float32))
    count = len(lengths)
    size = max(8, min(_BATCH, count // 16))
    turns = passes or max(8, min(120, 80_000 // count))
    optimizer = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=1e-3)
    total = turns * -(-count // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=total, pct_start=0.1)
    random = numpy.random.default_rng(seed)
    module.train()
    for _ in range(turns):
        order = random.permutation(count)
        for first in range(0, count, size):
            batch = torch.from_numpy(order[first : first + size])
            longest = int(ends[batch].max())
            some = numbers[batch][:, :longest]
            some = torch.where(torch.rand(some.shape) < _UNKNOWN_SHARE, torch.ones_like(some), some)
            outputs = module(some, ends[batch], 0.2)
            loss = torch.nn.functional.cross_entropy(outputs[:, :CLASSES], classes[batch], reduction="none")
            more = torch.nn.functional.binary_cross_entropy_with_logits(
                outputs[:, CLASSES], long[batch], reduction="none"
            )
            value = ((loss + more * decided[batch]) * weight[batch]).mean()
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    module.eval()
