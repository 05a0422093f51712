# SPDX-License-Identifier: Apache-2.0
"""A client that drives a measured server from outside its process tree: only the server is accounted."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence

from memoir.bench.launch import Running

GRACE = 10.0  # seconds that a server may take to end after its client is content


class Client:
    """Runs while a server does. A client that fails, or a server that does not end after it, stops the server."""

    def __init__(self, command: Sequence[str], server: Running) -> None:
        self._server = server
        self._output = tempfile.TemporaryFile(prefix="memoir-client-")  # noqa: SIM115 (closed by wait)
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT
        )

    def ended(self) -> bool:
        """True once the client is done; stops the server at once when it failed."""
        if self._process.poll() is None:
            return False
        if self._process.returncode != 0:
            self._server.stop()
        return True

    def wait(self) -> str:
        """Waits for both; returns what the client printed."""
        try:
            self._process.wait()
            deadline = time.monotonic() + GRACE
            while not (self.ended() and self._process.returncode != 0) and self._server.running():
                if time.monotonic() > deadline:
                    self._server.stop()
                    break
                time.sleep(0.005)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        with self._output as output:
            output.seek(0)
            return output.read().decode(errors="replace")


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
