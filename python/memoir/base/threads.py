# SPDX-License-Identifier: Apache-2.0
"""Threads of memoir's own in a command that waits for signals."""

from __future__ import annotations

import signal
import threading


def start_without_signals(thread: threading.Thread) -> None:
    """Starts a thread that receives no signal.

    A signal to a process reaches any thread that does not block it. A command that blocks SIGTERM and waits for it would
    die of it between two waits, if it had a thread that lets it through.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
