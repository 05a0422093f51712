# SPDX-License-Identifier: Apache-2.0
"""Functions that sweeps run in processes of their own, which must be able to import them."""

import os
import signal
import threading
import time
from pathlib import Path

from memoir import Error


def square(number):
    time.sleep(0.01 * (number % 3))
    return number * number


def awkward(number):
    if number == 2:
        raise Error("row 2 is bad")
    if number == 3:
        raise KeyError("three")
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        os._exit(7)
    if number == 6:
        return lambda: None  # cannot be pickled
    return number


def process_id(_):
    time.sleep(0.05)
    return os.getpid()


def note(folder, number):
    """Leaves a file; the last ones leave it first and take long."""
    if number >= 3:
        Path(folder, f"began {number}").touch()
        time.sleep(600)
    Path(folder, str(number)).touch()
    return number


def interrupt_soon(folder):
    """Ctrl-C to this process once three tasks are done: a worker has its next task when its last result has arrived."""

    def wait():
        while len(list(Path(folder).glob("began *"))) < 3:
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()
