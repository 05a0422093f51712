# SPDX-License-Identifier: Apache-2.0
"""What is said while work takes its time: nothing in the first two seconds, then a line for each result as it comes, and
on a terminal what is being done. On stderr, so that standard output is data."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click

from memoir.base.quantities import bytes_text, printable
from memoir.base.threads import start_without_signals

PATIENCE = 2.0  # seconds


class Lines:
    """Call it with a line for each result. Not thread-safe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._kept: list[str] = []

    def __call__(self, line: str) -> None:
        self._kept.append(line)
        if time.monotonic() - self._began < PATIENCE:
            return
        for one in self._kept:
            click.echo(one, err=True)
        self._kept = []


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Says on a terminal what is done and for how long, each second, and takes it back at the end."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    began = time.monotonic()

    def say() -> None:
        said = False
        while not done.wait(1.0 if said else PATIENCE):
            said = True
            sys.stderr.write(f"\r\033[Kmemoir: {printable(what)}, {time.monotonic() - began:.0f} s")
            sys.stderr.flush()
        if said:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    thread = threading.Thread(target=say, daemon=True)
    start_without_signals(thread)
    try:
        yield
    finally:
        done.set()
        thread.join()


def reading(path: str | Path) -> contextlib.AbstractContextManager[None]:
    """doing() it, with the size of the file."""
    size = ""
    with contextlib.suppress(OSError):
        size = f" ({bytes_text(Path(path).stat().st_size)})"
    return doing(f"reading {Path(path).name}{size}")
