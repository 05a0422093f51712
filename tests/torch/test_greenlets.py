# SPDX-License-Identifier: Apache-2.0
"""Greenlets take each other's place on one stack, in the midst of a remembered call: gevent, eventlet. Each gets the bits
of the plain call, and no two of them one range."""

import random
import threading

import memoir.torch
import pytest
import torch

from memoir import _torch

greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")


def deeper(levels, work):
    return work() if levels == 0 else deeper(levels - 1, work)


def run_in_turns(works, seed):
    """Each work in a greenlet, that is at some depth and gets its turns in an order drawn from the seed."""
    draw = random.Random(seed)
    results = {}

    def run(index, work, levels):
        results[index] = deeper(levels, work)

    going = []
    for index, work in enumerate(works):
        depth = draw.randrange(40)
        going.append(greenlet.greenlet(lambda i=index, w=work, d=depth: run(i, w, d)))
    while going:
        turn = draw.choice(going[:8])
        turn.switch()
        if turn.dead:
            going.remove(turn)
    return [results[i] for i in range(len(works))]


def give_way():
    greenlet.getcurrent().parent.switch()


@pytest.mark.parametrize("seed", range(3))
def test_calls_that_give_way_in_their_midst_have_the_bits_of_plain_calls(small_net, seed):
    net = small_net.eval()

    def handle(x):
        for i, layer in enumerate(net):
            x = layer(x)
            if i in (1, 5):
                give_way()
        return x

    remembered = memoir.torch.remember(handle)
    inputs = [torch.randn(1, 3, 24 + 4 * (i % 3), 32) for i in range(40)]
    with torch.inference_mode():
        expected = run_in_turns([lambda x=x: handle(x) for x in inputs], seed)
        results = run_in_turns([lambda x=x: remembered(x) for x in inputs], seed)
        assert all(map(torch.equal, results, expected))
        assert not _torch.in_pass()
        assert all(
            map(torch.equal, run_in_turns([lambda x=x: remembered(x) for x in inputs], seed + 9), expected)
        )
    stats = memoir.torch.stats(remembered)
    # Those that came while another one's pass was suspended ran within it, plain and not counted.
    assert 2 < stats.calls < 80 and stats.calls == stats.plan_hits + stats.recorded_passes
    assert stats.plan_hits > 0 and stats.in_step_passes == stats.plan_hits


def test_a_pass_hears_nothing_of_what_others_allocate_meanwhile(small_net):
    kept = []

    def handle(x):
        y = torch.relu(x + 1)
        give_way()
        return (y * 2).sum()

    def other():
        for size in (100, 40_000, 300_000):
            kept.append(torch.full((size,), float(size)))
            give_way()

    remembered = memoir.torch.remember(handle)
    x = torch.randn(50_000)
    expected = (torch.relu(x + 1) * 2).sum()
    with torch.inference_mode():
        for seed in range(12):
            works = [lambda: remembered(x), other, lambda: remembered(x)]
            results = run_in_turns(works, seed)
            assert torch.equal(results[0], expected) and torch.equal(results[2], expected)
    assert all(torch.equal(t, torch.full_like(t, float(t.numel()))) for t in kept)
    stats = memoir.torch.stats(remembered)
    assert stats.unmatched == 0 and stats.in_step_passes == stats.plan_hits > 0


def test_one_that_is_killed_or_never_goes_on_leaves_the_others_alone():
    def handle(x):
        y = x * 3
        give_way()
        return y + 1

    remembered = memoir.torch.remember(handle)
    x = torch.ones(20_000)

    def in_a_thread():  # whose pass goes with it
        with torch.inference_mode():
            for _ in range(3):
                greenlet.greenlet(lambda: remembered(x)).switch()  # dropped in its midst: GreenletExit
            assert not _torch.in_pass()
            stuck = greenlet.greenlet(lambda: remembered(x))
            stuck.switch()
            for _ in range(5):
                results.append(run_in_turns([lambda: remembered(x)], 0)[0])
            stuck.switch()
            results.append(run_in_turns([lambda: remembered(x)], 0)[0])

    results = []
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(results) == 6 and all(torch.equal(r, x * 3 + 1) for r in results)
    assert memoir.torch.stats(remembered).calls == 5  # three, the stuck one, and the last
