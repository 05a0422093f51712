# SPDX-License-Identifier: Apache-2.0
"""A process that is asked over its pipes: replies, errors, last words, and every way of dying."""

import os
import signal
import sys
import threading
import time

import pytest
from memoir.bench.process.workers import Failure, Worker

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


def test_ctrl_c_at_any_moment_leaves_both_in_step(worker):
    """A signal that comes between reading a reply and returning it once made it the answer to the next question."""
    interrupted = 0
    for number in range(300):
        timer = threading.Timer(number % 30 * 2e-5, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                worker.ask(do="echo", number=-1)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        assert worker.ask(do="echo", number=number) == {"do": "echo", "number": number}
    assert interrupted == 300
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_is_raised_at_once_and_ends_the_worker(worker):
    worker.ask(do="echo")
    timers = [threading.Timer(0.1 * nth, os.kill, (os.getpid(), signal.SIGINT)) for nth in (1, 2)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        worker.ask(do="sleep")
    for timer in timers:
        timer.join()
    assert not worker.alive
