# SPDX-License-Identifier: Apache-2.0
"""A process that is asked over its pipes: replies, errors, last words, and every way of dying."""

import os
import sys
import time

import pytest
from memoir.bench.workers import Failure, Worker

SERVES = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "fail":
        print("some last words", file=sys.stderr, flush=True)
        print(json.dumps({"error": "it cannot"}), flush=True)
    elif request["do"] == "die":
        os.kill(os.getpid(), request["signal"])
    elif request["do"] == "leave":
        sys.exit(3)
    elif request["do"] == "sleep":
        time.sleep(600)
    else:
        print(json.dumps(request), flush=True)
"""


@pytest.fixture
def worker():
    worker = Worker([sys.executable, "-c", SERVES], os.environ, timeout=600.0)
    yield worker
    worker.stop()
    assert not worker.alive


def test_a_request_has_one_reply(worker):
    assert worker.ask(do="echo", size=7) == {"do": "echo", "size": 7}
    worker.send(do="a")
    worker.send(do="b", text="x" * (1 << 18))  # more than a pipe holds
    assert worker.receive()["do"] == "a"
    assert len(worker.receive()["text"]) == 1 << 18


def test_an_error_is_a_failure_and_the_next_request_is_answered(worker):
    with pytest.raises(Failure, match="it cannot") as caught:
        worker.ask(do="fail")
    assert caught.value.last_lines == ["some last words"]
    assert worker.ask(do="echo") == {"do": "echo"}


def test_death_is_a_failure_with_its_signal_or_exit_code(worker):
    with pytest.raises(Failure, match="killed by SIGKILL"):
        worker.ask(do="die", signal=9)
    with pytest.raises(Failure, match="killed by SIGKILL"):
        worker.ask(do="echo")
    leaver = Worker([sys.executable, "-c", SERVES], os.environ, timeout=600.0)
    with pytest.raises(Failure, match="ended with exit code 3"):
        leaver.ask(do="leave")
    leaver.stop()


def test_one_that_hangs_is_killed_when_its_time_is_over():
    worker = Worker([sys.executable, "-c", SERVES], os.environ, timeout=0.3)
    began = time.monotonic()
    with pytest.raises(Failure, match="no answer within 0.3 s"):
        worker.ask(do="sleep")
    assert not worker.alive and time.monotonic() - began < 300
    worker.stop()


def test_ctrl_c_while_waiting_leaves_both_in_step(worker, monkeypatch):
    read, calls = worker._read_line, []

    def interrupted(deadline):
        calls.append(deadline)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return read(deadline)

    monkeypatch.setattr(worker, "_read_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.ask(do="first")
    assert worker.ask(do="second") == {"do": "second"}
