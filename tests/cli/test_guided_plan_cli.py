# SPDX-License-Identifier: Apache-2.0
"""`memoir plan --planner guided`: the plan of a whole run on a device."""

import json
from pathlib import Path

import pytest

from memoir import _core

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def folder(tmp_path):
    """two.trace: a run on the devices 0 and 3; on device 3 one buffer outlives it, on another stream."""
    with _core.TraceWriter(str(tmp_path / "two.trace")) as writer:
        writer.meta("model", "tiny")
        for number, device, stream in ((1, 0, 0), (2, 3, 0), (3, 3, 1), (4, 3, 0)):
            writer.allocate(number, 5, 1000 * number, device=device, stream=stream)
        for number, device in ((1, 0), (2, 3), (4, 3)):
            writer.free(number, device=device)
    return tmp_path


def test_a_run_of_one_device(memoir, folder):
    code, out, err = memoir("plan", "--planner", "guided", "two.trace", "--device", "3", "-o", "x.plan")
    assert (code, err) == (0, "wrote x.plan\n")
    assert out == (
        "two.trace: 3 buffers of the whole run on device 3 on 2 streams\n"
        "device 3: 9,216 bytes for 3 buffers, 2.40 % above the load of 9,000\n"
        "\nnext: memoir show x.plan -o x.html\n"
    )
    plan = _core.open_plan(str(folder / "x.plan"))
    assert plan.sizes.tolist() == [2000, 3000, 4000]
    assert (plan.offsets % 512 == 0).all() and plan.streams.tolist() == [0, 1, 0]
    assert plan.devices.tolist() == [3, 3, 3] and plan.upper.tolist()[1] == 5
    assert plan.heaps == [(3, 0)] and plan.meta == [("model", "tiny")]
    own = plan.recorded_for(3)
    assert (len(own), own.arena_size, own.load) == (3, 9216, 9000)
    shown = json.loads(memoir("show", "x.plan", "--json")[1])
    assert (shown["load"], shown["arena_size"], shown["unplanned"]["count"]) == (9000, 9216, 0)
    assert [memory["name"] for memory in shown["memories"]] == ["device 3"]


def test_private_pools_have_memories_of_their_own(memoir, folder):
    arguments = ("plan", "--planner", "guided", DATA / "pools.trace", "--device", "0")
    code, out, _ = memoir(*arguments, "-o", "x.plan", "--json")
    assert code == 0
    told = json.loads(out)["memories"]
    assert [memory["name"] for memory in told] == ["device 0"] + [
        f"device 0, pool {number}" for number in range(1, len(told))
    ]
    assert len(told) > 1
    plan = _core.open_plan(str(folder / "x.plan"))
    assert [memory.size for memory in plan.memories] == [memory["arena_size"] for memory in told]
    for device, pool in plan.heaps:
        assert plan.recorded_for(device, pool).arena_size == plan.memories[pool].size
    shown = json.loads(memoir("show", "x.plan", "--json")[1])
    assert shown["arena_size"] == sum(memory["arena_size"] for memory in told)
    code, out, _ = memoir("show", "x.plan", "-o", "x.png")
    assert code == 0 and "device 0, pool 1" in out and (folder / "x.png").stat().st_size > 0
    code, _, err = memoir("show", "x.plan", "--planner", "all")
    assert code == 2 and f"has {len(told)} memories, and a planner fills one" in err


def test_a_skeleton_is_kept(memoir, folder):
    memoir("plan", "--planner", "guided", "two.trace", "--device", "3", "-o", "x.plan")
    plan = _core.open_plan(str(folder / "x.plan"))
    assert plan.skeleton_pairs is None
    again = _core.read_plan(plan.with_skeleton().to_bytes())
    assert again.skeleton_pairs == 3  # one on the other, and the outer two once the middle one is freed
    assert again.offsets.tolist() == plan.offsets.tolist()


def test_alignment(memoir, folder):
    memoir("plan", "--planner", "guided", "two.trace", "--device", "3", "--alignment", "4KiB", "-o", "x.plan")
    plan = _core.open_plan(str(folder / "x.plan"))
    assert (plan.offsets % 4096 == 0).all() and plan.memories[0].alignment == 4096


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two.trace",), "of the devices 0, 3: choose one with --device"),
        (("two.trace", "two.trace", "--device", "3"), "the planner guided takes one trace"),
        (("two.trace", "--device", "3", "--capacity", "1MiB"), "the planner guided takes one trace"),
        (
            ("two.trace", "--device", "3", "--alignment", "96"),
            "two.trace: the alignment of 96 bytes is not a power",
        ),
        (("two.trace", "--device", "3", "-o", "x.csv"), ".plan"),
    ],
)
def test_bad_input(memoir, folder, arguments, message):
    code, _, err = memoir("plan", "--planner", "guided", *arguments)
    assert code == 2 and message in err
