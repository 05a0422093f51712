# SPDX-License-Identifier: Apache-2.0
"""Workers seen from the harness: start, ask, wait, and turn every way of dying into a Failure."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latency.variants import JEMALLOC_SETTINGS, Variant, environment

BENCH = Path(__file__).resolve().parent.parent


class Failure(Exception):
    """A worker that could not do what it was asked: what happened, and the last lines it printed."""

    def __init__(self, what: str, last_lines: list[str]) -> None:
        super().__init__(what)
        self.last_lines = last_lines


class Worker:
    """The process of one variant; it lives through many cells. Not thread-safe."""

    def __init__(self, variant: Variant, timeout: float) -> None:
        self.variant = variant
        self._timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop)
        self._pending = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "latency.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(variant) | {"PYTHONPATH": str(BENCH)},
            start_new_session=True,  # so that a worker that hangs can be ended with its child
        )

    def greet(self, libraries: Sequence[str]) -> None:
        """Tells the worker to import its libraries; several can be told before the first is waited for."""
        settings = JEMALLOC_SETTINGS if self.variant.allocator == "jemalloc" else ()
        tuned_glibc = "GLIBC_TUNABLES" in self.variant.environment
        self._send({"do": "hello", "libraries": libraries, "settings": settings, "tuned_glibc": tuned_glibc})

    def prove(self) -> dict[str, Any]:
        """Waits for the imports and proves that the variant's allocator and settings are really in force."""
        reply = self._receive()
        library, wanted = reply["malloc"], self.variant.library
        if wanted and Path(library).resolve() != wanted.resolve():
            raise Failure(f"malloc is served by {library}, not by {wanted}", self._last_lines())
        if not wanted and not Path(library).name.startswith(("libc.so", "libc-")):
            raise Failure(f"malloc is served by {library}, not by the C library", self._last_lines())
        if reply["settings"].get("maps_200_MiB"):
            raise Failure(
                "GLIBC_TUNABLES had no effect: this glibc still maps large blocks", self._last_lines()
            )
        for setting in filter(None, self.variant.environment.get("MALLOC_CONF", "").split(",")):
            name, _, value = setting.partition(":")
            if reply["settings"].get(name) != int(value):
                raise Failure(
                    f"jemalloc took {name} as {reply['settings'].get(name)}, not {value}", self._last_lines()
                )
        return reply

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends one request and waits for its reply; raises Failure when there is none or it is an error.

        A Ctrl-C while waiting is raised after the reply, so that both stay in step; a second one at once.
        """
        self._send(request)
        try:
            return self._receive()
        except KeyboardInterrupt:
            self._receive()
            raise

    def stop(self) -> None:
        """Ends the worker: kindly by closing its input, and otherwise with its whole process group."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:  # its end of the pipe is closed
            raise Failure(self._how_it_ended(), self._last_lines()) from None

    def _receive(self) -> dict[str, Any]:
        reply = json.loads(self._read_line(time.monotonic() + self._timeout))
        if "error" in reply:
            raise Failure(reply["error"], self._last_lines())
        return reply

    def _read_line(self, deadline: float) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    os.killpg(self._process.pid, signal.SIGKILL)
                    self._process.wait()
                    raise Failure(f"no answer within {self._timeout:g} s (--timeout)", self._last_lines())
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise Failure(self._how_it_ended(), self._last_lines())
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        status = self._process.wait()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"

    def _last_lines(self, count: int = 8) -> list[str]:
        self._errors.seek(0, os.SEEK_END)
        end = self._errors.tell()
        # The file is shared with the worker, so its position must stay at the end.
        text = os.pread(self._errors.fileno(), 1 << 14, max(0, end - (1 << 14))).decode(errors="replace")
        return text.splitlines()[-count:]


def available_memory() -> int:
    """Bytes that can be used without swapping: MemAvailable, or what the cgroup leaves."""
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":") for line in file)
    available = int(lines["MemAvailable"].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        current = int(Path("/sys/fs/cgroup/memory.current").read_text())
        available = min(available, limit - current)
    return available
