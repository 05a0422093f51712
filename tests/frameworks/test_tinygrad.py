# SPDX-License-Identifier: Apache-2.0
"""memoir.tinygrad, in tinygrad."""

import os
import shutil
import warnings

import memoir.frameworks.plug
import memoir.tinygrad
import pytest

if shutil.which("clang") is None:
    os.environ.setdefault("DEV", "NULL")  # its CPU device needs clang; a plan is made without a device
tinygrad = pytest.importorskip("tinygrad", reason="tinygrad is not here: pip install tinygrad")


@pytest.fixture
def installed():
    memoir.frameworks.plug.hand_over.cache_clear()
    memoir.tinygrad.install()
    yield
    memoir.tinygrad.uninstall()


def schedule_of(output):
    from tinygrad.uop.ops import Ops

    linear = output.schedule_linear()
    buffers = {u for item in linear.src for u in item.toposort() if u.op is Ops.BUFFER}
    return linear, sum(b.max_numel() * b.dtype.itemsize for b in buffers if b.dtype.itemsize == 1)


def dense(width=8, layers=6):
    """Each layer reads all that came before, as DenseNet does."""
    from tinygrad import Tensor

    x = Tensor.empty(1, width, 32, 32)
    for _ in range(layers):
        weight = Tensor.empty(width, x.shape[1], 3, 3)
        x = Tensor.cat(x, x.conv2d(weight, padding=1).relu(), dim=1)
    return x.sum((2, 3))


def test_an_arena_is_never_larger_than_tinygrads_and_here_smaller():
    _, theirs = schedule_of(dense())
    memoir.tinygrad.install()
    try:
        _, ours = schedule_of(dense())
    finally:
        memoir.tinygrad.uninstall()
    assert 0 < ours < theirs
    assert schedule_of(dense())[1] == theirs  # it is taken back


def test_buffers_of_two_kernels_that_live_together_do_not_overlap():
    """Each kernel's buffers, by their place in the arena: what a kernel writes is read whole before others write there."""
    import tinygrad.schedule as schedule

    kept = {}
    place = memoir.tinygrad.place

    def spy(lower, upper, sizes, alignment, deadline):
        placed = place(lower, upper, sizes, alignment, deadline)
        kept.update(lower=lower, upper=upper, sizes=sizes, offsets=placed.offsets, arena=placed.arena_size)
        return placed

    memoir.tinygrad.place = spy
    memoir.tinygrad.install()
    try:
        assert schedule.memory_plan_rewrite is not memoir.tinygrad._theirs
        dense().schedule_linear()
    finally:
        memoir.tinygrad.uninstall()
        memoir.tinygrad.place = place
    buffers = list(zip(kept["lower"], kept["upper"], kept["offsets"], kept["sizes"], strict=True))
    assert len(buffers) > 4 and all(
        at % 256 == 0 and at + size <= kept["arena"] for _, _, at, size in buffers
    )
    for index, (lower, upper, at, size) in enumerate(buffers):
        for other, till, below, height in buffers[:index]:
            assert upper <= other or till <= lower or at + size <= below or below + height <= at


@pytest.mark.full
@pytest.mark.skipif(shutil.which("clang") is None, reason="tinygrad's CPU device needs clang")
def test_outputs_are_equal(installed):
    tinygrad.Tensor.manual_seed(3)
    widths = [16, 40, 24, 56, 8, 48]
    weights = [tinygrad.Tensor.rand(a, b).realize() for a, b in zip(widths, widths[1:], strict=False)]
    x = tinygrad.Tensor.rand(12, 16).realize()

    def run():
        y = x
        for weight in weights:
            y = (y @ weight).softmax()
        return y.numpy()

    ours = run()
    memoir.tinygrad.uninstall()
    assert (ours == run()).all()


def test_where_memoir_fails_tinygrad_plans_and_one_warning_says_so(installed, monkeypatch):
    def fail(*_):
        raise memoir.Error("no luck")

    monkeypatch.setattr(memoir.tinygrad, "place", fail)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sizes = [schedule_of(dense())[1] for _ in range(2)]
    memoir.tinygrad.uninstall()
    assert sizes == [schedule_of(dense())[1]] * 2
    assert sum("tinygrad, so its own planner does it: Error: no luck" in str(w.message) for w in caught) == 1
