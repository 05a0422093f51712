# SPDX-License-Identifier: Apache-2.0
"""The recorder of native programs: its library, the clock that recorded programs read, and what it refuses.

import subprocess, memoir.record.native
with memoir.record.native.Clock() as clock:
    subprocess.run(["./server"], env=memoir.record.native.environment("/tmp/x.trace", clock=clock.path))
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import mmap
import os
import re
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from memoir import _core
from memoir._core import Error
from memoir.base.files import Folder, read_beside
from memoir.base.threads import start_without_signals
from memoir.record.elf import ElfFile

TRACE = "MEMOIR_RECORD_TRACE"
CLOCK = "MEMOIR_RECORD_CLOCK"
CHECKS = "MEMOIR_RECORD_CHECK_STACKS"
KEEP_ARGUMENTS = "MEMOIR_RECORD_KEEP_ARGUMENTS"  # passwords in the command line are not masked
TENSORS = "MEMOIR_RECORD_TENSORS"  # of Python programs: PyTorch's tensors are told to the recorder

MAGIC = b"\x89memoirT"

_PAGE = 4096
_PAGE_NAME = re.compile(r"[0-9]+(\.[0-9]+)?")  # of a control page: the process, and the number of its program
_CLOCK = "memoir-clock-"
_MOST_INDEX = 16 << 20  # bytes
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
    keep_arguments: bool = False,
) -> dict[str, str]:
    """The variables of `base` (this process's own) with the recorder in front of whatever is preloaded.

    trace: the file of the first process, an absolute path; children add their number to it.
    clock: a Clock's path. checks: compares every stack with a full unwind, and adds a line for each process to this file.
    keep_arguments: passwords in the command lines that the traces have are not masked.
    """
    result = dict(os.environ if base is None else base)
    result["LD_PRELOAD"] = ":".join(filter(None, [str(library()), result.get("LD_PRELOAD")]))
    result[TRACE] = os.fspath(trace)
    for name, value in ((CLOCK, clock), (CHECKS, checks), (KEEP_ARGUMENTS, "1" if keep_arguments else None)):
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
        os.ftruncate(self._file, _PAGE)
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
            self._base = struct.unpack("<QQ", os.pread(self._file, 16, 0))[1]
        return max(time.monotonic_ns() - self._base, 0) if self._base else 0  # 0: no program has begun

    def refused(self) -> tuple[int, int]:
        """How many processes could not create a trace, and an errno that says why."""
        count, why = struct.unpack("<II", os.pread(self._file, 8, 32))
        return int(count), int(why)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.value = 1
        self._thread.join()
        Path(self.path).unlink(missing_ok=True)
        os.close(self._file)


def remove_stale(folder: Path) -> int:
    """Removes what processes of this user that were killed left in `folder` (/dev/shm): clocks that nobody counts, and
    control pages of processes that are gone. Says how many. A folder of control pages that is a link, or that others may
    write to, is somebody else's."""
    removed = 0
    with contextlib.suppress(OSError), Folder(folder) as memory:
        for name in memory.names():
            if name.startswith(_CLOCK):
                removed += _remove_clock(memory, name)
    with (
        contextlib.suppress(OSError),
        Folder(folder / f"memoir-{os.geteuid()}", follow=False) as pages,
    ):
        for name in pages.names() if pages.is_private else ():
            if _PAGE_NAME.fullmatch(name) and not Path(f"/proc/{name.split('.')[0]}").exists():
                pages.remove(name)
                removed += 1
    return removed


def _remove_clock(memory: Folder, name: str) -> bool:
    status = memory.status(name)
    if status is None or status.st_uid != os.geteuid() or time.time() - status.st_mtime < 60:
        return False
    try:
        file = memory.open(name, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            memory.remove(name)
        finally:
            os.close(file)
    except OSError:  # somebody holds it, or was faster
        return False
    return True


# --- the files of a recording: x.trace, x.<pid>.trace of other processes, and x.index, which lists these ---


def index_of(trace: Path) -> Path:
    """Where the recorder of `trace` lists the traces of other processes."""
    return trace.with_name(f"{trace.name.removesuffix('.trace')}.index")


def listed(trace: Path) -> list[tuple[Path, int]]:
    """The traces that the index of `trace` lists, with their processes. Empty where there is no index.

    Others may have written it: what is no name of such a trace in the same folder is left out. Raises OSError where it is
    a link, a pipe or a device.
    """
    try:
        text = read_beside(index_of(trace), _MOST_INDEX)
    except FileNotFoundError:
        return []
    return [row for row in map(functools.partial(listed_row, trace), text.splitlines()) if row is not None]


def listed_row(trace: Path, line: bytes) -> tuple[Path, int] | None:
    """A line of the index of `trace`: the trace of another process, and its number; None for what is no such line."""
    fields = os.fsdecode(line).split("\t")
    if len(fields) != 4 or not all(field.isascii() and field.isdigit() for field in fields[1:3]):
        return None
    suffix = ".trace" if trace.name.endswith(".trace") else ""
    stem = re.escape(trace.name.removesuffix(".trace"))
    if len(fields[1]) > 10 or not re.fullmatch(rf"{stem}\.[0-9]+(\.[0-9]+)?{suffix}", fields[0]):
        return None
    return trace.with_name(fields[0]), int(fields[1])


def check_free(trace: Path, force: bool) -> None:
    """Raises memoir.Error where a recording into `trace` would meet what is there already; with `force`, only what
    remove_earlier() must not take away."""
    index = index_of(trace)
    if os.path.lexists(trace) and (not force or trace.is_dir()):
        raise Error(f"{os.path.relpath(trace)}: exists already; -f overwrites it")
    if not os.path.lexists(index):
        return
    shown = os.path.relpath(index)
    try:
        lines = read_beside(index, _MOST_INDEX).splitlines()
        ours = index.lstat().st_uid == os.geteuid() and all(listed_row(trace, line) for line in lines)
    except OSError:
        ours = False
    if not ours:
        raise Error(
            f"{shown}: is not a list of traces, and memoir would write one there: choose another name with -o"
        )
    if not force:
        raise Error(
            f"{shown}: exists already, of an earlier recording; -f overwrites it and the traces that it lists"
        )


def remove_earlier(trace: Path) -> None:
    """Takes away an earlier recording into `trace`: it, its index, and what the index lists, where that is a trace, a
    regular file and this user's own. check_free() comes first. Raises memoir.Error."""
    try:
        children = listed(trace)
        with Folder(trace.parent) as folder:
            for child, _ in children:
                if _is_own_trace(folder, child.name):
                    folder.remove(child.name)
            folder.remove(index_of(trace).name)
            folder.remove(trace.name)
    except OSError as error:
        raise Error(f"{os.path.relpath(trace)}: what is there cannot be removed: {error.strerror}") from None


def _is_own_trace(folder: Folder, name: str) -> bool:
    try:
        file = folder.open(name)
    except OSError:
        return False
    try:
        return os.fstat(file).st_uid == os.geteuid() and os.pread(file, len(MAGIC), 0) == MAGIC
    finally:
        os.close(file)


def is_recorded(trace: Path) -> bool:
    """Whether there is a trace to read: a regular file, not a link that somebody put there."""
    try:
        return stat.S_ISREG(trace.lstat().st_mode)
    except OSError:
        return False


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
    """The names that an ELF file of 64 bits exports, imports and needs; None for other files."""
    try:
        with ElfFile(path) as file:
            tables = file.tables(dynamic=True)
    except Error:
        return None
    return b"\0" + tables[0][1] if tables else None


def is_python(path: Path) -> bool:
    """Whether a program is Python, by its name or that of the interpreter that a script names."""
    if path.name.startswith("python"):
        return True
    with path.open("rb") as file:
        line = file.readline(256)
    if line[:2] != b"#!":
        return False
    return any(Path(os.fsdecode(word)).name.startswith("python") for word in line[2:].split()[:2])
