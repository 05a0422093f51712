# SPDX-License-Identifier: Apache-2.0
"""The process of name_reader.py: a question a line, as JSON, and an answer a line."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from memoir._core import Error
from memoir.record import symbols
from memoir.record.name_reader import SECONDS_PER_BYTE

# Bytes for any module, and for each byte of its files.
MEMORY, MEMORY_PER_BYTE = 1 << 30, 8


def _limit(seconds: float, patience: float, size: int) -> None:
    """From here on so much time and memory as files of so many bytes may take. patience: seconds of waiting beside."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds += size * SECONDS_PER_BYTE
    signal.setitimer(signal.ITIMER_REAL, patience + 4 * seconds)
    seconds += used.ru_utime + used.ru_stime
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    memory = held + MEMORY + size * MEMORY_PER_BYTE
    for kind, amount in ((resource.RLIMIT_CPU, math.ceil(seconds)), (resource.RLIMIT_AS, memory)):
        _, most = resource.getrlimit(kind)
        wanted = int(amount) if most == resource.RLIM_INFINITY else min(int(amount), most)
        resource.setrlimit(kind, (wanted, most))


def _answer(task: dict[str, Any]) -> dict[str, Any]:
    servers, longest = task.get("servers", []), 180 * task["patience"]
    sizes = [0]

    def limit(size: int) -> None:
        sizes.append(size)
        _limit(task["seconds"], task["patience"], size)

    _limit(task["seconds"], task["patience"] + longest * len(servers), 0)
    try:
        if "names" in task:
            return {"names": [symbols.demangle(name) for name in task["names"]]}
        found, why = symbols.find_lines(
            Path(task["path"]),
            task["build_id"],
            task["offsets"],
            servers,
            task["written_by"],
            longest=longest,
            plain=task.get("plain", False),
            opened=limit,
        )
        return {"found": list(found.items()), "why": why, "size": sizes[-1]}
    except MemoryError:
        return {"ended": "took more memory than files of this size do"}
    except OSError as error:
        return {"error": f"cannot be read: {error.strerror or error}"}
    except Error as error:
        return {"error": f"cannot be read: {error}"}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer: our input ends then
    for limit in (signal.SIGALRM, signal.SIGXCPU):  # whatever we were started with
        signal.signal(limit, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM, signal.SIGXCPU))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is no answer
        for line in sys.stdin:
            begin = time.process_time()
            answer = _answer(json.loads(line))
            answers.write(json.dumps(answer | {"seconds": time.process_time() - begin}) + "\n")
            answers.flush()
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
