# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import time
from pathlib import Path

import pytest
from memoir.cli import main
from memoir.sweep import sweep

from memoir import Error

sys.path.insert(0, str(Path(__file__).parent))  # where the processes of a sweep find the tasks as well
import sweep_tasks  # noqa: E402


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_come_in_the_order_of_the_tasks(workers):
    swept = sweep(sweep_tasks.square, [(i,) for i in range(20)], workers=workers)
    assert swept.values == [i * i for i in range(20)]
    assert [outcome.arguments for outcome in swept.outcomes] == [(i,) for i in range(20)]
    assert not swept.interrupted and not swept.failed


def test_all_workers_work_and_none_is_this_process():
    swept = sweep(sweep_tasks.process_id, [(i,) for i in range(8)], workers=2)
    assert len(set(swept.values)) == 2
    assert os.getpid() not in swept.values
    assert set(sweep(sweep_tasks.process_id, [(0,)]).values) == {os.getpid()}  # one task needs no process


def test_a_task_that_fails_or_dies_is_reported_and_the_rest_goes_on():
    swept = sweep(sweep_tasks.awkward, [(i,) for i in range(9)], workers=2)
    assert swept.values == [0, 1, 7, 8]
    errors = {outcome.arguments[0]: outcome.error for outcome in swept.failed}
    assert errors[2] == "row 2 is bad"
    assert errors[3] == "KeyError: 'three'"
    assert errors[4] == "its process died (signal SIGKILL)"
    assert errors[5] == "its process died (exit code 7)"
    assert "pickle" in errors[6].lower()


def test_an_interrupt_keeps_what_is_done(tmp_path):
    sweep_tasks.interrupt_soon(tmp_path)
    began = time.perf_counter()
    swept = sweep(sweep_tasks.note, [(str(tmp_path), i) for i in range(6)], workers=3)
    assert time.perf_counter() - began < 300  # of the 600 s that a task takes
    assert swept.interrupted
    assert swept.values == [0, 1, 2]
    assert [outcome.error for outcome in swept.failed] == ["not run: the sweep was interrupted"] * 3


def test_no_tasks_and_bad_arguments():
    assert sweep(sweep_tasks.square, []).outcomes == []
    with pytest.raises(Error, match="no engine 'cloud'"):
        sweep(sweep_tasks.square, [(1,)], engine="cloud")
    with pytest.raises(Error, match="give at least 1"):
        sweep(sweep_tasks.square, [(1,)], workers=0)
    with pytest.raises(Error, match="an address is one of Ray"):
        sweep(sweep_tasks.square, [(1,)], address="auto")


def test_without_ray_one_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Error, match=r"pip install 'memoir-alloc\[ray\]'"):
        sweep(sweep_tasks.square, [(1,)], engine="ray")


@pytest.mark.full
def test_a_local_ray_runs_the_same_tasks():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'memoir-alloc[ray]'")
    tasks = [(i,) for i in (0, 1, 2, 4, 7)]
    try:
        swept = sweep(sweep_tasks.awkward, tasks, engine="ray", workers=2)
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        pytest.skip("Ray did not start within its 30 s: the machine is busy")
    assert swept.values == [0, 1, 7]
    errors = [outcome.error for outcome in swept.failed]
    assert errors[0] == "row 2 is bad"
    assert "died" in errors[1]


# --- memoir plan as a sweep ---

INSTANCES = Path(__file__).parents[1] / "data" / "planning" / "minimalloc"


def plan(capsys, *arguments):
    with pytest.raises(SystemExit) as exit:
        main(["plan", *map(str, arguments)])
    out, err = capsys.readouterr()
    return exit.value.code or 0, out, err


def test_planners_and_seeds_over_problems(capsys):
    paths = [INSTANCES / name for name in ("C.1048576.csv", "input.12.csv")]
    code, out, _ = plan(
        capsys, *paths, "--planner", "auto", "--seed", "1-2,5", "--work-limit", 2000, "--json"
    )
    rows = json.loads(out)["results"]
    assert code == 0
    assert [(Path(row["input"]).name, row["seed"]) for row in rows] == [
        (path.name, seed) for path in paths for seed in (1, 2, 5)
    ]
    assert all(row["arena_size"] >= row["lower_bound"] for row in rows)
    assert rows[-1]["arena_size"] == 12
    code, out, _ = plan(capsys, *paths, "--planner", "all", "--deadline", 0.05)
    assert code == 0 and out.count("greedy_by_size") == 2 and "optimal" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.csv", "b.csv"], "a.csv"),
        (["a.csv", "b.csv", "-o", "x.plan"], "writes no plan"),
        (["a.csv", "--seed", "8-1"], "such as 1-8"),
    ],
)
def test_a_sweep_of_plans_that_cannot_be(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = plan(capsys, *arguments)
    assert code == 2 and out == "" and message in err


def test_a_sweep_of_plans_minds_what_a_problem_says_beside_sizes(capsys, tmp_path):
    (tmp_path / "free.csv").write_text("id,lower,upper,size\na,0,9,4\nb,0,9,4\n")
    (tmp_path / "fixed.csv").write_text("id,lower,upper,size,fixed\na,0,9,4,12\nb,0,9,4,\n")
    code, out, err = plan(capsys, tmp_path / "free.csv", tmp_path / "fixed.csv", "--json")
    assert code == 0, err
    assert [row["arena_size"] for row in json.loads(out)["results"]] == [8, 16]
