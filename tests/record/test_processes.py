# SPDX-License-Identifier: Apache-2.0
"""What is seen of recorded processes from outside: mappings by region, names of threads, and what `memoir show` says."""

import json
import subprocess
import sys

from memoir._core import Trace

from memoir.record import processes

SMAPS = b"""55d0a0000000-55d0a0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  80 kB
Private_Dirty:        76 kB
Swap:                  4 kB
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
Rss:                  16 kB
7f0000900000-7f0000a00000 rw-p 00000000 00:00 0 
Rss:                 512 kB
VmFlags: rd wr mr
7f0001000000-7f0001010000 r-xp 00001000 08:01 77                         /usr/lib/a b.so
Rss:                  64 kB
7f0001010000-7f0001020000 rw-p 00011000 08:01 77                         /usr/lib/a b.so (deleted)
Rss:                   8 kB
7f0002000000-7f0002010000 rw-s 00000000 00:01 78                         /dev/shm/pool
Rss:                  64 kB
7f0003000000-7f0003010000 rw-s 00000000 08:01 79                         /tmp/x.trace
Rss:                  64 kB
7f0004000000-7f0004010000 rw-s 00000000 08:01 80                         /tmp/#80 (deleted)
Rss:                  32 kB
7f0005000000-7f0005010000 rw-s 00000000 08:01 81                         /home/#81
Rss:                  12 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  24 kB
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   4 kB
"""


def test_mappings_are_grouped_by_what_they_are():
    groups = processes.read_mappings(SMAPS, "/tmp/x.trace")
    resident = {key: group.resident // 1024 for key, group in groups.items()}
    assert resident == {
        (processes.HEAP, ""): 80,
        (processes.ANONYMOUS, ""): 512,
        (processes.THREAD_STACK, ""): 16,
        (processes.FILE, "/usr/lib/a b.so"): 72,
        (processes.SHARED, "/dev/shm/pool"): 64,
        (processes.RECORDER, ""): 96,
        (processes.FILE, "/home/#81"): 12,
        (processes.MAIN_STACK, ""): 24,
        (processes.OTHER, ""): 4,
    }
    heap = groups[processes.HEAP, ""]
    assert (heap.count, heap.mapped, heap.dirty, heap.swapped) == (1, 132 << 10, 76 << 10, 4 << 10)


# Keeps 64 MiB while it waits to be seen, in a thread that has a name, and then less.
PROGRAM = """
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
def work():
    libc.prctl(15, b"worker bee", 0, 0, 0)
    for _ in range(3000):
        kept = [bytearray(9000) for _ in range(3)]
    ready.set()
    time.sleep(float(sys.argv[1]))
ready = threading.Event()
kept = [b"x" * 60_000 for _ in range(1100)]
thread = threading.Thread(target=work)
thread.start()
ready.wait()
thread.join()
"""


def test_a_trace_says_why_more_is_resident_than_live(record, tmp_path):
    done = record(sys.executable, "-c", PROGRAM, "1.5", options=["--only", "malloc"])
    assert done.returncode == 0, done.stderr
    path = str(tmp_path / "x.trace")
    trace = Trace.open(path)
    assert trace.complete and trace.end["status"] == 0
    moments = [row["moment"] for row in trace.mappings]
    assert moments.count("peak") == 1 and len(moments) >= 2
    peak = next(row for row in trace.mappings if row["moment"] == "peak")
    assert peak["resident"] > 66_000_000
    assert peak["resident"] == sum(group["resident"] for group in peak["groups"])
    assert any(group["name"].endswith(".so.6") for group in peak["groups"])
    assert {"worker bee"} <= {row["name"] for row in trace.threads}
    shown = subprocess.run(
        [sys.executable, "-m", "memoir", "show", path, "--json"], capture_output=True, text=True, check=True
    )
    resident = json.loads(shown.stdout)["native"]["resident"]
    assert sum(part["bytes"] for part in resident["parts"]) == resident["resident_bytes"] == peak["resident"]
    assert {"live, as asked", "libraries and files", "the recorder itself"} <= {
        part["what"] for part in resident["parts"]
    }
