# SPDX-License-Identifier: Apache-2.0
"""Processes that live long and answer requests: a line of JSON on standard input, one on standard output.

    worker = Worker([sys.executable, "-m", "my.worker"], environment, timeout=60.0)
    worker.ask(do="open", size=7)      # {"ready": true}, or Failure
    worker.stop()

Whatever way such a process dies, whoever asks sees one Failure. A reply {"error": text} is one too.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memoir.bench.process.launch import TAIL_LINES

_KIND = 5.0  # seconds that a worker has to end by itself when it is stopped
_TAIL_BYTES = 1 << 14


class Failure(Exception):
    """Something that was asked could not be done: what happened, and the last lines that were printed."""

    def __init__(self, what: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.last_lines = list(last_lines)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is held back until the end of the block; yields whether a second one was raised inside it.

    Catching KeyboardInterrupt is not enough: Python raises it between any two steps, so also when a reply was
    read and not yet returned. Only the main thread can be interrupted, and only it changes handlers.
    """
    count = 0

    def wait(*_: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield lambda: False  # nobody raises here, or somebody else decides what a signal does
        return
    signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: count > 1
    finally:
        signal.signal(signal.SIGINT, before)
        if count == 1:
            raise KeyboardInterrupt


class Worker:
    """One process and its two pipes. Not thread-safe."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], timeout: float) -> None:
        """`environment` is the whole of it; `timeout` is for one reply, in seconds."""
        self._timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop)
        self._pending = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            start_new_session=True,  # so that a worker that hangs can be ended with its children
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends one request and waits for its reply; raises Failure when there is none or it is an error.

        A Ctrl-C is raised after the reply, so that both stay in step. A second one is raised at once, and
        ends the worker: what it would still say belongs to nobody's question.
        """
        with _interrupts_wait() as second:
            try:
                self.send(**request)
                return self.receive()
            except KeyboardInterrupt:
                if second():
                    self._kill()
                raise

    def send(self, **request: Any) -> None:
        """Half of ask(): several workers can be told something before the first is waited for."""
        try:
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()
        except OSError:  # its end of the pipe is closed
            raise self.failure(self._how_it_ended()) from None

    def receive(self) -> dict[str, Any]:
        """The other half: waits for one reply."""
        reply: dict[str, Any] = json.loads(self._read_line(time.monotonic() + self._timeout))
        if "error" in reply:
            raise self.failure(reply["error"])
        return reply

    def failure(self, what: str) -> Failure:
        """A Failure with the last lines that this worker printed."""
        return Failure(what, self._last_lines())

    def stop(self) -> None:
        """Ends the worker: kindly by closing its input, and otherwise with its whole process group."""
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(timeout=_KIND)
        except subprocess.TimeoutExpired:
            self._kill()
        self._output.close()
        self._errors.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read_line(self, deadline: float) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._kill()
                    raise self.failure(f"no answer within {self._timeout:g} s (--timeout)")
                piece = os.read(self._output.fileno(), 1 << 16)
                if not piece:
                    raise self.failure(self._how_it_ended())
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        status = self._process.wait()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"

    def _last_lines(self) -> list[str]:
        end = os.fstat(self._errors.fileno()).st_size
        # The worker shares the file's position, so it is read without moving it.
        text = os.pread(self._errors.fileno(), _TAIL_BYTES, max(0, end - _TAIL_BYTES))
        return text.decode(errors="replace").splitlines()[-TAIL_LINES:]
