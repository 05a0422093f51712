# SPDX-License-Identifier: Apache-2.0
"""The launcher's account of processes whose cost is known."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from memoir.bench.process import machine
from memoir.bench.process.launch import Running, launch, read_metric, resolve

import memoir

MIB = 1 << 20
HOG = """
import os, sys, time
x = bytearray(int(sys.argv[1]) << 20)
if len(sys.argv) > 3:  # says that it has its memory, and waits for the other one to say so
    open(sys.argv[3], "w").close()
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


def test_a_run_is_accounted():
    result = launch([sys.executable, "-S", "-c", "sum(range(3_000_000)); print('done')"])
    assert result.failure is None and result.exit_code == 0 and result.output == "done\n"
    assert 0 < result.user <= result.wall * os.cpu_count() + 0.05
    assert result.minor_faults > 100
    assert result.peak_rss == result.largest_rss > 2 * MIB


def test_peak_rss_of_one_process_is_exact():
    small = launch([sys.executable, "-S", "-c", HOG, "1", "0"])
    large = launch([sys.executable, "-S", "-c", HOG, "65", "0"])
    assert 62 * MIB <= large.peak_rss - small.peak_rss <= 66 * MIB


def test_the_python_that_asks_sets_no_floor():
    ballast = bytearray(200 * MIB)
    assert launch(["/bin/true"]).peak_rss < 20 * MIB
    assert len(ballast) == 200 * MIB


def test_processes_of_a_tree_are_added(tmp_path):
    python, a, b = sys.executable, tmp_path / "a", tmp_path / "b"
    script = f'"{python}" -S -c "$0" 60 0.6 {a} {b} & "{python}" -S -c "$0" 60 0.6 {b} {a}; wait'
    result = launch(["sh", "-c", script, HOG])
    assert result.processes >= 3
    assert 60 * MIB <= result.largest_rss < 100 * MIB
    assert result.peak_rss >= 120 * MIB


def test_orphans_are_waited_for_counted_and_killed(tmp_path):
    start, file = time.monotonic(), tmp_path / "orphan"
    script = (
        f'setsid "{sys.executable}" -S -c "$0" 40 600 {file} {file} & until [ -e {file} ]; do sleep 0.1; done'
    )
    result = launch(["sh", "-c", script, HOG])
    assert time.monotonic() - start < 300
    assert result.exit_code == 0 and result.leftover == 1
    assert result.largest_rss >= 40 * MIB


def test_a_daemon_that_ends_within_the_grace_is_not_killed(tmp_path):
    command = [machine.tool("memoir-launch"), "--report", "1", "--grace", "60"]
    script = f"(sleep 0.01; echo late > {tmp_path}/late) &"
    done = subprocess.run([*command, "--", "sh", "-c", script], capture_output=True, text=True)
    assert json.loads(done.stdout)["leftover"] == 0
    assert (tmp_path / "late").read_text() == "late\n"


def test_signals_exit_codes_and_timeouts():
    assert launch(["sh", "-c", "kill -SEGV $$"]).failure == "SIGSEGV"
    assert launch(["sh", "-c", "exit 7"]).exit_code == 7
    slow = launch(["sh", "-c", "sleep 600 & sleep 600"], timeout=0.2)
    assert slow.failure == "timeout" and slow.wall < 300


def test_the_environment_is_added_to_and_the_launcher_keeps_its_own():
    result = launch(["sh", "-c", 'echo "$A $HOME"'], environment={"A": "b=c d"})
    assert result.output == f"b=c d {os.environ['HOME']}\n"


def test_pinning():
    cpu = min(os.sched_getaffinity(0))
    result = launch([sys.executable, "-S", "-c", "import os; print(os.sched_getaffinity(0))"], cpus=[cpu])
    assert result.output == f"{{{cpu}}}\n"


def test_counters_include_children():
    if machine.counters()["page_faults"] not in ("all", "user"):
        pytest.skip("perf_event_open is not allowed here")
    script = f'"{sys.executable}" -S -c "$0" 40 0; "{sys.executable}" -S -c "$0" 40 0'
    result = launch(["sh", "-c", script, HOG], counters=["page_faults", "nonsense"])
    (name,) = result.counters
    assert name.startswith("page_faults")
    assert (
        2 * 40 * MIB // os.sysconf("SC_PAGE_SIZE") * 0.9
        <= result.counters[name]
        <= result.minor_faults * 1.05
    )


def test_stop_ends_the_whole_tree():
    running = Running(["sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600"])
    time.sleep(0.3)
    running.stop()
    result = running.wait()
    assert result.signal == signal.SIGKILL and result.wall < 300


def test_a_program_that_cannot_start_is_named(tmp_path):
    with pytest.raises(memoir.Error, match="cannot start /nowhere/x .*: No such file"):
        launch(["/nowhere/x"])
    with pytest.raises(memoir.Error, match="no program nonesuch on the PATH"):
        resolve("nonesuch")
    (tmp_path / "plain").write_text("")
    with pytest.raises(memoir.Error, match="is not executable: chmod"):
        resolve(str(tmp_path / "plain"))


def test_metrics_are_the_last_match():
    import re

    assert read_metric(re.compile("ops: ([0-9.,]+)"), "ops: 1\nops: 2,500.5\n") == 2500.5
    assert read_metric(re.compile("ops: ([0-9.]+)"), "nothing") is None
    assert read_metric(re.compile("ops: (.*)"), "ops: many") is None
