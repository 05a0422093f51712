# SPDX-License-Identifier: Apache-2.0
"""Runs the program of a verb that stays with it: the program's exit status is ours, and signals to us reach it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from memoir import Error

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KERNEL = 0x80  # SI_KERNEL: a terminal's, which sends it to the program too


def run_program(
    program: Sequence[str], environment: Mapping[str, str], began: Callable[[int], None] | None = None
) -> int:
    """Runs the program to its end. Returns its exit status, or 128 + the signal that ended it. `began` is told its pid.

    SIGTERM, SIGHUP, SIGINT, SIGUSR1 and SIGUSR2 that somebody sends to this process are sent on to the program; those of
    a terminal reach it by themselves. Raises memoir.Error when it cannot be run.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before there was a program to send them to

    def send_on(number: int) -> None:
        if process is None:
            early.append(number)
        elif process.poll() is None:
            os.kill(process.pid, number)

    waited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # While nobody waits, a signal may reach a thread that lets it through (numpy has some): it is sent on from there.
    # What is ignored stays so, for the program too.
    handlers = {
        number: signal.signal(number, lambda number, _frame: send_on(number))
        for number in _FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    # A child whose parent ignores SIGCHLD vanishes without a status.
    child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        try:
            process = subprocess.Popen(
                program, env=environment, preexec_fn=lambda: _restore(before), close_fds=False
            )
        except OSError as error:
            raise Error(f"{program[0]}: cannot be run: {error.strerror}") from None
        for number in early:
            send_on(number)
        if began is not None:
            began(process.pid)
        while (code := process.poll()) is None:
            received = signal.sigtimedwait(waited, 1)
            if received is None or received.si_signo == signal.SIGCHLD or received.si_code == _FROM_KERNEL:
                continue
            send_on(received.si_signo)
    finally:
        signal.signal(signal.SIGCHLD, child_handler)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - code if code < 0 else code


def _restore(mask: set[int] | set[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
