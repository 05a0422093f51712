# SPDX-License-Identifier: Apache-2.0
"""A client that drives a measured server from outside its process tree: only the server is accounted."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence

from memoir.bench.launch import Running


class Client:
    """Runs beside a server. wait() returns what it printed; a client that fails stops its server."""

    def __init__(self, command: Sequence[str], server: Running) -> None:
        self._server = server
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait(self) -> str:
        try:
            said, _ = self._process.communicate()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        if self._process.returncode != 0:
            self._server.stop()
        return said


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
