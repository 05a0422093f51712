# SPDX-License-Identifier: Apache-2.0
"""A client that drives a measured server from outside its process tree: only the server is accounted.

started --> ready (a command succeeds, or its port answers) --> client --> left in peace --> stopped
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from memoir.bench.process.launch import Running, Transcript
from memoir.bench.process.memory import PHASE

GRACE = 10.0  # seconds that a server may take to end after its client is content
PATIENCE = 30.0  # seconds that it may take to be ready
_TELLING = 2.0  # seconds in which a server's end is taken for the reason of its client's failure
_TRY = 0.02  # seconds between two looks whether it is


@dataclass
class Turn:
    """What came of one client."""

    said: Transcript = field(default_factory=Transcript)
    wall: float = 0.0  # seconds of the client
    ready: float = 0.0  # seconds from the server's start until it could be used
    marks: list[tuple[str, float]] = field(
        default_factory=list
    )  # phases that the client ended, since that start
    failure: str | None = None


@dataclass(frozen=True)
class Plan:
    """How a server is used once. Commands are filled in."""

    client: Sequence[str]
    server: bool = False  # it goes on until it is stopped; False: its client ends it
    ready: Sequence[str] = ()
    stop: Sequence[str] = ()
    port: int | None = None
    settle: float = 0.0
    timeout: float | None = None  # of the client


def drive(server: Running, plan: Plan) -> Turn:
    """Waits for the server, runs the client, stops the server. Whatever goes wrong is the turn's failure; then the server
    is killed. The caller waits for the server itself."""
    turn, began = Turn(), time.monotonic()
    try:
        if plan.server:
            turn.failure = _await_ready(server, plan)
        turn.ready = time.monotonic() - began
        if turn.failure is None:
            _run_client(server, plan, turn, began)
        if turn.failure is None and plan.server:
            time.sleep(plan.settle)
            turn.failure = _end(server, plan)
        elif turn.failure is None and not _await_end(server):
            server.stop()
    except BaseException:
        server.stop()
        raise
    if turn.failure is not None:
        server.stop()
    return turn


def _await_ready(server: Running, plan: Plan) -> str | None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not server.running():
            return "the server ended before it was ready"
        if plan.ready:
            tried = subprocess.run(
                plan.ready, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if tried.returncode == 0:
                return None
        elif plan.port is None or _answers(plan.port):
            return None
        time.sleep(_TRY)
    return f"the server was not ready within {PATIENCE:.0f} s"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _run_client(server: Running, plan: Plan, turn: Turn, began: float) -> None:
    """Its output is read as it comes, so that a line `phase NAME` is timed."""
    output = tempfile.TemporaryFile(prefix="memoir-client-")  # noqa: SIM115 (the transcript's)
    turn.said = Transcript(output)
    started = time.monotonic()
    client = subprocess.Popen(
        plan.client,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert client.stdout is not None
    deadline = None if plan.timeout is None else started + plan.timeout
    line = b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(client.stdout, selectors.EVENT_READ)
            while True:
                if deadline is not None and time.monotonic() > deadline:
                    turn.failure = "timeout"
                    break
                if not selector.select(0.1):
                    continue
                piece = os.read(client.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                output.write(piece)
                line = (line + piece)[-4096:]
                for match in re.finditer(PHASE, line[: line.rfind(b"\n") + 1].decode(errors="replace")):
                    turn.marks.append((match.group(1), time.monotonic() - began))
                line = line[line.rfind(b"\n") + 1 :]
        if turn.failure is None:
            client.wait()
    finally:
        turn.wall = time.monotonic() - started
        if client.poll() is None:
            os.killpg(client.pid, signal.SIGKILL)
            client.wait()
        client.stdout.close()
        output.flush()
    if turn.failure is None and client.returncode != 0 and plan.server:
        _await_end(server, _TELLING)  # did the server's end make it fail?
    if turn.failure is None and plan.server and not server.running():
        turn.failure = "the server ended before its client"
    elif turn.failure is None and client.returncode != 0:
        code = client.returncode
        turn.failure = f"client: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


def _end(server: Running, plan: Plan) -> str | None:
    if plan.stop:
        stopped = subprocess.run(plan.stop, stdin=subprocess.DEVNULL, capture_output=True)
        if stopped.returncode != 0:
            return f"--stop ended with exit code {stopped.returncode}"
        if not _await_end(server):
            server.stop()
    else:
        server.ask_to_end()
    return None


def _await_end(server: Running, patience: float = GRACE) -> bool:
    """True when it has ended by then."""
    deadline = time.monotonic() + patience
    while server.running():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
