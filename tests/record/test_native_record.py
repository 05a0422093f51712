# SPDX-License-Identifier: Apache-2.0
"""memoir record around native programs: every event, exact stacks, whatever the program does."""

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter

import native_trace
import numpy as np
import pytest
from decode import Allocation, decode
from memoir._core import EventKind, Trace
from memoir.cli.record import _say_results

from memoir.record import native


def compared(done) -> tuple[int, int]:
    """Of --check-stacks: how many stacks were compared, and how many differ."""
    found = re.search(r"([\d,]+) stacks compared with a full unwind: ([\d,]+) different", done.stderr)
    return tuple(int(text.replace(",", "")) for text in found.groups())


def test_every_function_of_the_family(compiled, record, tmp_path):
    done = record(compiled("family.c"))
    assert done.returncode == 0, done.stderr
    trace = decode(tmp_path / "x.trace")
    live = trace.live()
    sizes = [100001, 100020, 100003, 100004, 100005, 100006, 100096, 100008, 100009, 100010, 100012, 100014]
    for line, size in zip(done.stdout.splitlines(), sizes, strict=True):
        allocation = live[int(line.split()[0], 16)]
        assert allocation.size == size and allocation.family == "malloc"
    by_size = {event.size: event for event in trace.allocations()}
    assert [by_size[size].alignment for size in (100001, 100006, 100096, 100008, 100009)] == [
        16,
        64,
        128,
        4096,
        4096,
    ]
    assert 100013 in by_size and by_size[100013].address not in {
        a.address for a in live.values() if a.size == 100013
    }
    assert sum(event.undone for event in trace.events if not isinstance(event, Allocation)) == 1
    assert any(event.moved for event in trace.allocations() if event.size == 100004)
    assert [(kind, size) for kind, _, size, _ in trace.maps][-2:] == [("map", 3 << 20), ("unmap", 3 << 20)]
    assert trace.ends == [(False, 0)] and trace.meta["pid"].isdigit()
    stack = trace.stack(by_size[100001].node)
    assert stack[0][0] == "family" and stack[-1][0] == "family"  # main, and _start


def test_operators_and_exceptions(compiled, record, tmp_path):
    done = record(compiled("operators.cpp"), options=["--check-stacks"])
    assert (done.returncode, done.stdout) == (0, "caught 1107\n"), done.stderr
    stacks, different = compared(done)
    assert stacks > 100 and different == 0
    trace = decode(tmp_path / "x.trace")
    sizes = Counter(event.size for event in trace.allocations())
    assert all(sizes[size] == 1 for size in (2001, 2002, 3000)), "one event for each new"
    assert not {2001, 2002, 3000} & {event.size for event in trace.live().values()}


@pytest.mark.parametrize(
    "what",
    ["signals", "threads", "forks", "execs", "closes", "space", "coroutines", "deep", "churn", "attributes"],
)
def test_hostile_programs(what, compiled, record, tmp_path):
    done = record(compiled("hostile.c"), what, options=["--check-stacks"])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    stacks, different = compared(done)
    assert stacks >= 200 and different == 0
    for path in tmp_path.glob("*.trace"):
        trace = decode(path)
        assert all(event.node in trace.nodes for event in trace.allocations()), "every stack is defined"
        assert trace.ends, "each process says that it ended"


def test_threads_that_die_share_few_buffers(compiled, record, tmp_path):
    assert record(compiled("hostile.c"), "threads").returncode == 0
    trace = decode(tmp_path / "x.trace")
    assert len(trace.threads) >= 400
    assert len({event.lane for event in trace.events}) <= 32
    live = trace.live().values()
    assert not [event for event in live if event.size in (50, 4321)], "late frees are recorded too"


def test_forked_children_have_traces_of_their_own(compiled, record, tmp_path):
    assert record(compiled("hostile.c"), "forks").returncode == 0
    rows = [line.split("\t") for line in (tmp_path / "x.index").read_text().splitlines()]
    assert sorted(row[3] for row in rows) == ["exec", "fork", "fork", "fork"]
    for name, pid, _, begun in rows:
        trace = decode(tmp_path / name)
        assert trace.meta["pid"] == pid and trace.meta["begun"] == begun
        if begun == "fork":
            sizes = Counter(event.size for event in trace.allocations())
            assert sum(sizes[22222 + i] for i in range(64)) == 1000
            assert trace.ends[-1][1] in (5, 6)
    parent = decode(tmp_path / "x.trace")
    assert parent.ends == [(False, 0)], "the vfork child's exec is not the parent's"
    assert sum(event.size in range(33333, 33397) for event in parent.allocations()) == 10


def test_a_program_that_becomes_another(compiled, record, tmp_path):
    assert record(compiled("hostile.c"), "execs").returncode == 0
    assert decode(tmp_path / "x.trace").ends == [(True, 0)]
    (row,) = (tmp_path / "x.index").read_text().splitlines()
    after = decode(tmp_path / row.split("\t")[0])
    assert after.ends == [(False, 0)] and len(after.allocations()) >= 1000


def test_libraries_that_come_and_go(compiled, record, tmp_path):
    first = compiled("library.c", "-shared", "-fPIC", "-DKIND=64", name="first.so")
    second = compiled("library.c", "-shared", "-fPIC", "-DKIND=1000", name="second.so")
    done = record(compiled("hostile.c"), "libraries", first, second, options=["--check-stacks"])
    assert done.returncode == 0, done.stderr
    assert compared(done)[1] == 0
    trace = decode(tmp_path / "x.trace")
    made = Counter((e.size, trace.stack(e.node)[0][0]) for e in trace.allocations() if e.size in (364, 1300))
    assert made == {(364, "first.so"): 100, (1300, "second.so"): 100}
    assert len(trace.gone) == 20


def test_libraries_that_find_the_c_librarys_malloc_first(compiled, record, tmp_path):
    compiled("../malloc/opened.c", "-shared", "-fPIC", name="opened.so")
    done = record(compiled("../malloc/conformance.c"), "deep_binding")
    assert done.returncode == 0, done.stderr
    live = Counter(block.size for block in decode(tmp_path / "x.trace").live().values())
    kept = [3**power for power in range(8, 13)]  # of each size one is made and not freed
    assert [live[size] for size in kept] == [1] * 5
    assert not any(live[2 * size] for size in kept)


def test_a_limit_on_files_costs_events_and_nothing_else(compiled, record, tmp_path):
    done = record(compiled("hostile.c"), "limits")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    trace = decode(tmp_path / "x.trace")
    assert (tmp_path / "x.trace").stat().st_size <= 1 << 20
    assert len(trace.events) + trace.dropped >= 2 * 300 * 2000
    assert trace.dropped > 0 and len(trace.events) > 100_000


def test_what_found_no_room_is_counted_once(compiled, record, tmp_path):
    done = record(compiled("hostile.c"), "lifted")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    trace = Trace.open(str(tmp_path / "x.trace"))
    lost = trace.dropped
    assert lost > 100_000 and trace.losses["no_room"] == lost, "the blocks tell of all, the header of none"
    assert f"{lost:,} events were lost: is the disk full, or the memory?" in done.stderr
    events = trace.events["kind"]
    found = int(np.isin(events, (EventKind.kAllocate, EventKind.kFree)).sum())
    # A free whose allocation was lost is counted as such; each event is somewhere, and the program has few of its own.
    assert 0 <= found + lost + trace.losses["unknown_frees"] - 1_400_000 < 200


def test_the_recorder_takes_24_mib_and_256_kib_a_thread_at_most(compiled, record):
    program = compiled("hostile.c")
    variables = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # arenas reserve 64 MiB, now and then
    plain = int(subprocess.run([program, "memory"], capture_output=True, check=True, env=variables).stdout)
    done = record(program, "memory", env=variables)
    assert done.returncode == 0, done.stderr
    taken = int(done.stdout) - plain  # KiB of addresses, the recorder's own code included
    assert 256 * 17 / 2 < taken < 24 * 1024 + 256 * 17


def test_exit_statuses_and_signals_are_the_programs(compiled, record):
    assert record("sh", "-c", "exit 7").returncode == 7
    assert record(compiled("hostile.c"), "crash", options=["-f"]).returncode == 128 + signal.SIGSEGV


def test_a_trace_that_cannot_be_compressed_stays_and_the_status_is_the_programs(record, tmp_path):
    # As on a full disk: what is compressed cannot be written, by the process that waits for the program.
    done = record("sh", "-c", "prlimit --pid $PPID --fsize=64; exit 7")
    assert done.returncode == 7 and "stays as the program left it" in done.stderr
    assert len(Trace.open(str(tmp_path / "x.trace")).events) > 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_reach_the_program(number, tmp_path):
    script = f"trap 'echo got; exit 9' {int(number)}; echo ready; while :; do sleep 0.05; done"
    command = [
        sys.executable,
        "-m",
        "memoir",
        "record",
        "-o",
        str(tmp_path / "x.trace"),
        "--",
        "sh",
        "-c",
        script,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            number, signal.SIG_DFL
        ),  # nohup ignores one, and a shell cannot trap it then
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=100)[0] == "got\n"
        assert process.wait() == 9
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_signal_while_the_program_starts_reaches_it():
    """It may come on a thread that lets it through, when the program runs and nobody knows its number yet."""
    inner = """
import os, signal, subprocess, sys

class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

subprocess.Popen = Interrupted
from memoir.cli.parts.program import run_program
sys.exit(run_program(["sleep", "60"], os.environ))
"""
    done = subprocess.run([sys.executable, "-c", inner], timeout=100)
    assert done.returncode == 128 + signal.SIGUSR1


def test_no_thread_of_a_command_lets_a_signal_end_it():
    """One that did would orphan the program, whenever the command is not waiting just then."""
    inner = """
import sys, threading, time
from memoir.record import native
from memoir.cli.parts.program import run_program
from memoir.lifetimes.sampling import Collector

program = "n=0; trap 'n=$((n+1)); [ $n -lt 30 ] || exit 9' TERM; while :; do kill -TERM $PPID; done"
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()  # as numpy has some
with native.Clock(), Collector(1 << 20) as collector:
    sys.exit(run_program(["sh", "-c", program], collector.environment))
"""
    done = subprocess.run([sys.executable, "-c", inner], capture_output=True, text=True, timeout=100)
    assert done.returncode == 9, done.stderr


def test_what_cannot_be_recorded_is_refused_before_it_starts(record, tmp_path, compiled):
    source = tmp_path / "empty.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("ran"); return 0; }\n')
    for flags, words in ((["-static"], "statically linked"), (["-fsanitize=address"], "AddressSanitizer")):
        if subprocess.run(
            ["cc", str(source), "-o", str(tmp_path / "program"), *flags], capture_output=True
        ).returncode:
            continue  # not every machine has these libraries
        refused = record(tmp_path / "program")
        assert refused.returncode == 2 and words in refused.stderr and refused.stdout == ""
        assert len(refused.stderr.splitlines()) == 1
    (tmp_path / "x.trace").write_text("precious")
    refused = record("true")
    assert refused.returncode == 2 and "exists already" in refused.stderr
    assert (tmp_path / "x.trace").read_text() == "precious"
    assert record("true", options=["-f"]).returncode == 0
    refused = subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", "/proc/x.trace", "--", "true"],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1


def test_a_malloc_of_the_programs_own_is_said(tmp_path, record):
    source = tmp_path / "own.c"
    source.write_text(
        "#include <stddef.h>\n#include <sys/mman.h>\nstatic char* room; static size_t used; static int starts;\n"
        "void* malloc(size_t size) {\n"
        "  if (starts) __builtin_trap();  /* as a lock that is held would hang */\n"
        "  if (!room) { starts = 1; room = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); starts = 0; }\n"
        "  used += (size + 31) & ~15ul; return room + used - ((size + 15) & ~15ul); }\n"
        "void free(void* block) {}\nint main(void) { free(malloc(5)); return 0; }\n"
    )
    subprocess.run(["cc", "-O0", "-w", str(source), "-o", str(tmp_path / "own")], check=True)
    done = record(tmp_path / "own")
    assert done.returncode == 0 and "a malloc of its own" in done.stderr
    assert decode(tmp_path / "x.trace").meta["malloc"] == "the program's own"
    # A child's stderr is its parent's to read: only its trace says so.
    for trace in tmp_path.glob("x*.trace"):
        trace.unlink()
    done = record("sh", "-c", f"{tmp_path / 'own'}; true")
    assert done.returncode == 0 and "of its own" not in done.stderr
    metas = [decode(trace).meta for trace in tmp_path.glob("x*.trace")]
    assert [meta["malloc"] for meta in metas if "malloc" in meta] == ["the program's own"]


def test_an_address_of_malloc_in_the_program_is_none_of_its_own(tmp_path, record):
    source = tmp_path / "fixed.c"
    source.write_text(
        "#include <stdlib.h>\nvoid* (*volatile take)(size_t) = malloc;\n"
        "int main(void) { for (int i = 0; i < 100; ++i) free(take(777)); return 0; }\n"
    )
    subprocess.run(["cc", "-no-pie", "-fno-pic", str(source), "-o", str(tmp_path / "fixed")], check=True)
    done = record(tmp_path / "fixed")
    assert done.returncode == 0 and "of its own" not in done.stderr
    events = Trace.open(str(tmp_path / "x.trace")).events
    assert (events["size"][events["kind"] == 1] == 777).sum() == 100


def kill_and_count(program, folder, delay: float) -> tuple[int, int]:
    """Kills the counting program; returns pairs that it had counted, and pairs in its trace."""
    count = folder / "count"
    count.write_bytes(bytes(16))
    trace = folder / "x.trace"
    trace.unlink(missing_ok=True)
    with count.open("r+b") as file:
        process = subprocess.Popen(
            [program, "counts"],
            env=native.environment(trace),
            preexec_fn=lambda: os.dup2(file.fileno(), 3),
            close_fds=False,
        )
        time.sleep(delay)
        process.kill()
        process.wait()
    counted, _ = struct.unpack("<QQ", count.read_bytes())
    if not trace.exists():
        return counted, 0
    events = decode(trace).events
    return counted, sum(not isinstance(event, Allocation) for event in events)


def check_kills(program, folder, kills: int, seed: int) -> None:
    state = seed
    some = 0
    for _ in range(kills):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        counted, recorded = kill_and_count(program, folder, (state >> 40) / 2**24 * 0.01)
        assert recorded >= counted, "what came before the kill is in the trace"
        some += counted > 0
    assert some > 0


def test_kills_lose_nothing(compiled, tmp_path):
    check_kills(compiled("hostile.c"), tmp_path, 12, seed=1)


@pytest.mark.full
def test_a_thousand_kills_lose_nothing(compiled, tmp_path):
    check_kills(compiled("hostile.c"), tmp_path, 1000, seed=2)


def test_what_cannot_be_read_of_a_program_that_ended_is_said(tmp_path, capsys):
    made = native_trace.NativeTrace()
    made.meta("recorder", "native")
    made.allocate(1, 1, 0x1000, 100)
    made.free(1, 2, 0)  # no reader takes it
    made.allocate(1, 3, 0x2000, 100)
    data = bytearray(made.bytes(complete=False))
    for block in (at for at in range(64, len(data), 8) if data[at : at + 4] == b"mBLK"):
        data[block + 5] &= 0xFE  # the program ended before it was sealed
    path = tmp_path / "x.trace"
    path.write_bytes(data)
    _say_results(path, 0)
    said = capsys.readouterr().err
    assert "2 events in" in said and "10 B of it cannot be read and are left out" in said
    assert Trace.open(str(path)).complete
