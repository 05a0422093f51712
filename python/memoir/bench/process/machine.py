# SPDX-License-Identifier: Apache-2.0
"""The machine as far as it bears on a measurement; what cannot be read is None."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Record


def describe() -> Record:
    """Processor, cores, memory, kernel and the settings that move timings. Names no host."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "kernel": f"{platform.system()} {_kernel()}",
        "c_library": " ".join(platform.libc_ver()).strip() or None,
        "huge_pages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "huge_page_defrag": _chosen("/sys/kernel/mm/transparent_hugepage/defrag"),
        "overcommit": _read("/proc/sys/vm/overcommit_memory"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "perf_event_paranoid": _read("/proc/sys/kernel/perf_event_paranoid"),
        "address_randomisation": _randomisation(),
        "load_average": round(os.getloadavg()[0], 2),
        "virtual": " hypervisor " in (_read("/proc/cpuinfo") or ""),
    }


def tool(name: str) -> Path:
    """A program or library that was built and installed with the package."""
    import memoir._core

    path = Path(memoir._core.__file__).parent / "bin" / name
    if not path.exists():
        raise Error(f"{name} is missing next to the package's compiled core: build it again (make dev)")
    return path


def counters() -> dict[str, str]:
    """Each counter that memoir knows: "all" or "user" when it is available, else the kernel's reason."""
    answer = subprocess.run(
        [tool("memoir-launch"), "--list-counters"], capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in answer.stdout.splitlines())


def memory_available() -> int:
    """Bytes that can be used without swapping: MemAvailable, or what the control group leaves."""
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":") for line in file)
    available = int(lines["MemAvailable"].split()[0]) * 1024
    limit, current = (_read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit and current and limit.isdigit():  # "max": no limit
        available = min(available, int(limit) - int(current))
    return available


def line(machine: Record) -> str:
    """One line for tables and captions."""

    def word(name: str) -> str:
        return str(machine.get(name, "?"))

    virtual = " (virtual)" if machine.get("virtual") else ""
    parts = [f"{word('processor')}, {word('cores')} cores{virtual}"]
    memory = machine.get("memory_bytes", 0) / 2**30
    parts.append(f"{memory:.0f} GiB, {word('kernel')}, {word('c_library')}")
    parts.append(f"THP {word('huge_pages')}, overcommit {word('overcommit')}")
    parts.append(f"governor {machine.get('governor') or 'not shown'}, load {word('load_average')}")
    return "; ".join(parts)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _chosen(path: str) -> str | None:
    text = _read(path)
    chosen = re.search(r"\[(\w+)\]", text) if text else None
    return chosen.group(1) if chosen else text


def _randomisation() -> str | None:
    """Whether the kernel draws addresses for each process: without it, one layout is measured again and again."""
    chosen = {"0": "off", "1": "without the heap", "2": "on"}.get(
        _read("/proc/sys/kernel/randomize_va_space") or ""
    )
    personality = _read("/proc/self/personality")
    if personality and int(personality, 16) & 0x0040000:  # ADDR_NO_RANDOMIZE, as `setarch -R` sets it
        return "off"
    return chosen


def _processor() -> str:
    found = re.search(
        r"^(?:model name|Processor|uarch)\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.MULTILINE
    )
    return found.group(1).strip() if found else platform.machine()


def _kernel() -> str:
    """Only the numbers: what follows them is often a build's or a provider's own name."""
    found = re.match(r"[0-9.]*[0-9]", platform.release())
    return found.group() if found else platform.release()
