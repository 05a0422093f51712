# SPDX-License-Identifier: Apache-2.0
"""One text, made fresh for whoever connects to a Unix socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from memoir._core import Error

_LINGER = 5.0  # seconds that a client may keep us waiting


def serve(path: Path, text: Callable[[], str], kind: str, once: bool = False) -> None:
    """Answers each connection with text() over HTTP/1.0, whatever it asks. Only the user may connect.

    kind: the media type. once: ends after the first answer. A socket that nobody serves any more is replaced.
    Its file goes away with us, also where a signal ends the process. For the main thread.
    Raises memoir.Error when the socket cannot be made.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        _bind(listening, path)
        _remove_when_signalled(path)
        try:
            listening.listen()
            while True:
                connection, _ = listening.accept()
                with connection:
                    _answer(connection, text(), kind)
                if once:
                    return
        finally:
            path.unlink(missing_ok=True)


def _bind(listening: socket.socket, path: Path) -> None:
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as other:
            try:
                other.connect(str(path))
            except OSError:
                path.unlink(missing_ok=True)  # who served it is gone
    mask = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        raise Error(f"{path}: no socket can be made there: {error.strerror or error}") from None
    finally:
        os.umask(mask)


def _remove_when_signalled(path: Path) -> None:
    def end(number: int, _frame: object) -> None:
        path.unlink(missing_ok=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # who waits for us sees which signal it was

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it, and so do we then
            signal.signal(number, end)


def _answer(connection: socket.socket, text: str, kind: str) -> None:
    body = text.encode(errors="replace")
    head = f"HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.settimeout(_LINGER)
    try:
        connection.recv(4096)  # what it asks does not matter: there is one thing to say
        connection.sendall(head.encode() + body)
    except OSError:
        pass  # who asked went away
