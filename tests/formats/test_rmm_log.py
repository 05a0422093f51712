# SPDX-License-Identifier: Apache-2.0
"""Logs of RAPIDS Memory Manager: what becomes what, midnight, what was live before, and what is refused."""

import json
from pathlib import Path

import pytest
from memoir._core import Error, Trace, Workload, import_rmm_log, is_rmm_log
from memoir.cli import main
from memoir.traces.files import open_trace
from snapshots import rows

SMALL = Path(__file__).parents[2] / "fuzz" / "seeds" / "rmm_log_fuzz" / "small.csv"
HEAD = "Thread,Time,Action,Pointer,Size,Stream\n"


def imported(text: str) -> tuple[Trace, dict]:
    content, counts = import_rmm_log((HEAD + text).encode(), "x.csv")
    return Trace.from_bytes(content), counts


def test_a_log_becomes_a_trace():
    trace, counts = imported(
        "7,23:59:59.500000,allocate,0x1000,4096,0x0\n"
        "8,23:59:59.750000,allocate,0x9000,512,0x55d0\n"
        "7,00:00:00.000001,free,0x1000,4096,0x0\n"
        "8,00:00:01.000000,allocate failure,(nil),1000000,0x55d0\n"
        "8,00:00:02.000000,deallocate,0x9000,512,0x55d0\n"
    )
    assert rows(trace) == [
        (1, "Allocate", 1, 4096, 0, 0),
        (1, "Address", 1, 0x1000, 0, 0),
        (250_001, "Allocate", 2, 512, 0, 1),
        (250_001, "Address", 2, 0x9000, 0, 1),
        (500_002, "Free", 1, 0, 0, 0),
        (1_500_001, "OutOfMemory", 0, 1_000_000, 0, 1),
        (2_500_001, "Free", 2, 0, 0, 1),
    ]
    assert trace.meta("source") == "rmm log" and trace.meta("streams") == "0,21968"
    assert counts == {
        "rows": 5, "allocations": 2, "frees": 2, "out_of_memory": 1, "live_before": 0,
        "lost_frees": 0, "times_back": 0, "unreadable": 0, "threads": 2, "streams": 2,
    }  # fmt: skip
    assert Workload(trace).failures[0]["live"] == 512


def test_what_was_live_before_and_what_lost_its_free():
    trace, counts = imported(
        "1,10:00:00.5,free,0x5000,100,0\n"
        "1,10:00:01.5,allocate,0x5000,200,0\n"
        "1,10:00:01.4,allocate,0x5000,300,0\n"
        "1,10:00:02,allocate,0x0,0,0\n"
    )
    assert (counts["live_before"], counts["lost_frees"], counts["times_back"]) == (1, 1, 1)
    assert [row[:4] for row in rows(trace) if row[1] != "Address"] == [
        (0, "Allocate", 1, 100),
        (1, "Free", 1, 0),
        (1_000_001, "Allocate", 2, 200),
        (1_000_001, "Free", 2, 0),
        (1_000_001, "Allocate", 3, 300),
        (1_500_001, "Allocate", 4, 0),
        (1_500_001, "Free", 4, 0),
    ]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("1,10:00:00,allocate,0x1,5", "x.csv:2: does not have the six fields"),
        ("1,10:00:00,allocate,0x1,5,0,9", "x.csv:2: does not have the six fields"),
        ("1,10:00:00,grow,0x1,5,0", "x.csv:2: Action 'grow' is not one of allocate, free, allocate failure"),
        ("1,10:00:00,allocate,0xzz,5,0", "x.csv:2: Pointer '0xzz' is not a number of 64 bits"),
        (
            "1,10:00:00,allocate,0x1,99999999999999999999,0",
            "x.csv:2: Size '9{20}' is not a number of 64 bits",
        ),
        ("1,10:00:00,allocate,0x1,99999999999999999,0", "x.csv:2: Size is 9{17}, over 72057594037927936"),
        ("1,10:00:00,free,0x1,5,0\n1,10:00:00,free,0x1,5,0", "x.csv:3: frees 0x1, which was freed already"),
    ],
)
def test_what_is_refused(row, error):
    with pytest.raises(Error, match=error):
        imported(row + "\n")


@pytest.mark.parametrize("thread", ["x", "-1", "", "99999999999999999999", "1"])
@pytest.mark.parametrize("time", ["25:00:00", "10:00", "", "now", "10:00:01"])
def test_what_no_answer_depends_on_costs_no_file(thread, time):
    trace, _ = imported(f"1,10:00:00,allocate,0x1,5,0\n{thread},{time},free,0x1,5,0\n")
    assert [row[1] for row in rows(trace)] == ["Allocate", "Address", "Free"]


def test_files_are_told_by_their_columns(tmp_path, monkeypatch, capfd):
    assert is_rmm_log(SMALL.read_bytes()) and not is_rmm_log(b"id,lower,upper,size\n")
    assert len(open_trace(SMALL).events) > 8
    monkeypatch.chdir(tmp_path)
    for arguments, code in ((("import", str(SMALL), "-o", "x.trace", "--json"), 0), (("oom", "x.trace"), 2)):
        with pytest.raises(SystemExit) as exit:
            main(list(arguments))
        assert (exit.value.code or 0) == code
    out, err = capfd.readouterr()
    assert json.loads(out)["out_of_memory"] == 1
    assert (
        "so it does not tell what the allocator held: give the memory that there was with --cap 20GiB" in err
    )
    for cap, code in (("16GiB", 0), ("1GiB", 1)):
        with pytest.raises(SystemExit) as exit:
            main(["oom", "x.trace", "--cap", cap, "--no-caps", "--json"])
        assert exit.value.code == code


def test_a_program_of_rapids_is_told_what_it_can_load(tmp_path, capfd):
    """Not PyTorch's settings, and nothing is called recorded that a log does not tell."""
    log = tmp_path / "log.csv"
    log.write_text(SMALL.read_text())
    answers = {}
    for cap in ("16GiB", "1GiB"):
        with pytest.raises(SystemExit):
            main(["oom", str(log), "--cap", cap, "--no-caps", "--json", "--workers", "1"])
        answers[cap] = json.loads(capfd.readouterr().out)
    large = answers["16GiB"]
    assert not any(row["policy"].startswith("pytorch") for row in large["rows"])
    assert large["recorded_is_known"] is False and large["recorded_fails_again"] is None
    assert "rmm.mr." in large["paste"]["memoir"] and large["paste"]["pytorch"] is None
    assert answers["1GiB"]["paste"] == {"pytorch": None, "memoir": None}
    with pytest.raises(SystemExit):
        main(["oom", str(log), "--cap", "16GiB", "--no-caps", "--workers", "1"])
    out = capfd.readouterr().out
    assert "(recorded)" not in out and "not in the recording" in out and "PYTORCH" not in out
