# SPDX-License-Identifier: Apache-2.0
"""What remembering costs: the ledger's share of the time, one set of slabs for all models, memory that goes back."""

import random
import time

import memoir.torch
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from memoir import _torch


def test_packed_sequences_of_random_lengths_are_not_searched_for_for_ever(ledger):
    lstm = torch.nn.LSTM(16, 32, batch_first=True).eval()

    def work(sequences):
        packed = pack_sequence(sequences, enforce_sorted=False)
        return pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]

    remembered = memoir.torch.remember(work)
    draw = random.Random(4)
    with torch.inference_mode():
        for _ in range(150):
            sequences = [torch.randn(draw.randint(3, 30), 16) for _ in range(draw.randint(1, 5))]
            assert torch.equal(remembered(sequences), work(sequences))
    stats = memoir.torch.stats(remembered)
    assert stats.calls == 150 <= stats.plan_hits + stats.recorded_passes + stats.plain_passes
    assert stats.plain_passes > 20
    # Some passes' time in advance, and its share: far from the 15 to 40 passes that each search took.
    assert 0 < stats.learning_seconds < 0.5 * stats.pass_seconds


def test_calls_too_short_to_be_looked_at_run_plain(ledger):
    remembered = memoir.torch.remember(torch.neg)
    x = torch.ones(4)
    with torch.inference_mode():
        for _ in range(20_000):
            remembered(x)
    stats = memoir.torch.stats(remembered)
    assert stats.calls == 20_000 == stats.plan_hits + stats.recorded_passes + stats.plain_passes
    assert stats.plain_passes > 10_000


def test_ten_models_hold_one_arena():
    def of(factor):
        return memoir.torch.remember(lambda x: ((x * factor).relu() + 1).sum())

    models = [of(factor) for factor in range(10)]
    with torch.inference_mode():
        for _ in range(3):
            for size, model in enumerate(models):
                model(torch.ones(100_000 + 10_000 * size))
    stats = [memoir.torch.stats(model) for model in models]
    assert all(s.plan_hits == 2 and s.in_step_passes == 2 for s in stats)
    assert {s.slabs for s in stats} == {1}
    most = max(s.arena_size for s in stats)
    assert most <= stats[0].slab_bytes < 1.02 * most + 4096


def wait_for(condition):
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_what_a_large_call_took_goes_back_while_small_ones_go_on():
    remembered = memoir.torch.remember(lambda x: (x * 2).relu().sum())
    large, small = torch.ones(4_000_000), torch.ones(20_000)
    with torch.inference_mode():
        for x in (small, large) * 2:
            remembered(x)
        assert memoir.torch.stats(remembered).slab_bytes > 15_000_000
        assert wait_for(
            lambda: remembered(small) is not None and memoir.torch.stats(remembered).slab_bytes < 1_000_000
        )
        assert torch.equal(remembered(large), (large * 2).relu().sum())
    stats = memoir.torch.stats(remembered)
    assert stats.in_step_passes == stats.plan_hits and stats.slabs == 1


def test_an_idle_model_holds_no_slab_memory():
    remembered = memoir.torch.remember(lambda x: (x * 2).relu().sum())
    x = torch.ones(1_000_000)
    with torch.inference_mode():
        for _ in range(3):
            remembered(x)
        assert memoir.torch.stats(remembered).slab_bytes > 0
        assert wait_for(lambda: memoir.torch.stats(remembered).slab_bytes == 0)
        assert torch.equal(remembered(x), (x * 2).relu().sum())
    assert memoir.torch.stats(remembered).in_step_passes == 3


def test_large_arguments_are_looked_at_level_by_level():
    class Service:
        def __init__(self):
            self.table = {f"word{i}": i for i in range(5000)}

    service = Service()
    remembered = memoir.torch.remember(lambda service, numbers, x: (x * 2).relu().sum())
    with torch.inference_mode():
        for rows in (1000, 2000, 3000, 4000):
            for _ in range(2):
                remembered(service, list(range(rows % 7, 3000 + rows % 7)), torch.ones(rows))
    stats = memoir.torch.stats(remembered)
    # The tensor behind the tables is seen: two sizes are recorded, the others derived.
    assert (stats.recorded_passes, stats.in_step_passes) == (2, 6)
    assert _torch.SlabSet.of_process().held_bytes >= 2 * 4 * 4000
