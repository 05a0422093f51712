# SPDX-License-Identifier: Apache-2.0
"""The machine's description for the results file: what it takes to judge the numbers, and no name."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, str | int]:
    """Processor, cores, memory, kernel, C library and the kernel's huge-page setting."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "transparent_huge_pages": _chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "governor": _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "perf_event_paranoid": _text(Path("/proc/sys/kernel/perf_event_paranoid")),
    }


def _processor() -> str:
    fields = dict(
        (key.strip(), value.strip())
        for key, _, value in (line.partition(":") for line in _text(Path("/proc/cpuinfo")).split("\n"))
    )
    return fields.get("model name") or platform.machine()


def _chosen(path: Path) -> str:
    """The bracketed word of a sysfs choice."""
    return next((word.strip("[]") for word in _text(path).split() if word.startswith("[")), "unknown")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return "unknown"
