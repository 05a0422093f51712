# SPDX-License-Identifier: Apache-2.0
"""The recorder of native programs: its library, the clock that recorded programs read, and what it refuses.

import subprocess, memoir.record.native
with memoir.record.native.Clock() as clock:
    subprocess.run(["./server"], env=memoir.record.native.environment("/tmp/x.trace", clock=clock.path))
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from memoir import _core
from memoir._core import Error
from memoir.base.threads import start_without_signals

TRACE = "MEMOIR_RECORD_TRACE"
CLOCK = "MEMOIR_RECORD_CLOCK"
CHECKS = "MEMOIR_RECORD_CHECK_STACKS"
TENSORS = "MEMOIR_RECORD_TENSORS"  # of Python programs: PyTorch's tensors are told to the recorder

_PAGE = 4096
_CLOCK = "memoir-clock-"
_SANITIZERS = {
    b"__asan_init": "AddressSanitizer",
    b"libasan.so": "AddressSanitizer",
    b"__hwasan_init": "HWAddressSanitizer",
    b"__tsan_init": "ThreadSanitizer",
    b"libtsan.so": "ThreadSanitizer",
    b"__msan_init": "MemorySanitizer",
}


def library() -> Path:
    """libmemoir_record.so, to be preloaded. Raises memoir.Error when it was not built."""
    path = Path(_core.__file__).parent / "bin" / "libmemoir_record.so"
    if not path.exists():
        raise Error(
            f"{path.name} is missing next to the package's compiled core: native programs are recorded only on "
            "x86-64, and the package must be built (make dev)"
        )
    if any(letter in str(path) for letter in ": "):
        raise Error(f"{path} has a space or a colon in it, which LD_PRELOAD cannot name")
    return path


def environment(
    trace: str | os.PathLike[str],
    clock: str | None = None,
    checks: str | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of `base` (this process's own) with the recorder in front of whatever is preloaded.

    trace: the file of the first process, an absolute path; children add their number to it.
    clock: a Clock's path. checks: compares every stack with a full unwind, and adds a line for each process to this file.
    """
    result = dict(os.environ if base is None else base)
    result["LD_PRELOAD"] = ":".join(filter(None, [str(library()), result.get("LD_PRELOAD")]))
    result[TRACE] = os.fspath(trace)
    for name, value in ((CLOCK, clock), (CHECKS, checks)):
        result.pop(name, None)
        if value is not None:
            result[name] = value
    return result


class Clock:
    """Counts milliseconds in a page that recorded programs map, from `with` to its end."""

    def __init__(self) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        remove_stale(Path(folder or tempfile.gettempdir()))
        self._file, self.path = tempfile.mkstemp(prefix=_CLOCK, dir=folder)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # until this process ends: what nobody holds is stale
        os.truncate(self._file, _PAGE)
        count = ctypes.CDLL(str(library()), mode=os.RTLD_LOCAL).memoir_record_count
        self._base = 0  # CLOCK_MONOTONIC at tick 0
        self._stop = ctypes.c_int(0)
        self._started = ctypes.c_int(0)
        arguments = (os.fsencode(self.path), ctypes.byref(self._stop), ctypes.byref(self._started))
        self._thread = threading.Thread(target=count, args=arguments, name="memoir-clock", daemon=True)

    def __enter__(self) -> Clock:
        start_without_signals(self._thread)
        while self._thread.is_alive() and not self._started.value:
            time.sleep(0.001)
        return self

    def now(self) -> int:
        """Nanoseconds since tick 0, as recorded programs count them; from `with` on."""
        if not self._base:
            with open(self.path, "rb") as file:
                self._base = struct.unpack("<QQ", file.read(16))[1]
        return max(time.monotonic_ns() - self._base, 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.value = 1
        self._thread.join()
        Path(self.path).unlink(missing_ok=True)
        os.close(self._file)


def remove_stale(folder: Path) -> int:
    """Removes what processes of this user that were killed left in `folder` (/dev/shm): clocks that nobody counts, and
    control pages of processes that are gone. Says how many."""
    removed = 0
    for path in folder.glob(f"{_CLOCK}*"):
        try:
            if path.lstat().st_uid != os.geteuid() or time.time() - path.lstat().st_mtime < 60:
                continue
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
            finally:
                os.close(file)
        except OSError:  # somebody holds it, or was faster
            continue
    for path in folder.glob(f"memoir-{os.geteuid()}/*"):
        process = path.name.split(".")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def check_folder(trace: Path) -> None:
    """Raises memoir.Error where no trace could be written next to `trace`: that is known before a program starts."""
    try:
        with tempfile.TemporaryFile(dir=trace.parent) as file:
            os.posix_fallocate(file.fileno(), 0, _PAGE)
            mmap.mmap(file.fileno(), _PAGE, mmap.MAP_SHARED).close()
    except OSError as error:
        raise Error(
            f"{trace}: no trace can be written to this folder: {error.strerror}; give another one with -o"
        ) from None


def check_program(path: Path) -> None:
    """Raises memoir.Error for a program that was built with a sanitizer, whose own malloc must come first."""
    names = _dynamic_strings(path)
    for mark, sanitizer in _SANITIZERS.items():
        if names is not None and b"\0" + mark in names:
            raise Error(
                f"{path}: it is built with {sanitizer}, whose malloc cannot be recorded; build it without, or use the "
                "sanitizer's own reports"
            )


def _dynamic_strings(path: Path) -> bytes | None:
    """The names that a 64-bit little-endian ELF file exports, imports and needs; None for other files."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        offset, size, number = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HH", head, 58)
        file.seek(offset)
        table = file.read(size * number)
        if size != 64 or len(table) < size * number:
            return None
        for row in struct.iter_unpack("<IIQQQQIIQQ", table):
            if row[1] != 11:  # SHT_DYNSYM names the section of its strings
                continue
            if row[6] >= number:
                return None
            strings = struct.unpack_from("<IIQQQQIIQQ", table, row[6] * size)
            file.seek(strings[4])
            return b"\0" + file.read(min(strings[5], 1 << 26))
    return None


def is_python(path: Path) -> bool:
    """Whether a program is Python, by its name or that of the interpreter that a script names."""
    if path.name.startswith("python"):
        return True
    with path.open("rb") as file:
        line = file.readline(256)
    if line[:2] != b"#!":
        return False
    return any(Path(os.fsdecode(word)).name.startswith("python") for word in line[2:].split()[:2])
