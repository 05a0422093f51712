# SPDX-License-Identifier: Apache-2.0
"""memoir.plan(..., sizes=...): one plan for every size."""

import numpy as np
import pytest

import memoir
from memoir import _core


def random_problem(seed, buffers=60):
    random = np.random.default_rng(seed)
    lower = np.sort(random.integers(0, 100, buffers)).astype(np.uint64)
    upper = lower + random.integers(1, 30, buffers).astype(np.uint64)
    size = random.integers(1, 1000, buffers).astype(np.uint64)
    return {"lower": lower, "upper": upper, "size": size, "alignment": np.full(buffers, 8, np.uint64)}


def problem_at(arrays, sizes):
    return memoir.Problem(arrays["lower"], arrays["upper"], sizes, arrays["alignment"])


@pytest.mark.parametrize("seed", range(8))
def test_a_skeleton_gives_valid_plans_at_any_sizes(seed):
    arrays = random_problem(seed)
    random = np.random.default_rng(seed + 100)
    far = arrays["size"] * random.integers(1, 50, 60).astype(np.uint64)
    one = memoir.plan(arrays, "greedy_by_size", sizes=())
    several = memoir.plan(arrays, "greedy_by_size", sizes=[far, far[::-1].copy()])
    assert (len(one), one.plans, several.plans) == (60, 1, 3)
    own = memoir.plan(arrays, "greedy_by_size")
    assert one.at(arrays["size"]).arena_size <= own.arena_size
    for _ in range(5):
        sizes = random.integers(1, 10**6, 60).astype(np.uint64)
        plan = several.at(sizes)
        assert _core.check(problem_at(arrays, sizes), plan) is None
        assert plan.arena_size <= one.at(sizes).arena_size
        assert plan.arena_size >= _core.load(problem_at(arrays, sizes))
    assert several.at(far).arena_size <= one.at(far).arena_size
    assert one.at(np.zeros(60, np.uint64)).arena_size == 0
    doubled = one.at(arrays["size"] * np.uint64(8))
    assert doubled.arena_size <= 8 * own.arena_size


def test_a_plan_file_holds_one(tmp_path):
    arrays = random_problem(3)
    plain = problem_at(arrays, arrays["size"])
    result = memoir.plan(plain, "greedy_by_size")
    program = _core.record_problem(plain, result.plan, "greedy_by_size").with_skeleton()
    (tmp_path / "x.plan").write_bytes(program.to_bytes())
    again = memoir.Skeleton.of(_core.open_plan(str(tmp_path / "x.plan")))
    sizes = arrays["size"] * np.uint64(3)
    assert _core.check(problem_at(arrays, sizes), again.at(sizes)) is None


def test_what_is_no_skeleton_is_said():
    arrays = random_problem(1)
    skeleton = memoir.plan(arrays, "greedy_by_size", sizes=())
    with pytest.raises(memoir.Error, match="one of each per buffer"):
        skeleton.at(np.ones(3, np.uint64))
    with pytest.raises(memoir.Error, match="plain problems"):
        memoir.plan(arrays | {"fixed": np.zeros(60, np.int64)}, sizes=())
