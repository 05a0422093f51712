# SPDX-License-Identifier: Apache-2.0
"""Files that a bench writes and reads, and what is said of their rows."""

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from memoir.bench import analysis, journal, reading, scaling
from memoir.bench.changes import changes
from memoir.bench.recording import Recording
from memoir.bench.results import Result

import memoir

STUDY = {"default": (1.0, 0.02), "hoard": (1.03, 0.03), "mimalloc": (0.85, 0.01)}


def simulated(ratios, n=30, noise=0.03, programs=("p",), interleaved=True, seed=1):
    """Rows of allocators whose true ratios are given, with block drift."""
    rng, rows = np.random.default_rng(seed), []
    for program in programs:
        for threads in (1, 2):
            for replicate in range(n):
                drift = rng.normal(0, 0.05)
                for name, ratio in ratios.items():
                    wall = threads * ratio * math.exp(drift + rng.normal(0, noise))
                    row = {
                        "program": program,
                        "allocator": name,
                        "threads": threads,
                        "load": 1,
                        "work": threads,
                    }
                    row |= {
                        "parameters": {},
                        "replicate": replicate,
                        "status": "ok",
                        "wall": wall,
                        "metrics": {},
                    }
                    rows.append(row | {"user": wall / 2, "system": 0.01, "peak_rss": 1000, "minor_faults": 5})
    return Result({"interleaved": interleaved}, rows)


def write_study(folder):
    """Files as the study's script leaves them: one per allocator, 1, 4, 16 threads x load, six replicates."""
    rng = np.random.default_rng(2)
    paths = []
    for name, (level, slope) in STUDY.items():
        lines = ["Threads,Work,Load,Replicate,Time"]
        for threads in (1, 4, 16):
            for load in (1, 4, 16):
                for replicate in range(6):
                    time = level * load * (1 + slope * (threads - 1)) * math.exp(rng.normal(0, 0.01))
                    lines.append(f"{threads},{threads * load},{load},{replicate},{time:.2f}")
        paths.append(folder / f"malloc={name}+ext=.csv")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def test_a_planted_slowdown_is_found_and_equals_are_not_told_apart():
    found = analysis.analyse(simulated({"base": 1.0, "same": 1.0, "slow": 1.03}, programs=("p", "q")))
    verdicts = {}
    for line in found.lines():
        verdicts.setdefault(line.cell.allocator, set()).add(line.verdict)
    assert verdicts["base"] == {"baseline"}
    assert verdicts["same"] <= {"no difference shown", "unclear"}
    assert "slower" in verdicts["slow"] and "faster" not in verdicts["slow"]
    ratio, low, high = found.overall["slow"].interval
    assert low < 1.03 < high and low > 1.0
    assert found.overall["same"].interval.includes_one


def test_a_winner_beats_everyone():
    clear = analysis.analyse(simulated({"base": 1.0, "slow": 1.1, "fast": 0.8}))
    assert set(clear.winners.values()) == {"fast"}
    tied = analysis.analyse(simulated({"base": 1.0, "fast": 0.8, "twin": 0.8}))
    assert set(tied.winners.values()) == {None}
    one = analysis.analyse(simulated({"base": 1.0, "fast": 0.5}, n=1))
    assert set(one.winners.values()) == {None}
    assert {line.verdict for line in one.lines()} == {"baseline", "no difference shown"}
    assert "no interval" in one.warnings[0]


def test_runs_that_were_not_interleaved_are_compared_unpaired():
    found = analysis.analyse(simulated({"base": 1.0, "slow": 1.5}, interleaved=False))
    assert found.method == "welch_t"


def test_failures_are_counted_and_leave_no_winner():
    result = simulated({"base": 1.0, "fast": 0.5, "broken": 0.4})
    for row in result.rows:
        if row["allocator"] == "broken":
            row["status"] = "SIGSEGV"
    found = analysis.analyse(result)
    broken = [line for line in found.lines() if line.cell.allocator == "broken"]
    assert [(line.n, line.failed, line.verdict) for line in broken] == [(0, 30, "no data")] * 2
    assert set(found.winners.values()) == {None}
    assert "broken" not in found.overall
    content = result.to_json()
    assert len(content["failures"]) == 60
    assert not any(entry["parameters"]["allocator"] == "broken" for entry in content["results"])


def test_outliers_are_shown_not_dropped():
    result = simulated({"base": 1.0, "other": 1.0})
    result.rows[0]["wall"] *= 10
    line = analysis.analyse(result).lines()[0]
    assert line.outliers == (result.rows[0]["wall"],)
    assert line.n == 30 and line.maximum == line.outliers[0]


def test_unknown_baseline():
    with pytest.raises(memoir.Error, match="baseline 'x' is not among base"):
        analysis.analyse(simulated({"base": 1.0}), baseline="x")


def test_the_export_is_a_superset_of_hyperfine_s():
    content = json.loads(json.dumps(simulated({"base": 1.0, "slow": 1.1}, n=5).to_json()))
    for entry in content["results"]:
        for key in (
            "command",
            "mean",
            "stddev",
            "median",
            "user",
            "system",
            "min",
            "max",
            "times",
            "exit_codes",
        ):
            assert key in entry
        assert all(isinstance(value, str) for value in entry["parameters"].values())
        assert len(entry["times"]) == len(entry["exit_codes"]) == 5
        assert entry["mean"] == pytest.approx(np.mean(entry["times"]))
        assert entry["stddev"] == pytest.approx(np.std(entry["times"], ddof=1))


def test_csv_begins_with_the_study_s_columns_and_reads_back(tmp_path):
    result = simulated({"base": 1.0, "slow": 1.1}, n=4)
    path = tmp_path / "x.csv"
    path.write_text(result.to_csv())
    assert path.read_text().startswith("malloc,Threads,Work,Load,Replicate,Time,")
    again = reading.read([path])
    assert [row["wall"] for row in again.rows] == [row["wall"] for row in result.rows]
    assert analysis.analyse(again, method="welch_t").overall["slow"].interval == pytest.approx(
        analysis.analyse(result, method="welch_t").overall["slow"].interval
    )


def test_columns_and_frames():
    result = simulated({"base": 1.0}, n=3)
    columns = result.columns()
    assert list(columns)[:6] == ["malloc", "Threads", "Work", "Load", "Replicate", "Time"]
    assert columns["Time"].dtype == float and len(columns["Time"]) == 6
    with pytest.raises(memoir.Error, match="use pandas or polars"):
        result.frame("excel")
    for kind in ("pandas", "polars"):
        try:
            __import__(kind)
        except ImportError:
            with pytest.raises(memoir.Error, match=f"{kind} is not installed"):
                result.frame(kind)
        else:
            assert len(result.frame(kind)) == 6


def test_the_study_s_own_files_get_the_same_treatment(tmp_path):
    result = reading.read(write_study(tmp_path))
    assert result.allocators == ["default", "hoard", "mimalloc"]
    assert len(result.rows) == 3 * 9 * 6
    found = analysis.analyse(result)
    assert found.method == "welch_t"
    assert {line.verdict for line in found.lines() if line.cell.allocator == "mimalloc"} == {"faster"}
    normalised = scaling.serial_normalised(result)
    for cell, (points, (ratio, low, high)) in normalised.items():
        if cell.threads == 1:
            assert points.mean() == pytest.approx(1.0)
        else:
            true = 1 + STUDY[cell.allocator][1] * (cell.threads - 1)
            assert low < high and ratio == pytest.approx(true, rel=0.05)
    aggregate, marginal = next(
        value for cell, value in scaling.throughputs(result).items() if cell.threads == 16 and cell.load == 4
    )
    assert aggregate[0] == pytest.approx(16 * marginal[0])


def test_a_knitted_file_with_the_study_s_extra_columns(tmp_path):
    path = tmp_path / "knitted.csv"
    path.write_text(
        "Threads,Work,Load,Replicate,Time,malloc,Aggregate Throughput,Marginal Throughput\n"
        "1,1,1,0,2.0,default,0.5,0.5\n1,1,1,0,1.0,hoard,1.0,1.0\n"
    )
    result = reading.read([path])
    assert result.allocators == ["default", "hoard"]
    assert analysis.analyse(result).lines()[1].comparison.interval.ratio == pytest.approx(0.5)


@pytest.mark.parametrize(
    "content, words",
    [
        ("a,b\n1,2\n", r"bad.csv:1: no column Threads"),
        ("Threads,Load,Time\n1,1,fast\n", r"bad.csv:2: could not convert"),
        ("Threads,Load,Time\n1,1,1.0\n1,1,-3\n", r"bad.csv:3: Time -3 is not a positive number"),
        ("Threads,Load,Time\n0,1,1.0\n", r"bad.csv:2: Threads and Load must be 1 or more"),
        ("Threads,Load,Replicate,Time\n1,1,0,1.0\n1,1,0,1.0\n", r"bad.csv:3: replicate 0 .* occurs twice"),
        ("Threads,Load,Time\n", "bad.csv: no runs"),
    ],
)
def test_a_bad_csv_is_named_with_its_line(tmp_path, content, words):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(memoir.Error, match=words):
        reading.read([path])


def test_two_files_may_not_claim_the_same_run(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("malloc,Threads,Load,Replicate,Time\nx,1,1,0,1.0\n")
    with pytest.raises(memoir.Error, match="is in .*a.csv too; compare two benches with `memoir diff`"):
        reading.read([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_a_torn_line_is_left_out_and_cut(tmp_path):
    path = tmp_path / journal.NAME
    log = journal.Journal(path)
    log.append({"memoir_bench": journal.VERSION})
    row = simulated({"base": 1.0}, n=1).rows[0]
    log.append(row)
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"row": 2')
    assert journal.read(path) == ({"memoir_bench": journal.VERSION}, [row])
    journal.cut_torn_line(path)
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"nonsense\n" + whole)
    with pytest.raises(memoir.Error, match=rf"{journal.NAME}:3: not a record"):
        journal.read(path)
    path.write_bytes(b'{"memoir_bench": 1}\n{"program": "p", "wall": 1}\n')
    with pytest.raises(memoir.Error, match=f"{journal.NAME}: run 1 has no allocator, load, parameters"):
        journal.read(path)
    path.write_bytes(b'{"other": 1}\n')
    with pytest.raises(memoir.Error, match=":1: no header of a bench"):
        journal.read(path)


def test_a_full_disk_is_told_and_a_bench_that_has_not_begun_leaves_nothing(tmp_path, monkeypatch):
    full = "the disk is full; make room, then go on with --resume"
    with pytest.raises(memoir.Error, match="/dev/full: cannot be written: not a regular file"):
        journal.Journal(Path("/dev/full"))
    monkeypatch.setattr(journal, "append_to", lambda path: os.open(path, os.O_WRONLY))
    with pytest.raises(OSError, match=full) as error:
        journal.Journal(Path("/dev/full")).append({"x": 1})
    monkeypatch.undo()
    assert error.value.filename == "/dev/full"

    def append(self, *records):
        raise OSError(errno.ENOSPC, full, str(self.path))

    monkeypatch.setattr(journal.Journal, "append", append)
    with pytest.raises(memoir.Error, match=f"out/{journal.NAME}: cannot be written: No space left on device"):
        Recording.begin({"memoir_bench": journal.VERSION}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_result_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(memoir.Error, match="x.json: not a results.json"):
        reading.read([tmp_path / "x.json"])
    with pytest.raises(memoir.Error, match="no file"):
        reading.read([tmp_path / "nowhere.json"])


def test_changes_between_two_benches():
    before, after = simulated({"a": 1.0, "b": 1.0}), simulated({"a": 1.2, "b": 1.0}, seed=9)
    verdicts = {
        (c.cell.allocator, c.cell.threads): c.verdict for c in changes(before, after, ["wall"])["wall"]
    }
    assert verdicts[("a", 1)] == verdicts[("a", 2)] == "slower"
    assert verdicts[("b", 1)] in ("no difference shown", "unclear")
    relative = changes(before, simulated({"a": 2.0, "b": 2.0}, seed=3), ["wall"], relative="b")["wall"]
    assert {(c.cell.allocator, c.verdict) for c in relative} == {("a", "no difference shown")}
