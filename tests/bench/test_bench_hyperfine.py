# SPDX-License-Identifier: Apache-2.0
"""hyperfine's own export: a real file of it, and what a stranger may put in its place."""

import json
from pathlib import Path

import pytest
from memoir.bench import analysis, reading
from memoir.bench.hyperfine import template

import memoir

REAL = Path(__file__).parents[1] / "data" / "hyperfine-1.15.json"
SLEEP, LUA = "sleep 0.0{n}", 'lua -e "for i = 1, {n}00000 do local t = {} end"'


def test_a_real_export():
    result = reading.read([REAL])
    assert not result.interleaved
    assert result.allocators == [SLEEP, LUA, 'sh -c "exit {n}"', "true", "true (2)"]
    assert {row["parameters"]["n"] for row in result.rows} == {"1", "2"} and len(result.rows) == 2 * 5 * 6
    # what ended with a code, and what took no time as hyperfine has it, does not count
    ways = {(row["allocator"], row["status"]) for row in result.failures}
    assert ways >= {
        ('sh -c "exit {n}"', "exit code 1"),
        ('sh -c "exit {n}"', "exit code 2"),
        ("true", "no time"),
    }
    assert any("hyperfine -N" in note for note in result.notes)
    times = {cell: [row["wall"] for row in rows] for cell, rows in result.cells().items()}
    entry = json.loads(REAL.read_text())["results"][0]
    (first,) = [
        found for cell, found in times.items() if cell.allocator == SLEEP and cell.parameters == (("n", "1"),)
    ]
    assert first == entry["times"]
    a = analysis.analyse(result)
    assert a.method == "welch_t" and a.baseline == SLEEP and set(a.overall) == {LUA, "true", "true (2)"}
    assert a.overall[LUA].groups == 2


@pytest.mark.parametrize(
    "commands, parameters, expected",
    [
        (["x 1", "x 2"], [{"n": "1"}, {"n": "2"}], "x {n}"),
        (["x -k2 -n2", "x -k2 -n3"], [{"n": "2"}, {"n": "3"}], "x -k2 -n{n}"),  # one 2 is no value
        (
            ["x 1 1", "x 1 5", "x 4 1"],
            [{"a": "1", "b": "1"}, {"a": "1", "b": "5"}, {"a": "4", "b": "1"}],
            "x {a} {b}",
        ),
        (["x", "x"], [{"n": "1"}, {"n": "2"}], "x"),
        (["x 1", "y 2"], [{"n": "1"}, {"n": "2"}], None),  # two commands
        (["x 1", "x 2"], [{"n": "1"}, {"m": "2"}], None),
        (["1" * 50, "2" * 50], [{"n": "1"}, {"n": "2"}], "{n}" * 50),
        (["x ", "x 2"], [{"n": ""}, {"n": "2"}], None),  # an empty value is nowhere
    ],
)
def test_templates(commands, parameters, expected):
    assert template(commands, parameters) == expected


@pytest.mark.parametrize(
    "results",
    [
        1,
        ["x"],
        [[]],
        [{"command": "x"}],
        [{"command": "x", "times": [None]}],
        [{"command": "x", "times": ["soon"]}],
        [{"command": "x", "times": [1], "parameters": [1]}],
        [{"command": "x", "times": [1], "exit_codes": [0, 0]}],
        [{"command": "x", "times": [1], "exit_codes": 0.5}],
        [{"command": "x", "times": [-1.0]}],
        [{"command": "x", "times": [1e300]}],
        [{"command": "x", "times": [10**400]}],
        [{"command": "x", "times": [1], "parameters": {"threads": "9" * 5000}}],
        [],
    ],
)
def test_what_is_no_export(tmp_path, results):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"results": results}))
    with pytest.raises(memoir.Error, match="x.json: "):
        reading.read([path])
