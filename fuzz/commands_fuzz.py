# SPDX-License-Identifier: Apache-2.0
"""Whole commands over files of every kind, damaged at random: each ends with 0, 1 or 2, in a line where it refuses, without
control characters in what it prints, and within a budget of time and memory in proportion to the file.

python fuzz/commands_fuzz.py [--rounds N] [--seconds N] [--seed N] SEED_FOLDER

Seeds are those of all fuzzers, and traces that a generator makes, whose blocks are whole and which ask for much: deep
stacks, huge objects, far addresses. A command runs in a fork of this process, which has imported what it needs. What is
limited is the processor's time, so that a busy machine finds nothing. The input of a failure is written to ./crash-SEED-ROUND.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "tests" / "support"))

from memoir.base.work_budget import MEMORY, MEMORY_PER_BYTE, SECONDS, SECONDS_PER_BYTE  # noqa: E402
from native_trace import NativeTrace  # noqa: E402

# A command that needs more than its budget ends with a line; until it sees that it may take a little more.
SLACK, MEMORY_SLACK = 4.0, 256 << 20
HARD = 30  # seconds of the processor, and ...
HARD_MEMORY = 6 << 30  # ... bytes of addresses, at which a command is ended

TRACE = (
    ("show", "{}"), ("show", "{}", "--json"), ("show", "{}", "-o", "x.html"), ("simulate", "{}"), ("plan", "{}"),
    ("export", "{}", "--to", "folded", "-o", "x.folded"), ("export", "{}", "--to", "pprof", "-o", "x.pb"),
    ("export", "{}", "--to", "chrome", "-o", "x.json"), ("export", "{}", "--to", "perfetto", "-o", "x.pftrace"),
    ("export", "{}", "--to", "snapshot", "-o", "x.pickle"), ("oom", "{}"), ("diff", "{}", "{}"), ("symbolize", "{}"),
    ("diff", "{}", "{}", "--json"), ("diff", "{}", "{}", "-o", "x.html"), ("simulate", "{}", "-o", "x.html"),
    ("simulate", "{}", "--what-if"), ("simulate", "{}", "--from-recorded"), ("simulate", "{}", "--policy", "all"),
)  # fmt: skip
# By the fuzzer that has the seeds: what the file is called, and the commands that read it.
KINDS = {
    "trace_fuzz": ("x.trace", TRACE),
    "commands_fuzz": ("x.trace", TRACE),
    "snapshot_fuzz": ("x.pickle", (("import", "{}", "-o", "y.trace"), ("oom", "{}"), ("show", "{}"), ("simulate", "{}"))),
    "rmm_log_fuzz": ("x.csv", (("import", "{}", "-o", "y.trace"), ("show", "{}"), ("simulate", "{}"))),
    "text_trace_fuzz": ("x.txt", (("import", "{}", "-o", "y.trace"), ("show", "{}"), ("oom", "{}"))),
    "lifetimes_fuzz": ("x.lifetimes", (("show", "{}"), ("show", "{}", "-o", "x.html"), ("merge", "{}", "-o", "y.lifetimes"),
                                       ("export", "{}", "--to", "folded", "-o", "x.folded"))),
    "model_fuzz": ("x.model", (("show", "{}"), ("show", "{}", "--json"))),
    "plan_file_fuzz": ("x.plan", (("show", "{}"), ("show", "{}", "--json"))),
    "csv_problem_fuzz": ("x.csv", (("plan", "{}"), ("plan", "{}", "--planner", "stream", "-o", "y.csv"))),
    "bench_journal_fuzz": ("x.jsonl", (("bench", "--from", "{}", "--no-pictures"), ("diff", "{}", "{}"))),
}  # fmt: skip


def generated(draw: random.Random) -> bytes:
    """A trace whose blocks are whole, and which asks for much with few bytes."""
    trace = NativeTrace()
    trace.meta("command", "p" if draw.random() < 0.7 else "\x1b[2J\u202e<script>")
    count = draw.choice((3, 30, 300, 1000, 4000))
    frame = trace.python(draw.choice(("f", "\x1b]0;x\x07", "a;b", "f" * 4000)), "f.py", 1)
    kind = draw.choice(("chain", "inlined", "sizes", "ids", "threads", "ticks", "mapped", "frees", "frames"))
    if kind == "inlined":  # as many functions in one frame, and that in each stack
        kind, frame = "chain", trace.native("/x.so", 5, [("h", "h.c", 1)] * count)
    for i in range(count):
        match kind:
            case "chain":  # one frame more at each allocation; 4,096 are the most
                trace._define(0x56, i + 1, i % 4000, 1, frame)
                trace.allocate(1, 1, 0x100000 + 16 * i, 16, i + 1)
            case "sizes":
                trace.allocate(1, i + 1, 4096 + (i << 47), 1 << draw.randrange(4, 47))
            case "ids":
                trace._define(0x50, draw.randrange(1, 1 << draw.randrange(1, 31)), text=b"x")
            case "threads":
                trace.begin_thread(i * 1_000_003 % (1 << 31) + 1, 1, i, "x")
            case "ticks":
                trace.allocate(1, i << draw.randrange(40, 50), 4096 + 16 * i, 16)
            case "mapped":
                trace.map(1, i + 1, (1 << 46) * (i % 3 + 1), 1 << draw.randrange(12, 46))
            case "frees":
                trace.allocate(1, i, 0x100000, 1 << draw.randrange(4, 40))
                trace.free(1, i, 0x100000)
            case "frames":
                trace.allocate(
                    1, i, 4096 + 64 * i, 16, trace.stack(trace.native(f"/lib/x{i % 7}.so", i), frame)
                )
    trace.allocate(1, (count << 50) + 1, 4096, 16)
    return trace.bytes()


NUMBERS = (0, 1, 255, 2**15, 2**31 - 1, 2**32 - 1, 2**47, 2**63 - 1, 2**64 - 1)


def damaged(content: bytes, draw: random.Random) -> bytes:
    content = bytearray(content)
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(6):
            case 0 if at < len(content):
                content[at] ^= 1 << draw.randrange(8)
            case 1:
                del content[at : at + 1 + draw.randrange(16)]
            case 2:
                number = draw.choice(NUMBERS)
                content[at : at + 8] = (
                    struct.pack("<Q", number) if draw.random() < 0.5 else str(number).encode()
                )
            case 3:
                del content[at:]
            case 4:
                content[at:at] = content[at : at + draw.randrange(200)] * draw.randrange(1, 4)
            case 5:
                content[at:at] = draw.choice(
                    (b"\x1b[2J", b"\x00", b"\xff\xfe", b"../", b"\n", "\u202e".encode())
                )
    return bytes(content)


def run(arguments: list[str], size: int) -> str:
    """What is wrong with a command over a file of so many bytes; "" where nothing is."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (HARD, HARD + 5))
                resource.setrlimit(resource.RLIMIT_AS, (HARD_MEMORY, HARD_MEMORY))
                null = os.open(os.devnull, os.O_RDONLY)
                for number, to in ((null, 0), (said.fileno(), 1), (said.fileno(), 2)):
                    os.dup2(number, to)
                sys.argv = ["memoir", *arguments]
                from memoir import cli

                cli.main()
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code if isinstance(end.code, int) else 0)
            os._exit(99)
        _, status, used = os.wait4(child, 0)
        said.seek(0)
        text = said.read(1 << 20).decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 - OWN
    if code < 0:
        return f"ended by {signal.Signals(-code).name} after {seconds:.1f} s of the processor"
    if code not in (0, 1, 2) or "Traceback (most recent" in text:
        return f"ended with {code}\n{text[-1500:]}"
    if any(ord(letter) < 32 and letter not in "\n\t" or letter in "\x7f\u202e\x9b" for letter in text):
        return f"printed control characters: {text[:300]!r}"
    if seconds > SECONDS + SLACK + SECONDS_PER_BYTE * size:
        return f"took {seconds:.1f} s of the processor for {size:,} bytes"
    if memory > MEMORY + MEMORY_SLACK + MEMORY_PER_BYTE * size:
        return f"took {memory >> 20:,} MiB for {size:,} bytes"
    if "pass --yes to go on" in text:
        ASKED[arguments[0]] = ASKED.get(arguments[0], 0) + 1
    return ""


def prepare() -> int:
    """Imports what commands need, once for all of them. The most bytes that this process had."""
    import importlib

    from memoir import cli

    for verb in cli.VERBS:
        importlib.import_module(f"memoir.cli.{verb}")
    for name in (
        "rich.table",
        "memoir.simulation",
        "memoir.lifetimes",
        "memoir.views.page.document",
        "numpy.ma",
    ):
        importlib.import_module(name)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


OWN = 0
ASKED: dict[str, int] = {}  # verb -> how often it asked for --yes


def main() -> int:
    global OWN
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-round", type=int, default=0, help="begin with this one, to see it again")
    parser.add_argument("seeds", type=Path)
    given = parser.parse_args()
    OWN = prepare()
    by_kind = {
        kind: [
            path.read_bytes()
            for path in sorted((given.seeds.parent / kind).iterdir())
            if path.suffix != ".elf"
        ]
        for kind in KINDS
    }
    home, end = Path.cwd(), time.monotonic() + given.seconds if given.seconds else None
    rounds = given.from_round
    with tempfile.TemporaryDirectory(prefix="memoir-fuzz-") as scratch:
        while (given.rounds or end) and (not given.rounds or rounds < given.rounds):
            if end is not None and time.monotonic() >= end:
                break
            draw = random.Random(f"{given.seed}:{rounds}")
            kind = draw.choice(list(KINDS))
            name, commands = KINDS[kind]
            whole = (
                generated(draw)
                if kind == "commands_fuzz" and draw.random() < 0.8
                else draw.choice(by_kind[kind])
            )
            content = damaged(whole, draw) if draw.random() < 0.8 or kind != "commands_fuzz" else whole
            for one in Path(scratch).iterdir():
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
            os.chdir(scratch)
            Path(name).write_bytes(content)
            arguments = [word.replace("{}", name) for word in draw.choice(commands)]
            problem = run(arguments, len(content))
            os.chdir(home)
            if problem:
                input_ = f"crash-{given.seed}-{rounds}"
                Path(input_).write_bytes(content)
                print(
                    f"memoir {' '.join(arguments)}  ({kind}; the input is in ./{input_})\n{problem}",
                    flush=True,
                )
                return 1
            rounds += 1
    seeds = sum(map(len, by_kind.values()))
    print(f"{seeds} seeds, {rounds - given.from_round} mutations, no crash")
    if ASKED:
        print("asked for --yes: " + ", ".join(f"{verb} {count}" for verb, count in sorted(ASKED.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
