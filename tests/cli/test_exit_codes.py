# SPDX-License-Identifier: Apache-2.0
"""docs/reference/exit-codes.md: 1 is an answer, never an error; what nobody foresaw has a code of its own."""

import json
import subprocess
import sys

import pytest
from memoir.cli.parts import plan_one

from memoir import _core

TIGHT = "id,lower,upper,size\na,0,9,4\nb,3,7,3\nc,4,6,2\n"


def test_an_unforeseen_error_is_70_and_told(memoir, tmp_path, monkeypatch):
    (tmp_path / "p.csv").write_text(TIGHT)

    def broken(*arguments):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(plan_one, "_plan", broken)
    code, out, err = memoir("plan", "p.csv")
    assert code == 70 and out == ""
    assert "Traceback" in err and "memoir: an error of memoir's own: ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "x.plan"), 70, "memoir: x.plan: No space left on device"),
        (KeyboardInterrupt(), 130, "memoir: interrupted"),
        (_core.Error("told"), 2, "memoir: told"),
    ],
)
def test_other_ends(memoir, tmp_path, monkeypatch, error, code, message):
    (tmp_path / "p.csv").write_text(TIGHT)

    def broken(*arguments):
        raise error

    monkeypatch.setattr(plan_one, "_plan", broken)
    ended, _, err = memoir("plan", "p.csv")
    assert (ended, err.strip()) == (code, message)


def test_nobody_reads_the_output(tmp_path):
    (tmp_path / "p.csv").write_text(TIGHT)
    command = f"{sys.executable} -m memoir plan p.csv --planner all --deadline 0; echo $? >code"
    subprocess.run(f"({command}) | true", shell=True, cwd=tmp_path, timeout=120, capture_output=True)
    assert (tmp_path / "code").read_text() in ("141\n", "0\n")  # 0: it had written all before its reader went


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"id,lower,upper,size\n\xff\xfe,0,x\xff\x00y,2\n",
        b"id,lower,upper,size\n\xc3\x28,0,4,4\n\xc3\x28,0,4,4\n",
        b"id,lower,upper,size,alias\na,0,4,4,\xf0\x28\n",
        b"id,l\xffwer,upper,size\n",
        b"\x80",
    ],
)
def test_bytes_that_are_no_text_are_bad_input(memoir, tmp_path, content):
    (tmp_path / "p.csv").write_bytes(content)
    for arguments in (["plan", "p.csv"], ["show", "p.csv"]):
        code, _, err = memoir(*arguments)
        assert code == 2, err
        assert "\0" not in err and err.count("\n") == 1
        assert "Traceback" not in err


def test_ids_that_are_no_text_are_written_as_they_were(memoir, tmp_path):
    (tmp_path / "p.csv").write_bytes(b"id,lower,upper,size\n\xff\xfe,0,4,4\nb,0,4,4\n")
    assert memoir("plan", "p.csv", "-o", "o.csv")[0] == 0
    assert (tmp_path / "o.csv").read_bytes() == b"id,lower,upper,size,offset\n\xff\xfe,0,4,4,0\nb,0,4,4,4\n"
    code, out, err = memoir("plan", "p.csv", "--capacity", "7")
    assert code == 1 and "4 bytes in [0, 4)" in out
    assert memoir("plan", "p.csv", "--capacity", "7", "--json")[0] == 1


def test_nul_does_not_cut_a_message(memoir, tmp_path):
    (tmp_path / "p.csv").write_bytes(b"id,lower,upper,size\na,0,4,1\0more\n")
    assert memoir("plan", "p.csv")[2] == "memoir: p.csv:2: size is '1\\x00more', not a whole number\n"


def test_a_name_that_is_no_text(memoir, tmp_path):
    assert memoir("plan", "\udcff.csv")[::2] == (
        2,
        "memoir: '\\udcff.csv': the name of this file is not UTF-8; rename it\n",
    )


def test_why_nothing_fits(memoir, tmp_path):
    (tmp_path / "p.csv").write_text(TIGHT)
    code, out, err = memoir("plan", "p.csv", "--capacity", "8")
    assert code == 1
    assert "why: 3 buffers live together at tick 4 and need 9 bytes, 1 too many; no smaller set does" in out
    assert "  shrink a by 1 of its 4 bytes\n" in out
    assert "  recompute or offload b (3 bytes) from tick 4 to 6\n" in out
    code, out, _ = memoir("plan", "p.csv", "--capacity", "8", "--json")
    why = json.loads(out)["why"]
    assert code == 1 and why["buffers"] == ["a", "b", "c"] and why["smallest"]
    shrink = {"kind": "shrink", "buffer": "a", "bytes": 1, "ticks": 0, "lower": 0, "upper": 9}
    assert shrink in why["changes"]


def test_zero_bytes(memoir, tmp_path):
    (tmp_path / "p.csv").write_text("id,lower,upper,size\nz,0,1,0\na,0,4,4\ny,1,2,0\nb,2,9,4\n")
    wanted = "id,lower,upper,size,offset\nz,0,1,0,0\na,0,4,4,{}\ny,1,2,0,0\nb,2,9,4,{}\n"
    for planner in ("auto", "best_fit", "first_fit", "exact"):
        code, _, err = memoir("plan", "p.csv", "--planner", planner, "-o", "o.csv", "-f")
        assert code == 0, err
        assert (tmp_path / "o.csv").read_text() in (wanted.format(0, 4), wanted.format(4, 0))
    code, out, err = memoir("plan", "p.csv", "--planner", "stream", "-o", "o.csv", "-f", "--json")
    assert code == 0 and json.loads(out)["buffers"] == 4
    assert (tmp_path / "o.csv").read_text() == wanted.format(4, 0)
    assert memoir("plan", "p.csv", "-o", "o.plan")[0] == 0
    assert memoir("show", "o.plan")[0] == 0
    assert memoir("show", "o.csv")[0] == 0


BUDGET = "id,lower,upper,size,idle,recompute\nact1,0,10,4,2-8,9\nact2,1,9,4,3-7,5\nact3,2,8,4,4-6,1\nloss,4,6,4,,\n"


def test_a_budget(memoir, tmp_path):
    (tmp_path / "p.csv").write_text(BUDGET)
    code, out, _ = memoir("plan", "p.csv", "--capacity", "12", "-o", "o.csv")
    assert code == 0
    assert "recompute act3 in [4, 6), cost 1" in out and "cost 1, the smallest possible" in out
    rows = [line.split(",") for line in (tmp_path / "o.csv").read_text().splitlines()]
    assert rows[0][-2:] == ["offset", "gaps"] and [row[-1] for row in rows[1:]] == ["", "", "4-6", ""]
    assert memoir("plan", "o.csv", "--capacity", "12")[0] == 0
    code, out, _ = memoir("plan", "p.csv", "--capacity", "3", "--json")
    assert code == 1 and json.loads(out)["proven_infeasible"]
    (tmp_path / "p.csv").write_text("# bandwidth 4\n" + BUDGET)
    code, out, _ = memoir("plan", "p.csv", "--capacity", "12", "--json")
    (chosen,) = json.loads(out)["recomputed_or_offloaded"]
    assert chosen == {"buffer": "act3", "how": "recompute", "lower": 4, "upper": 6, "cost": 1.0}


def test_a_budget_of_inclusive_ends(memoir, tmp_path):
    (tmp_path / "p.csv").write_text("id,start,end,size,idle,recompute\na,0,9,4,2-7,1\nb,3,5,4,,\n")
    assert memoir("plan", "p.csv", "--capacity", "4", "-o", "o.csv")[0] == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[1].endswith(",2-7")
    assert memoir("plan", "o.csv", "--capacity", "4")[0] == 0


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (BUDGET.replace("2-8", "2-80"), ["--capacity", "8"], "p.csv:2: gap '2-80' leaves the lifetime"),
        (BUDGET.replace("2-8", "2-8@0:2"), ["--capacity", "8"], "p.csv:2: idle has a window"),
    ],
)
def test_bad_budgets(memoir, tmp_path, text, arguments, message):
    (tmp_path / "p.csv").write_text(text)
    code, _, err = memoir("plan", "p.csv", *arguments)
    assert code == 2 and message in err


def test_all_planners_are_all(memoir, tmp_path):
    (tmp_path / "p.csv").write_text(TIGHT)
    _, out, _ = memoir("plan", "p.csv", "--planner", "all", "--deadline", "0", "--json")
    assert "auto" in [row["planner"] for row in json.loads(out)["planners"]]


@pytest.mark.parametrize("planner", ["mip", "hill_climb"])
def test_a_deadline_of_0_is_one(planner):
    import memoir

    if planner == "mip":
        pytest.importorskip("highspy")
    import numpy as np

    random = np.random.default_rng(1)
    lower = random.integers(0, 1000, 300)
    problem = (lower, lower + random.integers(1, 60, 300), random.integers(1, 500, 300))
    cheap = memoir.plan(problem, "greedy_by_size").arena_size
    at_once = memoir.plan(problem, planner, deadline=0)
    assert at_once.arena_size <= cheap
    if planner == "hill_climb":  # it begins with one first fit, and improves that for as long as it may
        assert memoir.plan(problem, planner).arena_size < at_once.arena_size
