# SPDX-License-Identifier: Apache-2.0
"""A run that follows the plan of an earlier one, on the fake device: what it holds is what the simulation says, and a run
that differs is served all the same."""

import json
import subprocess
import sys

import build_fake_cuda
import memoir.torch
import pytest
from memoir.traces.files import open_trace

import memoir
from memoir import _core

PROGRAM = """
def program(seed, steps, departs=False):
    import random
    order, live = random.Random(seed), []
    other = random.Random(99)
    for step in range(steps):
        if not live or order.random() < (0.7 if step // 60 % 2 == 0 else 0.3):
            size = order.choice((20_000, 700_000, 3 << 20)) + 512 * order.randrange(50)
            if departs:
                size = 1000 + 4096 * other.randrange(300)
            live.append((allocate(size), size))
            ctypes.memset(live[-1][0], len(live) % 256, size)
        else:
            free(*live.pop(order.randrange(len(live))))
    for one in live:
        free(*one)
fake.fake_reset(1, 1 << 30, 2 << 20)
"""


def test_the_second_run_holds_what_the_simulation_says(run, tmp_path):
    snapshot, plan = tmp_path / "run.pickle", tmp_path / "run.plan"
    run(
        PROGRAM
        + f"""
memoir.torch.use_pool("memoir", history=100_000)
program(1, 700)
memoir.torch.snapshot({str(snapshot)!r})
"""
    )
    trace = open_trace(str(snapshot))
    simulated = memoir.simulate(str(snapshot), "guided")
    assert simulated.completed
    plan.write_bytes(_core.plan_run(trace, 0).to_bytes())
    assert memoir.simulate(str(snapshot), f"guided,plan=[{plan}]").peak_reserved == simulated.peak_reserved
    for source in (snapshot, plan):
        out = run(
            PROGRAM
            + f"""
memoir.torch.use_pool("guided", plan={str(source)!r})
program(1, 700)
print(json.dumps(memoir.torch.stats()))
assert fake.fake_misuse_count() == 0, fake.fake_misuse(0)
"""
        )
        stats = json.loads(out)
        assert stats["reserved_bytes.all.peak"] == simulated.peak_reserved
        assert stats["num_planned_allocs"] == stats["allocation.all.allocated"] > 300
        assert stats["num_departed_allocs"] == stats["num_loop_plans_dropped"] == 0


def test_a_run_that_differs_goes_on_without_the_plan(run, tmp_path):
    snapshot = tmp_path / "run.pickle"
    run(
        PROGRAM
        + f"""
memoir.torch.use_pool("memoir", history=100_000)
program(1, 400)
memoir.torch.snapshot({str(snapshot)!r})
"""
    )
    out = run(
        PROGRAM
        + f"""
memoir.torch.use_pool("guided", plan={str(snapshot)!r})
for _ in range(6):
    program(2, 400, departs=True)
print(json.dumps(memoir.torch.stats()))
assert fake.fake_misuse_count() == 0, fake.fake_misuse(0)
"""
    )
    stats = json.loads(out)
    assert stats["num_loop_plans_dropped"] >= 1 and stats["num_departed_allocs"] > 32
    assert stats["num_ooms"] == 0 and stats["allocated_bytes.all.current"] == 0


def test_what_cannot_be_followed_is_said(run, tmp_path):
    out = run(
        f"""
print(error(lambda: memoir.torch.use_pool("guided", plan={str(tmp_path / "none")!r})))
print(error(lambda: memoir.torch.use_pool("planned")))
"""
    )
    lines = out.splitlines()
    assert "none: cannot be read" in lines[0]
    assert lines[1].startswith(
        "policy 'planned' is one of a simulation, not of a device (policies there: memoir,"
    )


TRAINING = """
import sys, json
sys.path.insert(0, {folder!r})
import torch, memoir.torch, scenarios
policy, source, snapshot = sys.argv[1:]
memoir.torch.use_pool(policy, **({{"plan": source}} if source else {{}}), history=1_000_000)
model = scenarios.small_transformer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(1)
for _ in range(6):
    length = int(torch.randint(16, 400, (1,), generator=generator))
    x = torch.randn(4, length, 256, generator=generator).cuda()
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
if snapshot:
    memoir.torch.snapshot(snapshot)
print(json.dumps(memoir.torch.stats()))
"""


@pytest.mark.full
def test_all_of_pytorch_follows_its_own_earlier_run(tmp_path):
    try:
        library = build_fake_cuda.build_runtime(tmp_path)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    import scenarios

    folder = scenarios.__file__.rpartition("/")[0]
    snapshot = str(tmp_path / "run.pickle")

    def train(*arguments: str) -> dict:
        done = subprocess.run(
            [sys.executable, "-c", TRAINING.format(folder=folder), *arguments],
            capture_output=True,
            text=True,
            env=build_fake_cuda.with_fake_gpu(library),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first = train("memoir", "", snapshot)
    second = train("guided", snapshot, "")
    assert second["num_planned_allocs"] > 0.95 * second["allocation.all.allocated"]
    simulated = memoir.simulate(snapshot, "guided")
    assert second["reserved_bytes.all.peak"] == simulated.peak_reserved
    assert second["reserved_bytes.all.peak"] <= first["reserved_bytes.all.peak"]
