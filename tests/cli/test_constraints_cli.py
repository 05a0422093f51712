# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` of problems that say more: the examples of the docs as they stand, the options, bad input."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import memoir

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "constraints.md"
EXAMPLES = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def run(memoir):
    """The fixture of conftest.py; here `memoir` is the module."""
    return memoir


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.search(r"cat (\w+)", e)[1] for e in EXAMPLES])
def test_example_of_the_docs(example, run, tmp_path):
    made = set()
    for command, text in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", example, re.M):
        verb, *words = command.split()
        if verb == "memoir":
            assert run(*words)[0] == 0
            made |= {words[i + 1] for i, word in enumerate(words) if word == "-o"}
        elif words[0] in made:
            assert (tmp_path / words[0]).read_text() == text
        else:
            (tmp_path / words[0]).write_text(text)
    assert made


def test_examples_are_optimal_by_auto_and_exact(run, tmp_path):
    for example in EXAMPLES:
        for name, text in re.findall(r"^\$ cat (\S+)\n((?:(?!\$ ).*\n)*)", example, re.M):
            (tmp_path / name).write_text(text)
        words = re.search(r"^\$ memoir (.*) -o", example, re.M)[1].split()
        sizes = set()
        for planner in ("auto", "exact"):
            code, out, _ = run(*words, "--planner", planner, "--json")
            result = json.loads(out)
            assert code == 0 and result["optimal"]
            sizes.add((result["arena_size"], result["lower_bound"]))
        assert len(sizes) == 1


FILES = {
    "p.csv": "id,lower,upper,size\na,0,4,4\nb,0,4,6\n",
    "t.csv": "id,lower,upper,size,apart,arenas\na,0,4,4,b,sram\nb,0,4,6,,\n",
    "u.csv": "# arena sram\nid,lower,upper,size,apart,arenas\na,0,4,4,b,sram\nb,0,4,6,,\n",
    "two.csv": "# arena a\n# arena b\nid,lower,upper,size\na,0,4,4\n",
    "c.csv": "id,size,conflicts\na,4,a\n",
    "o.csv": "# arena a\n# arena b\nid,lower,upper,size,old_offset,old_arena\na,0,4,4,0,flash\n",
    "g.csv": "id,size\na,4\nb,6\n",
    "gaps.csv": "id,lower,upper,size,gaps\na,0,4,4,1-2\n",
    "fixed.csv": "id,lower,upper,size,fixed\na,0,4,4,0\nb,3,9,4,2\n",
}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("# forbid 4\n", "p.csv:1: '4' is not a range: give BEGIN:END or ARENA:BEGIN:END"),
        ("# forbid 4:2\n", "p.csv:1: the forbidden range '4:2' is empty or inverted"),
        ("# forbid sram:0:4\n", "a range is forbidden in 'sram', which is not an arena"),
        ("# forbid 0:4\n" * 4097, "p.csv:4097: there are more than 4096 forbidden ranges"),
        ("# forbid 0:1\n# arena a\n", "arenas must stand before what is forbidden in them"),
        ("# arena a=4\n# arena a\n", "p.csv:2: arena 'a' is named a second time"),
        ("# arena a\n# arena b\n# forbid 0:4\n", "say which of the several"),
        ("# arena a=4,price=4\n", "'price=4' is not a setting of an arena: there is cost=N"),
        ("# arena =4\n", "an arena needs a name"),
        ("# arena a=4GB\n", "an arena's limit is '4GB', not a whole number"),
        ("# arena a=2000000000GiB\n", "an arena's limit is 2^60 bytes or more"),
        ("".join(f"# arena a{i}\n" for i in range(65)), "p.csv:65: there are more than 64 arenas"),
        ("# banks 4\n", "give their number and their width"),
        ("# banks 1:64\n", "banks '1:64': there must be 2 or more"),
        ("# banks 2:8\n# banks 2:8\n", "p.csv:2: says banks a second time"),
        ("# moves 1\n", "p.csv: moves needs the column old_offset"),
        ("# locality 4\n", "locality takes no value, and has '4'"),
        ("# bandwidth 0\n", "bandwidth is 0"),
        (
            "# speed 4\n",
            "p.csv:1: unknown word 'speed' in a line that begins with #; there are arena, forbid",
        ),
        ("# \n", "unknown word ''"),
    ],
)
def test_a_line_that_says_nothing_that_can_be_is_one_error(lines, message, run, tmp_path):
    (tmp_path / "p.csv").write_text(lines + FILES["p.csv"])
    code, out, err = run("plan", "p.csv", "-o", "out.csv")
    assert (code, out) == (2, "") and message in err, err
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_what_is_said_is_planned_again_from_the_output(run, tmp_path):
    """The lines stay in what is written, and a row may begin with # where the columns are known."""
    text = "# arena sram=8,cost=1\n# arena dram,cost=9\n# moves 1\n" + (
        "id,lower,upper,size,old_offset,old_arena\n#a,0,4,4,0,sram\nb,0,4,6,0,dram\n"
    )
    (tmp_path / "p.csv").write_text(text)
    assert run("plan", "p.csv", "-o", "q.csv")[0] == 0
    assert run("plan", "q.csv", "-o", "r.csv")[0] == 0
    assert (tmp_path / "q.csv").read_text() == (tmp_path / "r.csv").read_text()
    assert (tmp_path / "q.csv").read_text().startswith(text.split("id,")[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two.csv", "--capacity", "4"], "a capacity is of the one arena"),
        (["t.csv"], "t.csv:2: arenas names 'sram', which is not an arena that was given"),
        (["u.csv"], "no banks are given"),
        (["c.csv"], "c.csv:2: conflicts with itself"),
        (["o.csv"], "o.csv:4: old_arena is 'flash', which is not an arena of the lines before"),
        (["g.csv"], "g.csv: has no columns lower and upper; without times, the column conflicts must say it"),
        (["fixed.csv"], "fixed.csv:2: and fixed.csv:3 are fixed where they cannot be together"),
        (["gaps.csv", "--planner", "gergov"], "gergov cannot plan with gaps; auto, exact, first_fit can"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_written(arguments, message, run, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    code, out, err = run("plan", *arguments, "-o", "out.csv")
    assert code == 2
    assert out == ""
    assert message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_a_plan_file_is_refused_where_it_could_not_hold_the_plan(run, tmp_path):
    (tmp_path / "gaps.csv").write_text(FILES["gaps.csv"])
    (tmp_path / "p.csv").write_text(FILES["p.csv"])
    assert "a .plan cannot hold a plan with gaps: write a .csv" in run("plan", "gaps.csv", "-o", "x.plan")[2]
    (tmp_path / "p.csv").write_text("# forbid 0:4\n" + FILES["p.csv"])
    assert run("plan", "p.csv", "-o", "x.plan")[0] == 0
    assert run("show", "x.plan")[0] == 0


def test_exit_codes(run, tmp_path):
    (tmp_path / "p.csv").write_text("id,lower,upper,size,hint\na,0,4,4,0\nb,0,4,6,0\n")
    code, _, err = run("plan", "p.csv", "--capacity", "9", "-o", "out.csv")
    assert code == 1 and "no plan keeps to the limits: the load at tick 0" in err
    assert not (tmp_path / "out.csv").exists()
    code, out, _ = run("plan", "p.csv", "--capacity", "10", "-o", "out.csv")
    assert code == 0 and "keeps to the limits" in out
    (tmp_path / "p.csv").write_text("# arena sram=6\n# arena dram=3\n" + FILES["p.csv"])
    code, _, err = run("plan", "p.csv")
    assert code == 1 and "no plan keeps to the limits" in err


def test_show_of_a_plan_with_gaps_and_of_several_arenas(run, tmp_path):
    (tmp_path / "g.csv").write_text("id,lower,upper,size,gaps\na,0,6,4,2-4@0:2\nb,2,4,2,\n")
    assert run("plan", "g.csv", "-o", "g.planned.csv")[0] == 0
    assert "4" in run("show", "g.planned.csv")[1]
    (tmp_path / "p.csv").write_text("# arena sram=6,cost=1\n# arena dram,cost=9\n" + FILES["p.csv"])
    assert run("plan", "p.csv", "-o", "s.csv")[0] == 0
    assert (tmp_path / "s.csv").read_text().splitlines()[4] == "b,0,4,6,0,sram"
    code, out, _ = run("show", "s.csv")
    assert code == 0 and "10" in out
    (tmp_path / "s.csv").write_text("id,lower,upper,size,gaps,offset\na,0,6,4,3-4@0:2,0\nb,2,4,2,,2\n")
    assert "the offsets are not a plan: a and b" in run("show", "s.csv")[2]


def test_a_trace_says_it_by_its_csv(run, tmp_path):
    data = Path(__file__).parents[1] / "data" / "resnet18.trace"
    (tmp_path / "x.trace").write_bytes(data.read_bytes())
    assert run("plan", "x.trace", "-o", "x.csv")[0] == 0
    (tmp_path / "y.csv").write_text("# forbid 0:64\n# locality\n" + (tmp_path / "x.csv").read_text())
    code, out, _ = run("plan", "y.csv", "-o", "z.csv")
    assert code == 0 and "it says: forbid, locality" in out
    offsets = [int(line.rsplit(",", 1)[1]) for line in (tmp_path / "z.csv").read_text().splitlines()[3:]]
    assert min(offsets) >= 64


def test_all_planners(run, tmp_path):
    (tmp_path / "gaps.csv").write_text(FILES["gaps.csv"])
    code, out, _ = run("plan", "gaps.csv", "--planner", "all", "--json")
    rows = {row["planner"]: row for row in json.loads(out)["planners"]}
    assert code == 0
    assert rows["exact"]["optimal"] and "cannot plan with gaps" in rows["best_fit"]["error"]


def test_only_who_lives_at_the_tick_lies_topmost_there(run, tmp_path):
    # At tick 0 two buffers of 20 bytes, in steps of 16: one takes 32, the other 20. That c has more padding does not count.
    rows = "a,0,4,20,16,\nb,0,4,20,16,2-3\nc,5,6,1,16,\n"
    (tmp_path / "p.csv").write_text("id,lower,upper,size,alignment,gaps\n" + rows)
    code, out, _ = run("plan", "p.csv", "--json")
    told = json.loads(out)
    assert code == 0 and (told["lower_bound"], told["arena_size"], told["optimal"]) == (52, 52, True)


class TestArrays:
    problem = {"lower": [0, 0, 2], "upper": [3, 3, 5], "size": [4, 6, 4]}

    def test_rows_and_per_buffer(self):
        result = memoir.plan({**self.problem, "in_place": [(2, 0)], "fixed": [-1, 4, -1]}, "exact")
        assert result.offsets.tolist() == [0, 4, 0] and result.optimal
        result = memoir.plan({**self.problem, "apart": [(0, 1)]}, "exact", banks=(2, 8))
        assert (result.offsets[0] // 8 + result.offsets[1] // 8) % 2 == 1

    def test_arenas(self):
        arenas = [memoir.Arena("sram", 4, 1), memoir.Arena("dram", cost=10)]
        allowed = np.array([[True, True], [True, True], [False, True]])
        result = memoir.plan({**self.problem, "arenas": allowed, "weight": [9, 1, 5]}, arenas=arenas)
        assert result.arenas.tolist() == [0, 1, 1]
        assert result.cost == 9 + 10 + 50 == result.lower_bound_cost
        assert result.arena_sizes == (4, 10)
        assert result.summary()["arenas"][0] == {"name": "sram", "size": 4, "buffers": 1}

    def test_replanning_moves_few(self):
        before = memoir.plan(self.problem, "exact")
        grown = {**self.problem, "size": [4, 6, 6]}
        after = memoir.plan(grown, "exact", replan=before)
        assert after.moves <= 1 and after.optimal
        assert memoir.plan(grown, "exact", replan=before, moves=3).arena_size <= after.arena_size

    def test_size_intervals_by_every_planner(self):
        for planner in ("auto", "greedy_by_size", "best_fit", "first_fit"):
            result = memoir.plan({**self.problem, "size_low": [1, 2, 3]}, planner)
            assert (result.load, result.load_low) == (14, 6)

    @pytest.mark.parametrize(
        ("more", "options", "message"),
        [
            ({"gaps": [(0, 1)]}, {}, "gaps must be rows of 3 or 5 integers"),
            ({"gaps": [(7, 1, 2)]}, {}, "gap 0 is of a buffer that is not there"),
            ({"gaps": [(0, 1, 9)]}, {}, r"buffer 0 has the gap \[1, 9\), which leaves its lifetime"),
            ({"fixed": [0, 1]}, {}, "fixed has 2 elements for 3 buffers"),
            ({"weight": [0, -1, 0]}, {}, "buffer 1 has the weight -1: it must not be negative"),
            ({"alias": [-1, 0, -1]}, {}, "buffer 1 is an alias of another size"),
            ({"in_place": [(0, 9)]}, {}, "names a buffer that is not there"),
            ({"arenas": [[True]] * 3}, {}, r"arenas must be booleans of the shape \(3, 0\)"),
            ({"size_low": [5, 1, 1]}, {}, "buffer 0 has a smallest size of 5"),
            ({}, {"replan": [0, 1]}, "the earlier plan has 2 offsets for 3 buffers"),
            ({}, {"moves": -1}, "moves must be 0 or more"),
            ({}, {"forbid": [(4, 4)]}, "the forbidden range 4:4 is empty"),
            ({}, {"arenas": [memoir.Arena("a", -1)]}, "the arena a has the capacity -1"),
            ({"colour": [1, 2, 3]}, {}, r"unknown \['colour'\]"),
        ],
    )
    def test_bad_arrays(self, more, options, message):
        with pytest.raises(memoir.Error, match=message):
            memoir.plan({**self.problem, **more}, **options)

    def test_without_times_conflicts_are_needed(self):
        with pytest.raises(memoir.Error, match="without lower and upper, say which buffers conflict"):
            memoir.plan({"size": [1, 2]})
        assert memoir.plan({"size": [1, 2]}, conflicts=np.zeros((0, 2), int)).arena_size == 2

    def test_an_empty_problem(self):
        nothing = {"lower": [], "upper": [], "size": [], "gaps": []}
        result = memoir.plan(nothing, forbid=[(0, 4)])
        assert (result.arena_size, result.optimal, len(result.offsets)) == (0, True, 0)
