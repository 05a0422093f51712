# SPDX-License-Identifier: Apache-2.0
"""The program as people call it: the smoke run with memoir, Ctrl-C and going on, arguments that cannot be."""

import json
import os
import signal
import subprocess
import sys
import time

import memoir.bench
import pytest
from memoir.bench import journal

pytest.importorskip("memoir.torch")


@pytest.fixture
def call(bench, monkeypatch, capsys):
    """Runs the program within this process: (exit code, stdout, stderr)."""
    import torch_latency

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["torch_latency.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            torch_latency.main()
        return caught.value.code, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_smoke(call, tmp_path):
    output, report = tmp_path / "r", tmp_path / "report"
    code, out, err = call("--smoke", "--variants", "glibc,memoir", "-o", output, "--report", report)
    assert code == 0, err
    assert "squeezenet1_0 1x64 1 thread" in err
    assert "| no page fault in a steady pass" in out
    assert {path.name for path in output.iterdir()} == {"runs.jsonl", "results.json", "results.csv"}
    cell = json.loads((report / "summary.json").read_text())["cells"][0]
    memoir, glibc = cell["variants"]["memoir"], cell["variants"]["glibc"]
    assert cell["failures"] == {}
    assert cell["ratios"]["glibc"]["n"] == 3
    assert memoir["passes"] == glibc["passes"] == 3 * 5
    assert memoir["output"] == glibc["output"]
    stats = memoir["memoir"]
    assert stats["fallen_back"] == 0 and stats["planned"] > 0
    assert stats["plan_hits"] >= 3 * (5 + 1)
    assert 1.0 <= stats["slab_bytes"] / stats["peak_live_bytes"] < 1.01
    assert memoir["minor"] < 5.0  # a fault or two come from Python itself

    code, _, err = call("--smoke", "-o", output)
    assert code == 2
    assert f"{output} holds a bench already: use --resume" in err


@pytest.mark.full
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(bench, call, tmp_path):
    output = tmp_path / "r"
    options = ["--nets", "dcgan", "--batch", 1, "--side", 64, "--threads", 1, "--callers", 2]
    options += ["--variants", "glibc,glibc_tuned", "--passes", 2]
    command = [sys.executable, bench / "torch_latency.py", *options, "--replicates", 100_000, "-o", output]
    running = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 1200
    runs = output / "runs.jsonl"
    while not (runs.exists() and runs.read_bytes().count(b'"status":"ok"') >= 4):
        assert time.monotonic() < deadline and running.poll() is None
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGINT)
    errors = running.communicate(timeout=600)[1]
    assert running.returncode == 130
    assert f"--resume {output}" in errors
    _, rows, members = journal.read_all(runs)
    kept = len(rows) // 2
    assert kept >= 2
    assert {member["allocator"] for member in members} == {"glibc", "glibc_tuned"}
    assert all(len(row["turn"]["ns"]) == 2 * 2 for row in rows)

    code, out, err = call(*options, "--replicates", kept + 2, "--resume", output, "--json")
    assert code == 0, err
    result = memoir.bench.read([output])
    for rows in result.cells().values():
        assert [row["replicate"] for row in rows] == list(range(kept + 2))
        assert [row["session"] for row in rows] == [0] * kept + [1] * 2
    assert len(result.header["commands"]) == 2
    assert json.loads(out)["cells"][0]["ratios"]["glibc_tuned"]["n"] == kept + 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nets", "resnet51"], "'resnet51' is not one of all, small, dcgan"),
        (["--variants", "dlmalloc"], "'dlmalloc' is not one of all, glibc"),
        (["--batch", "0"], "must name numbers from 1 upwards"),
        (["--threads", "two"], "'two' is not a number"),
        (["--nets", "inception_v3", "--side", "64"], "--side 64: inception_v3 needs at least 75 pixels"),
        (["--from", "nowhere"], "nowhere: no such results"),
        (["--resume", "nowhere"], "nowhere: no such results"),
        (["--resume", "a", "-o", "b"], "--resume a goes on in that folder"),
    ],
)
def test_bad_arguments_are_one_clear_line_and_exit_code_2(call, arguments, says):
    code, out, err = call(*arguments)
    assert code == 2
    assert says in err and out == ""
