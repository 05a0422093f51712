# SPDX-License-Identifier: Apache-2.0
"""remember(plan=...): from a trace file to a plan file to a model that never records."""

import memoir.torch
import pytest
import torch
from memoir.cli import main


def plan_file(net, x, folder):
    with torch.inference_mode():
        memoir.torch.record(net, x, path=folder / "x.trace", passes=2)
    with pytest.raises(SystemExit) as done:
        main(["plan", str(folder / "x.trace"), "-o", str(folder / "y.plan")])
    assert done.value.code == 0
    return folder / "y.plan"


def test_a_plan_file_is_followed_from_the_first_call(small_net, tmp_path):
    net = small_net.eval()
    x = torch.randn(2, 3, 32, 32)
    model = memoir.torch.remember(net, plan=plan_file(net, x, tmp_path))
    with torch.inference_mode():
        for _ in range(3):
            assert torch.equal(model(x), net(x))
        stats = memoir.torch.stats(model)
        assert (stats.recorded_passes, stats.plan_hits, stats.in_step_passes, stats.fallen_back) == (
            0,
            3,
            3,
            0,
        )
        model(torch.randn(4, 3, 32, 32))  # another signature is recorded as ever
        assert memoir.torch.stats(model).recorded_passes == 1


def test_two_plan_files_are_enough_for_every_shape(small_net, tmp_path):
    net = small_net.eval()
    plans = []
    for batch in (2, 3):
        folder = tmp_path / str(batch)
        folder.mkdir()
        plans.append(plan_file(net, torch.randn(batch, 3, 32, 32), folder))
    model = memoir.torch.remember(net, plan=plans)
    with torch.inference_mode():
        for batch in (5, 2, 3, 7, 1, 8):
            x = torch.randn(batch, 3, 32, 32)
            assert torch.equal(model(x), net(x))
    stats = memoir.torch.stats(model)
    assert (stats.recorded_passes, stats.plan_hits, stats.derived_passes) == (0, 6, 6)
    assert stats.planned > 10 * stats.fallen_back


def test_a_plan_for_another_model_is_refused(small_net, tmp_path):
    path = plan_file(small_net.eval(), torch.randn(2, 3, 32, 32), tmp_path)
    with pytest.raises(memoir.Error, match="y.plan: a plan for Sequential, and this is Linear"):
        memoir.torch.remember(torch.nn.Linear(2, 2), plan=path)


def test_a_plan_of_the_wrong_sequence_costs_tightness_only(tmp_path):
    """Another network of the same class and signature: nothing fits, and nothing is wrong."""
    x = torch.randn(2, 3, 32, 32)
    planned = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 5)).eval()
    path = plan_file(planned, x, tmp_path)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 7, 3), torch.nn.Tanh(), torch.nn.Conv2d(7, 4, 5)).eval()
    model = memoir.torch.remember(net, plan=path)
    with torch.inference_mode():
        for _ in range(5):
            assert torch.equal(model(x), net(x))
    assert memoir.torch.stats(model).in_step_passes >= 2  # recorded again


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "csv plan"])
def test_a_file_that_is_no_plan_of_a_model_is_named(small_net, tmp_path, damage):
    path = tmp_path / "y.plan"
    if damage == "cut":
        path = plan_file(small_net.eval(), torch.randn(2, 3, 32, 32), tmp_path)
        path.write_bytes(path.read_bytes()[:-70])
    elif damage == "csv plan":
        (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,3,4\n")
        with pytest.raises(SystemExit):
            main(["plan", str(tmp_path / "p.csv"), "-o", str(path)])
    elif damage != "missing":
        path.write_text("" if damage == "empty" else "not a plan\n")
    with pytest.raises(memoir.Error, match="y.plan"):
        memoir.torch.remember(small_net, plan=path)


def test_record_refuses_to_overwrite_and_leaves_nothing_half_written(small_net, tmp_path):
    path = tmp_path / "x.trace"
    path.write_text("precious")
    with pytest.raises(memoir.Error, match="exists already"):
        memoir.torch.record(small_net, torch.randn(1, 3, 32, 32), path=path)
    assert path.read_text() == "precious"
    with pytest.raises(RuntimeError):
        memoir.torch.record(small_net, torch.randn(1, 5, 32, 32), path=path, force=True, warm_up=0)
    assert path.read_text() == "precious" and list(tmp_path.iterdir()) == [path]
