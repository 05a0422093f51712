# SPDX-License-Identifier: Apache-2.0
"""What a worker asks of itself: memory, faults, CPU time, cycles, and whose malloc it really runs on."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from typing import Any

KIB = 1024


def memory() -> dict[str, int]:
    """Bytes resident now (anonymous, file, shared) and the peak since the last reset_peak()."""
    fields = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}
    result = {}
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            key, _, value = line.partition(":")
            if key in fields:
                result[fields[key]] = int(value.split()[0]) * KIB
    return result


def reset_peak() -> bool:
    """Makes the kernel forget the peak resident size; False where that is not allowed."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as control:
            control.write("5")
    except OSError:
        return False
    return True


def peak_anonymous() -> int:
    """Peak bytes that no file backs since reset_peak(): peak resident size less the file pages of now.

    Exact as long as the file pages (code and the mapped weights, all touched beforehand) do not change in
    number; if they grow it is a little low, never high.
    """
    now = memory()
    return now["peak"] - now["file"]


def give_back_free_memory() -> None:
    """Asks the allocator, whichever it is, to return what it holds free, so that cells start out alike.

    What a process freed while it imported its libraries would otherwise serve the passes of one allocator and
    lie idle next to those of another, and neither has to do with the passes.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallctl"):
        library.mallctl(b"arena.4096.purge", None, None, None, 0)  # 4096: MALLCTL_ARENAS_ALL
    elif hasattr(library, "mi_collect"):
        library.mi_collect(ctypes.c_bool(True))
    elif hasattr(library, "MallocExtension_ReleaseFreeMemory"):
        library.MallocExtension_ReleaseFreeMemory()
    elif hasattr(library, "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))


def usage() -> dict[str, int]:
    """Faults, CPU microseconds and context switches of the whole process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minor": used.ru_minflt,
        "major": used.ru_majflt,
        "user_us": round(used.ru_utime * 1e6),
        "system_us": round(used.ru_stime * 1e6),
        "preempted": used.ru_nivcsw,
    }


def malloc_library() -> str:
    """The file that serves malloc in this process: proof that a preload took effect."""
    address = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            first, _, last = line.split()[0].partition("-")
            if int(first, 16) <= address < int(last, 16):
                return line.split(maxsplit=5)[5].strip()
    return "unknown"


def jemalloc_settings(names: tuple[str, ...]) -> dict[str, int]:
    """opt.* of the jemalloc in this process, as it understood them (a misspelt MALLOC_CONF shows here)."""
    library = ctypes.CDLL(None)
    result = {}
    for name in names:
        value, size = ctypes.c_int64(), ctypes.c_size_t(8)
        if library.mallctl(f"opt.{name}".encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
            result[name] = value.value
    return result


def glibc_maps(size: int) -> bool | None:
    """Whether glibc's malloc takes a block of `size` straight from mmap; None when it cannot be asked."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")] + [
            (f"rest{index}", ctypes.c_size_t) for index in range(5)
        ]

    library.mallinfo2.restype = Mallinfo2
    library.malloc.restype = ctypes.c_void_p
    before = library.mallinfo2().hblks
    pointer = library.malloc(ctypes.c_size_t(size))
    mapped = library.mallinfo2().hblks > before
    library.free(ctypes.c_void_p(pointer))
    return mapped


class Cycles:
    """Cycles in user mode of this process and the threads it starts later, by perf_event_open(2).

    Open it before any thread starts (the counter is inherited by new threads only). `read()` is None where
    the machine offers no counter (most virtual machines) or perf_event_paranoid forbids it.
    """

    _SYSCALL = {"x86_64": 298, "aarch64": 241}
    _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6

    def __init__(self, kind: int = 0, event: int = 0) -> None:
        """kind 0, event 0: hardware cycles (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES)."""
        self._file: int | None = None
        number = self._SYSCALL.get(platform.machine())
        if number is None:
            return
        size = 128
        flags = self._INHERIT | self._EXCLUDE_KERNEL | self._EXCLUDE_HYPERVISOR
        attribute = struct.pack("=IIQQQQQ", kind, size, event, 0, 0, 0, flags).ljust(size, b"\0")
        library = ctypes.CDLL(None, use_errno=True)
        file = library.syscall(ctypes.c_long(number), attribute, 0, -1, ctypes.c_int(-1), ctypes.c_ulong(8))
        if file >= 0:
            self._file = file

    def read(self) -> int | None:
        if self._file is None:
            return None
        return struct.unpack("=Q", os.read(self._file, 8))[0]


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """after - before, field by field."""
    return {key: after[key] - before[key] for key in before}
