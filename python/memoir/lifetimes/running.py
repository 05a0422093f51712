# SPDX-License-Identifier: Apache-2.0
"""A process that runs with the recorder preloaded: what it does can be switched from outside.

with RunningProcess(pid) as process:
    profile = process.sample(seconds=300, every=512 * 1024)

The switch is a page of a file that the process maps and that only its user may write. It looks at the page as it
allocates: there is no debugger, no signal and no thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shlex
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from memoir._core import Error, LifetimeProfile
from memoir.base.files import open_beside
from memoir.lifetimes import Lifetimes
from memoir.lifetimes.sampling import IMAGE_BEGIN, ControlPage, is_alive, limited_files
from memoir.record import native

DORMANT, EVERYTHING, LIFETIMES = 0, 1, 2  # what can be asked
_ASKED, _ANSWERED, _MODE, _FAILED, _ENDED, _EVERY, _OUTPUT = 16, 20, 24, 28, 32, 40, 1072
_OUTPUT_SIZE = 1024
_PUNCH_A_HOLE = 3  # fallocate(2): FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class RunningProcess:
    """Finds the page of a process and keeps others away from it, from `with` to its end. Raises memoir.Error where there
    is no such process, or it does not have the recorder."""

    def __init__(self, process: int):
        self.process = process
        self._opened, self.page = _find_page(process)
        self._file = self._opened.fileno()
        self.path, self.program = self.page.path, self.page.program

    def __enter__(self) -> RunningProcess:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._opened.close()
            raise Error(f"process {self.process}: somebody else is attached to it") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # --- what one can ask for ---

    def sample(self, seconds: float, every: int) -> Lifetimes:
        """Samples lifetimes for that long, or until the process ends or a KeyboardInterrupt comes."""
        self._write(_EVERY, struct.pack("<Q", every))
        try:
            self._ask(LIFETIMES, seconds)
            self._wait(seconds, lambda: self._ended)
        except KeyboardInterrupt:
            pass
        finally:
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self._ask_to_stop()
        try:
            return self._read(0 if self._number(_ENDED) else now)
        finally:
            self._give_back()

    def record(self, seconds: float, output: Path) -> None:
        """Records everything into `output` for that long, or until the process ends or a KeyboardInterrupt comes."""
        name = os.fsencode(output.absolute())
        if len(name) >= _OUTPUT_SIZE - 32:
            raise Error(f"{output}: the path is too long")
        self._write(_OUTPUT, name + b"\0")
        try:
            self._ask(EVERYTHING, seconds)
            self._wait(seconds, lambda: self._ended)
        except KeyboardInterrupt:
            pass
        finally:
            self._ask_to_stop()

    # --- how ---

    # The page is read and written as a file: where the process has cut it short, a mapping would end us by SIGBUS.

    def _number(self, place: int) -> int:
        word = os.pread(self._file, 4, place)
        if len(word) < 4:
            raise Error(
                f"process {self.process}: it has cut its control page short; nothing can be asked of it"
            )
        return int.from_bytes(word, "little")

    def _write(self, place: int, content: bytes) -> None:
        os.pwrite(self._file, content, place)

    @property
    def _ended(self) -> bool:
        return bool(self._number(_ENDED)) or not is_alive(self.process)

    def _put(self, mode: int) -> int:
        # Never 0. One byte changes: the process may look at any moment, and the kernel copies byte by byte.
        before = self._number(_ASKED)
        asked = before & ~0xFF | before % 0x100 % 0xFF + 1
        self._write(_MODE, mode.to_bytes(4, "little"))
        self._write(_ASKED, asked.to_bytes(4, "little"))  # last: the process looks at this
        return asked

    def _ask(self, mode: int, seconds: float) -> None:
        asked = self._put(mode)
        if not self._wait(seconds, lambda: self._number(_ANSWERED) == asked or self._ended):
            raise Error(
                f"process {self.process}: it allocated nothing in {seconds:g} s, so it has not seen the request yet"
            )
        failed = self._number(_FAILED)
        if not self._ended and failed:
            raise Error(f"process {self.process}: {_why(failed)}")

    def _ask_to_stop(self) -> None:
        asked = self._put(DORMANT)
        # It need not answer: what waits allocates nothing, and so changes nothing either.
        self._wait(1, lambda: self._number(_ANSWERED) == asked or self._ended)

    @staticmethod
    def _wait(seconds: float, done: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(0.01, left))
        return True

    def _read(self, now: int) -> Lifetimes:
        page = f"/proc/self/fd/{self._file}"
        try:
            profile = LifetimeProfile.from_image(page, IMAGE_BEGIN, self.program, now)
        except Error as error:
            raise Error(str(error).replace(page, f"process {self.process}: its control page")) from None
        return Lifetimes(profile)

    def _give_back(self) -> None:
        """The memory of the samples. The file keeps its size: the process maps it."""
        size = os.fstat(self._file).st_size - IMAGE_BEGIN
        fallocate = ctypes.CDLL(None).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        if size > 0:
            fallocate(self._file, _PUNCH_A_HOLE, IMAGE_BEGIN, size)


def _why(failed: int) -> str:
    if failed == errno.EALREADY:
        return "it was recorded once already; each process can be recorded once, and sampled as often as you like"
    if failed == errno.EIO:
        return "it cannot write the trace: see what it says on its standard error"
    return f"it cannot do that: {os.strerror(failed)}"


def _find_page(process: int) -> tuple[BinaryIO, ControlPage]:
    """The file of the process's page, by what it maps. It is opened once, and looked at through that: the folder may be
    the process's own, which may put another file there at any moment."""
    try:
        maps = Path(f"/proc/{process}/maps").read_text(errors="surrogateescape")
    except FileNotFoundError:
        raise Error(f"there is no process {process}") from None
    except OSError as error:
        raise Error(f"process {process}: cannot be read: {error.strerror}; run memoir as its user") from None
    pages = re.findall(
        r"^[0-9a-f]+-[0-9a-f]+ rw-s 00000000 ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*/\d+(?:\.\d+)?)$",
        maps,
        re.MULTILINE,
    )
    shared = ""
    for major, minor, inode, name in pages:
        device = os.makedev(int(major, 16), int(minor, 16))
        for path in (
            Path(f"/proc/{process}/root{name}"),
            Path(name),
        ):  # its own view of the files, if it has one
            with contextlib.ExitStack() as end, contextlib.suppress(OSError, Error):
                file: BinaryIO = end.enter_context(os.fdopen(open_beside(path, os.O_RDWR), "r+b", 0))
                status, owner = os.fstat(file.fileno()), os.stat(f"/proc/{process}").st_uid
                # Some file systems say another device there; then it must be the process's user's own.
                same = status.st_ino == int(inode) and (status.st_dev == device or status.st_uid == owner)
                page = ControlPage(path, file.fileno())
                if not same or not page.ready:
                    continue
                if status.st_mode & 0o77 or os.geteuid() not in (status.st_uid, 0):
                    shared = name
                    continue
                end.pop_all()
                return file, page
    if shared:
        raise Error(f"process {process}: {shared} can be written by other users, so memoir does not trust it")
    if native.library().name in maps:
        raise Error(f"process {process}: it has the recorder, but no control page: {_why_no_page(process)}")
    raise Error(
        f"process {process}: the recorder is not preloaded, and nothing can be switched on in it. Start it so: "
        f"LD_PRELOAD={native.library()} {_command_of(process)}"
    )


def _why_no_page(process: int) -> str:
    if no_room := limited_files(process):
        return no_room
    with contextlib.suppress(OSError):
        user = os.stat(f"/proc/{process}").st_uid
        folder = Path(f"/dev/shm/memoir-{user}")
        status = folder.lstat()
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no folder" if not folder.is_dir() else ""
        if what or status.st_uid != user or status.st_mode & 0o77:
            whose = what or f"of user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
            return f"{folder} is {whose}, so the process did not trust it, and no other could be made in /dev/shm"
    return "its /dev/shm was not writable as it started, or it is of another version of memoir"


def _command_of(process: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return shlex.join(word.decode(errors="replace") for word in words)
    return "./program"
