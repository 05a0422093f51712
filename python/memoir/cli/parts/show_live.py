# SPDX-License-Identifier: Apache-2.0
"""`memoir show --live x.trace`: the trace's page, served on the loopback address while the program still records."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

from memoir._core import Error, Only, Trace
from memoir.base.quantities import quoted
from memoir.base.work_budget import lift
from memoir.traces.files import is_trace, open_trace, read_begin

_MAGIC = b"\x89memoirT"
_EVERY = 1.0  # seconds between two looks at the file
# Bytes of a file that is read whole at each look. poll() gives what its writer says is all there, which one that allocates
# seldom says seldom; reading all costs time, which a large file has no need of: its writer says it often.
_SMALL = 2 << 20


class LivePage:
    """The page of a file that grows: made again when the file has changed, at most once a second. Thread-safe."""

    def __init__(self, path: str, only: Only = Only.kBoth):
        self._path, self._only, self._lock = path, only, threading.Lock()
        self._seen: tuple[int, int, int] | None = None  # of the file: which, bytes, changed when
        self._trace: Any = None  # a Trace
        self._follows = False  # the trace is read on by poll(), not read again
        self._looked = -_EVERY
        self._page, self._tag = b"", ""

    def get(self) -> tuple[bytes, str]:
        """(the page, its tag). Raises Error until the trace can be read."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= _EVERY:
                self._look()
                self._looked = time.monotonic()
            return self._page, self._tag

    def _look(self) -> None:
        try:
            grown = self._read()
        except Error:
            self._trace, self._seen = None, None
            if not self._page:  # a torn end is read at the next look; until then the last page stands
                raise
            return
        if not grown:
            return
        self._page = self._make()
        self._tag = f'"{hashlib.sha256(self._page).hexdigest()[:16]}"'

    def _read(self) -> bool:
        """Whether there is more, or another file, than at the last look."""
        try:
            stat = os.stat(self._path)
        except OSError as error:
            raise Error(f"{self._path}: cannot be read: {error.strerror}") from None
        before, self._seen = self._seen, (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._trace is not None and before is not None:
            if before[0] == stat.st_ino and before[1] <= stat.st_size:
                return self._read_on(stat.st_size)
            self._trace = None  # the file was replaced: read it from its start
        if self._page and before == self._seen:
            return False
        begin = read_begin(self._path)
        if not is_trace(begin):
            raise Error(f"{self._path} is not a trace: --live shows one that a program is writing")
        self._follows = begin.startswith(_MAGIC) and stat.st_size > _SMALL
        self._trace = self._open()
        return True

    def _open(self) -> Any:
        opened: Any = Trace
        return (opened.follow if self._follows else open_trace)(self._path, self._only)

    def _read_on(self, size: int) -> bool:
        trace = self._trace
        assert trace is not None
        known, was_complete = trace.event_count, trace.complete
        if self._follows:
            return bool(trace.poll() > 0 or trace.complete != was_complete)
        self._follows = size > _SMALL
        self._trace = trace = self._open()
        return bool(trace.event_count != known or trace.complete != was_complete)

    def _make(self) -> bytes:
        from memoir.views.page.of_trace import trace_page
        from memoir.views.trace_summary import summarize

        assert self._trace is not None
        name, summary = Path(self._path).name, summarize(self._trace)
        page = trace_page(name, self._trace, summary, growing=True)
        return page.render(live=True).encode()


def make_server(path: str, only: Only = Only.kBoth) -> tuple[ThreadingHTTPServer, str]:
    """A server on the loopback address, and its page's address, whose token nobody can guess. Raises Error where the
    file is not a trace."""
    page = LivePage(path, only)
    page.get()  # what is wrong with the file is told at once
    token = secrets.token_urlsafe(24)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            # Another site's name that leads here (DNS rebinding) is none of ours.
            if host not in ("127.0.0.1", "localhost") or not secrets.compare_digest(
                self.path.encode(), f"/{token}/".encode()
            ):
                self.send_error(404)
                return
            try:
                content, tag = page.get()
            except Error as error:
                self.send_error(503, explain=str(error))
                return
            if self.headers.get("If-None-Match") == tag:
                self.send_response(304)
                self.end_headers()
                return
            self.send_response(200)
            headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
            headers |= {"ETag": tag, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
            headers |= {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # a free port
    server.daemon_threads = True
    return server, f"http://127.0.0.1:{server.server_address[1]}/{token}/"


def show_live(path: str, only: Only = Only.kBoth) -> None:
    """Serves until Ctrl-C."""
    server, address = make_server(path, only)
    lift()
    try:
        click.echo(address)
        click.echo(f"open it in a browser; it follows {quoted(path)} until Ctrl-C", err=True)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        click.echo("", err=True)
    finally:
        server.server_close()
