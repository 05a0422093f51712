# SPDX-License-Identifier: Apache-2.0
"""memoir.inductor: with blocks made here, and in code that Inductor generates and runs."""

import re
import types
import warnings

import memoir.frameworks.plug
import memoir.inductor
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.full  # importing Inductor takes ten seconds of a slow machine


def generated(model, example):
    """Inductor's code for inference, with no kernel compiled; and the bytes of its pools."""
    from torch._inductor import config
    from torch._inductor.utils import get_code

    torch._dynamo.reset()
    with torch.inference_mode(), config.patch(memory_planning=True, force_disable_caches=True):
        try:
            code = get_code(torch.compile(model), example)[0]
        except AssertionError:  # the call that follows has no kernel to call
            pytest.fail("a model for generated() has one output")
    pools = re.findall(r"pool\d+ = empty_strided_cpu\(\(([\d, ]+?),? ?\), \(.*torch\.(\w+)\)", code)
    total = 0
    for shape, kind in pools:
        count = 1
        for side in shape.split(","):
            count *= int(side)
        total += count * getattr(torch, kind).itemsize
    return code, total


class Branches(torch.nn.Module):
    """Inception's: branches of unequal widths and depths, which are not pointwise neighbours."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.stem = conv(3, 24, 3)
        self.one = torch.nn.Sequential(conv(24, 16, 1), torch.nn.ReLU(), conv(16, 40, 3), torch.nn.ReLU())
        self.two = torch.nn.Sequential(conv(24, 8, 1), conv(8, 12, 3), torch.nn.ReLU())
        self.three = torch.nn.Sequential(torch.nn.MaxPool2d(3, 1), conv(24, 20, 1))
        self.end = conv(72, 4, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.end(torch.cat([self.one(x), self.two(x), self.three(x)], 1))


@pytest.fixture
def installed():
    memoir.frameworks.plug.hand_over.cache_clear()
    memoir.inductor.install()
    yield
    memoir.inductor.uninstall()


def block(begin, end, size):
    return types.SimpleNamespace(
        live_range=types.SimpleNamespace(begin=begin, end=end),
        size_hint=size,
        symbolic_size=size,
        earliest_available=None,
        pool=None,
        offset=None,
        get_live_ranges=lambda: None,
    )


def planner_of(blocks, sizes, outputs=()):
    """A planner whose own pools take `sizes` bytes, each with the blocks that name it."""
    pools = [
        types.SimpleNamespace(
            name=f"pool{index}", root=types.SimpleNamespace(get_size_hint=lambda size=size: size)
        )
        for index, size in enumerate(sizes)
    ]
    for number, one in enumerate(blocks):
        one.pool = pools[min(number, len(pools) - 1)] if len(pools) > 1 else pools[0]
    groups = [
        types.SimpleNamespace(allocation=one, is_output=number in outputs)
        for number, one in enumerate(blocks)
    ]
    return types.SimpleNamespace(
        pools=types.SimpleNamespace(device_to_pools={"cpu": pools}), buffer_groups=groups
    )


def test_what_does_not_live_together_shares_and_what_does_not():
    blocks = [block(1, 3, 100), block(2, 4, 60), block(3, 5, 100)]
    planner = planner_of(blocks, [400])
    memoir.inductor._replan(planner, 1.0)
    (pool,) = planner.pools.device_to_pools["cpu"]
    assert pool.size in (188, 192, 164, 128 + 60) and {one.pool for one in blocks} == {pool}
    offsets = [int(one.offset) for one in blocks]
    assert all(offset % 64 == 0 for offset in offsets)
    for a, b in ((0, 1), (1, 2)):
        low, high = sorted((a, b), key=lambda index: offsets[index])
        assert offsets[low] + blocks[low].symbolic_size <= offsets[high]


@pytest.mark.parametrize("why", ["as small", "an output", "a symbol"])
def test_a_pool_stays_theirs(why):
    import sympy

    blocks = [block(1, 3, 64), block(2, 4, 64)]
    if why == "a symbol":
        blocks[0].symbolic_size = sympy.Symbol("s0")
    planner = planner_of(
        blocks, [128 if why == "as small" else 999], outputs=[0] if why == "an output" else []
    )
    before = list(planner.pools.device_to_pools["cpu"])
    memoir.inductor._replan(planner, 1.0)
    assert planner.pools.device_to_pools["cpu"] == before and blocks[0].offset is None


def test_pools_are_smaller_and_are_taken_back(installed):
    example = torch.randn(1, 3, 40, 40)
    _, ours = generated(Branches().eval(), example)
    memoir.inductor.uninstall()
    _, theirs = generated(Branches().eval(), example)
    assert 0 < ours <= theirs


def test_outputs_are_equal(installed):
    model, example = Branches().eval(), torch.randn(1, 3, 24, 24)
    with torch.inference_mode():
        ours = torch.compile(model)(example)
        torch._dynamo.reset()
        memoir.inductor.uninstall()
        theirs = torch.compile(model)(example)
    assert torch.equal(ours, theirs)


def test_where_memoir_fails_inductor_plans_and_one_warning_says_so(installed, monkeypatch):
    def fail(*_):
        raise memoir.Error("no luck")

    monkeypatch.setattr(memoir.inductor, "place", fail)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, ours = generated(Branches().eval(), torch.randn(1, 3, 40, 40))
    memoir.inductor.uninstall()
    assert ours == generated(Branches().eval(), torch.randn(1, 3, 40, 40))[1]
    assert sum("so its own planner does it: Error: no luck" in str(one.message) for one in caught) == 1
