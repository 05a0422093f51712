# SPDX-License-Identifier: Apache-2.0
"""Programs that are sampled: where they keep what they sample, and how that becomes a profile.

Each sampled process maps a file, <folder>/<pid>: a page that says what is asked of it, then its samples
(src/memoir/process/control/control_page.h). Nothing in it is a file format: the program and the reader are of one memoir.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from memoir._core import Error, LifetimeProfile
from memoir.base.files import read_beside
from memoir.base.threads import start_without_signals
from memoir.lifetimes import Lifetimes
from memoir.record import native

CONTROL, EVERY = "MEMOIR_CONTROL", "MEMOIR_SAMPLE_EVERY"
DEFAULT_EVERY = 512 * 1024  # bytes

MAGIC, VERSION = 0x6F7274636F6D656D, 1
IMAGE_BEGIN = 64 * 1024
PAGE_NAME = re.compile(r"[0-9]{1,10}(\.[0-9]+)?")  # the process, and the number of its program
_LEAST_FILE = 1 << 30  # bytes that a process must be able to write: open_control()
_HEAD = struct.Struct("<QIIIIIIIIQ1024s1024s")  # ControlPage


class ControlPage:
    """What a process says of itself in its page, read once."""

    def __init__(self, path: Path, file: int | None = None):
        """file: it is open already. Raises OSError or memoir.Error."""
        self.path = path
        head = read_beside(path, _HEAD.size) if file is None else os.pread(file, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            raise Error(f"{path}: no control page")
        fields = _HEAD.unpack(head)
        self.magic, self.version, self.process = fields[:3]
        self.asked, self.answered, self.mode, self.failed, self.ended = fields[3:8]
        self.program = fields[10].split(b"\0", 1)[0].decode(errors="replace")

    @property
    def ready(self) -> bool:
        return bool(self.magic == MAGIC and self.version == VERSION)


def is_alive(process: int) -> bool:
    """Whether it still runs: one that ended and that nobody waited for does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def limited_files(process: int | None = None) -> str:
    """Why that process (this one) can have no page, where the size of its files is limited; else ""."""
    with contextlib.suppress(OSError, ValueError):
        limits = Path(f"/proc/{process or 'self'}/limits").read_text()
        found = re.search(r"^Max file size +(\d+) ", limits, re.MULTILINE)
        if found and int(found[1]) < _LEAST_FILE:
            return "the limit on the size of files (ulimit -f) is below 1 GiB, which a page may need"
    return ""


def environment(folder: Path, every: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `base` (this process's own) with which a program, and all that it starts, is sampled."""
    result = dict(os.environ if base is None else base)
    result["LD_PRELOAD"] = ":".join(filter(None, [str(native.library()), result.get("LD_PRELOAD")]))
    for name in (native.TRACE, native.CLOCK, native.CHECKS):
        result.pop(name, None)
    result[CONTROL] = str(folder)
    result[EVERY] = str(every)
    return result


class Collector:
    """Gathers the samples of a program and of all processes that it starts, as they end, from `with` to its end.

    with Collector(every) as collector:
        subprocess.run(program, env=collector.environment)
    collector.lifetimes()
    """

    def __init__(self, every: int = DEFAULT_EVERY, base: Mapping[str, str] | None = None):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="memoir-lifetimes-", dir=memory))  # for its user alone
        self.environment = environment(self.folder, every, base)
        self.running = 0  # processes that still ran at the end
        self.unreadable: list[str] = []  # what was wrong with the samples of a process
        self._parts: list[Lifetimes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._gather, name="memoir-lifetimes", daemon=True)

    def __enter__(self) -> Collector:
        start_without_signals(self._thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._collect(all_of_them=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # a program may have put anything there

    def lifetimes(self) -> Lifetimes:
        """All processes as one profile; without contexts when none was sampled."""
        return Lifetimes.merge(self._parts)

    def _gather(self) -> None:
        while not self._stop.wait(0.25):
            self._collect(all_of_them=False)

    def _collect(self, all_of_them: bool) -> None:
        names = sorted(path for path in self.folder.iterdir() if PAGE_NAME.fullmatch(path.name))
        later = {name.name.split(".")[0] for name in names if "." in name.name}
        for path in names:
            try:
                page = ControlPage(path)
            except (OSError, Error):
                continue
            process = path.name.partition(".")[0]
            # A process that became another program left this file, and has one with a number now.
            ended = page.ended or not is_alive(int(process)) or ("." not in path.name and process in later)
            if not ended and not all_of_them:
                continue
            self.running += not ended
            if page.ready:
                self._add(path, page, ended=bool(page.ended))
            path.unlink()

    def _add(self, path: Path, page: ControlPage, *, ended: bool) -> None:
        now = 0 if ended else time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        try:
            profile = LifetimeProfile.from_image(str(path), IMAGE_BEGIN, page.program, now)
            self._parts.append(Lifetimes(profile))
            if len(self._parts) >= 32:  # programs that start many others
                self._parts = [Lifetimes.merge(self._parts)]
        except Error as error:
            self.unreadable.append(str(error))
