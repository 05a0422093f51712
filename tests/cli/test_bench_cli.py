# SPDX-License-Identifier: Apache-2.0
"""memoir bench, diff and doctor as typed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memoir.bench import journal
from memoir.bench.lock import NAME as lock_file
from memoir.bench.recording import PICTURES
from memoir.cli import main
from memoir.views import bench_figures

SH = ["sh", "-c", 'cat /dev/null; echo "ops: 5"']  # the shell asks malloc for its words
LOADED = ["sh", "-c", ": {load}; cat /dev/null"]


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Runs a command line in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


def test_a_bench_leaves_tables_files_and_the_next_command(cli, tmp_path):
    code, out, err = cli("bench", "system,tuned=system,MALLOC_ARENA_MAX=1", "-n", 3, "--warmup", 0, "--", *SH)
    assert code == 0
    assert "Time" in out and "Peak memory" in out and "tuned" in out and "baseline" in out
    assert "replicate 3/3 done" in err
    assert "next: memoir diff memoir-bench ANOTHER" in err
    names = {path.name for path in (tmp_path / "memoir-bench").iterdir()}
    assert {
        "runs.jsonl",
        "results.json",
        "results.csv",
        "report.html",
        "tables.md",
        "times.svg",
        "times.png",
    } <= names
    code, _, err = cli("bench", "system", "--", *SH)
    assert code == 2 and "holds a bench already" in err
    code, out, _ = cli("bench", "--from", "memoir-bench", "--no-pictures")
    assert code == 0 and "tuned" in out
    code, out, _ = cli("bench", "--from", "memoir-bench/results.json", "--json")
    assert code == 0 and json.loads(out)["memoir"]["analysis"]["wall"]["cells"][1]["allocator"] == "tuned"


@pytest.mark.parametrize(
    "name", ["results.csv", "report.html", "tables.md", "times.png", "run-order.svg", ".results.csv.before"]
)
def test_nothing_that_is_there_is_overwritten_unasked(name, cli, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_text("mine")
    assert cli("bench", "system", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", *SH)[0] == 0
    for words in (("system", "-n", 2, "--warmup", 0, "-o", "d", "--", *SH), ("--from", "x", "-o", "d")):
        code, _, err = cli("bench", *words)
        assert code == 2 and f"d/{name} exists already" in err and err.count("\n") == 1
        assert [path.name for path in (tmp_path / "d").iterdir()] == [name]
        assert (tmp_path / "d" / name).read_text() == "mine"


def test_what_only_sounds_like_a_bench_s_own_stays(cli, tmp_path):
    (tmp_path / "d").mkdir()
    for name in (".lock", lock_file):
        (tmp_path / "d" / name).write_text("mine")
    words = ("bench", "system", "-n", 2, "--warmup", 0, "-o", "d", "--no-pictures", "--", *SH)
    for force in ((), ("-f",)):
        code, _, err = cli(*words[:-4], *force, *words[-4:])
        assert code == 2 and f"d/{lock_file} is not of memoir bench" in err
    (tmp_path / "d" / lock_file).unlink()
    assert cli(*words)[0] == 0
    (tmp_path / "d/.results.csv.before").write_text("mine")
    assert cli("bench", "--resume", "d", "-n", 3, "--no-pictures")[0] == 0
    assert [(tmp_path / "d" / name).read_text() for name in (".lock", ".results.csv.before")] == ["mine"] * 2


def test_what_f_set_aside_goes_when_old_results_are_read(cli, tmp_path):
    for folder in ("x", "d"):
        cli("bench", "system", "-n", 2, "--warmup", 0, "-o", folder, "--no-pictures", "--", *SH)
    assert cli("bench", "--from", "x", "-o", "d", "-f", "--no-pictures")[0] == 0
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"results.json", "results.csv", "tables.md"}


def test_every_picture_is_known_before(tmp_path):
    source = Path(bench_figures.__file__).read_text()
    names = set(re.findall(r'figures\["([\w-]+)"\]', source)) | {"times", "ratios"}
    assert names == set(PICTURES)


def test_the_json_is_the_export(cli):
    code, out, err = cli(
        "bench", "system", "-n", 2, "--threads", "1,2", "--metric", "(?P<ops>ops): ([0-9]+)", "--json",
        "--no-pictures", "--warmup", 0, "--", *SH,
    )  # fmt: skip
    assert code == 2 and "matches nothing" in err  # the first group is the word
    code, out, _ = cli(
        "bench", "system", "-n", 2, "--threads", "1,2", "--metric", "ops: (?P<ops>[0-9]+)", "--json",
        "--no-pictures", "--warmup", 0, "--", *SH,
    )  # fmt: skip
    content = json.loads(out)
    assert code == 0 and len(content["results"]) == 2
    assert {row["metrics"]["ops"] for row in content["memoir"]["rows"]} == {5}


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["bench", "sistem", "--", *SH], "unknown allocator 'sistem'"),
        (["bench", "x=/nowhere.so", "--", *SH], "no file /nowhere.so"),
        (["bench", "system", "--", "nonesuch"], "no program nonesuch on the PATH"),
        (["bench", "system", "--", "sh", "{size}"], "no axis fills {size}"),
        (["bench", "system", "--threads", "0", "--", *SH], "--threads 0: must be 1 or more"),
        (["bench", "system", "--threads", "two", "--", *SH], "--threads two: use whole numbers"),
        (["bench", "system", "--load", "1,,2", "--", *SH], "--load 1,,2: use whole numbers"),
        (["bench", "system", "--param", "size", "--", *SH], "--param size: write it as NAME=A,B,C"),
        (["bench", "system", "--metric", "x: ([0-9]+)", "--", *SH], "matches nothing that sh prints"),
        (["bench", "system", "--metric", "(", "--", *SH], "is not a regular expression"),
        (["bench", "system", "--until", "soon", "--", *SH], "--until soon: write it as 2%"),
        (["bench", "system", "--timeout", "x", "--", *SH], "--timeout x: write it as 200ms, 90s"),
        (["bench", "system", "--confidence", "100%", "--", *SH], "--confidence 100%: must be between"),
        (["bench", "system", "--baseline", "x", "--", *SH], "--baseline x: not among system"),
        (["bench", "system", "--pin", "999", "--", *SH], "core 999 is not among"),
        (["bench", "system"], "no command to measure"),
        (["bench", "--", *SH], "no allocators named"),
        (["bench", "system", "--suite", "--", *SH], "leave out the command"),
        (["bench", "system", "--suite", "nonesuch"], "unknown suite 'nonesuch'"),
        (["bench", "--resume", "nowhere"], "no runs.jsonl in it"),
        (["bench", "--from", "nowhere.csv"], "no file nowhere.csv"),
        (["bench", "system", "--from", "nowhere.csv"], "--from runs nothing"),
        (["diff", "nowhere", "nowhere"], "no file nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(cli, tmp_path, arguments, words):
    code, out, err = cli(*arguments)
    last = [line for line in err.splitlines() if not line.startswith(("proving", "note:"))]
    assert code == 2 and out == ""
    assert len(last) == 1 and last[0].startswith("memoir: ") and words in last[0]
    assert list(tmp_path.iterdir()) == []


def test_resume_goes_on_where_it_was_and_refuses_another_grid(cli, tmp_path):
    cli("bench", "system", "-n", 4, "--load", "1,2", "--warmup", 0, "-o", "x", "--no-pictures", "--", *LOADED)
    file = tmp_path / "x" / journal.NAME
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2 + 8  # the header twice: once more with the proofs
    file.write_bytes(b"".join(lines[:5]) + lines[5][:20])  # three runs done, the fourth torn
    code, _, err = cli("bench", "system", "--load", "1,3", "--resume", "x", "--", *LOADED)
    assert code == 2 and "that bench has other loads" in err
    code, _, err = cli("bench", "system", "--load", "1,2", "--resume", "x", "--", "sh", "-c", ": {load}")
    assert code == 2 and "that bench has other programs" in err
    code, _, err = cli("bench", "--resume", "x", "-n", 5, "--no-pictures")
    assert code == 0, err
    _, rows = journal.read(file)
    assert file.read_bytes().startswith(b"".join(lines[:5]))
    done = [(row["replicate"], row["load"]) for row in rows]
    assert len(done) == 10 and sorted(done) == [(r, load) for r in range(5) for load in (1, 2)]


def test_a_damaged_header_is_named(cli, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / journal.NAME).write_text('{"memoir_bench": 1, "grid": {}}\n')
    code, _, err = cli("bench", "--resume", "x")
    assert code == 2 and "runs.jsonl:1: the header is damaged" in err


def test_ctrl_c_keeps_what_is_done(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "memoir", "bench", "system", "-n", "1000", "--warmup", "0", "--no-pictures",
         "-o", "x", "--", "sh", "-c", "sleep 0.05"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    file = tmp_path / "x" / journal.NAME
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (file.exists() and file.read_bytes().count(b"\n") > 5):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "stopped; what was done is kept. Go on: memoir bench --resume x" in err
    assert "Traceback" not in err
    _, rows = journal.read(file)
    assert len(rows) >= 3
    assert len(json.loads((tmp_path / "x" / "results.json").read_text())["memoir"]["rows"]) == len(rows)


def test_nothing_is_left_when_the_harness_is_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "memoir", "bench", "system", "-o", "x",
         "--", "sh", "-c", f"sleep 661.5; : {tmp_path}"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def running():
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found.append(process.read_bytes())
        return any(b"sleep 661.5" in words and bytes(tmp_path) in words for words in found)

    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not running():
        time.sleep(0.05)
    process.kill()
    process.wait()
    while time.monotonic() < deadline and running():
        time.sleep(0.05)
    assert not running()


def test_the_study_s_files_are_read_in_one_go(cli, tmp_path):
    for name, time_ in (("default", 2.0), ("hoard", 1.0)):
        lines = [f"1,1,1,{r},{time_ + r / 100:.2f}" for r in range(6)]
        (tmp_path / f"malloc={name}+ext=.csv").write_text(
            "Threads,Work,Load,Replicate,Time\n" + "\n".join(lines) + "\n"
        )
    code, out, err = cli("bench", "--from", "malloc=default+ext=.csv", "malloc=hoard+ext=.csv", "-o", "x")
    assert code == 0 and "faster" in out
    assert "measured one after another" in err
    assert (tmp_path / "x" / "report.html").exists()
    code, out, _ = cli("bench", "--from", "x", "--baseline", "hoard")
    assert code == 0 and "slower" in out


def test_diff_says_what_changed(cli, tmp_path):
    header = "malloc,Threads,Work,Load,Replicate,Time\n"
    for name, factor in (("a", 1.0), ("b", 1.5)):
        rows = [f"x,1,1,1,{r},{factor * (1 + r / 100)}\ny,1,1,1,{r},{1 + r / 100}" for r in range(8)]
        (tmp_path / f"{name}.csv").write_text(header + "\n".join(rows) + "\n")
    code, out, err = cli("diff", "a.csv", "b.csv")
    assert code == 0
    assert re.search(r"x .*1\.500 \[.*slower", out) and re.search(r"y .*no difference shown", out)
    code, out, _ = cli("diff", "a.csv", "b.csv", "--json")
    found = {one["allocator"]: one for one in json.loads(out)["wall"]}
    assert found["x"]["low"] < 1.5 < found["x"]["high"] and found["x"]["verdict"] == "slower"
    code, out, _ = cli("diff", "a.csv", "b.csv", "--relative", "x", "--json")
    assert [one["verdict"] for one in json.loads(out)["wall"]] == ["faster"]
    assert cli("diff", "a.csv", "b.csv", "--quantity", "peak_rss")[0] == 2
    (tmp_path / "c.csv").write_text(header + "z,1,1,1,0,1\n")
    code, _, err = cli("diff", "a.csv", "c.csv")
    assert code == 2 and "no cell in common" in err


def test_doctor_lists_what_is_here_and_what_brings_the_rest(cli):
    code, out, err = cli("doctor")
    assert code == 0
    for word in (
        "system",
        "jemalloc",
        "hoard",
        "huge pages",
        "governor",
        "overcommit",
        "load average",
        "cycles",
    ):
        assert word in out
    assert "next: memoir bench system" in err
    code, out, _ = cli("doctor", "--json")
    content = json.loads(out)
    assert content["machine"]["cores"] == os.cpu_count()
    for one in content["allocators"]:
        assert (one["library"] is None) == (one["package"] is not None)
