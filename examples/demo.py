#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The four doors on real input: ResNet-50 recorded, planned and run from one slab; a server whose load falls; a GPU that ran
out of memory; buffers that must fit. `make demo` calls it; what it writes is in out/, and out/demo.html shows all of it.
"""

from __future__ import annotations

import html
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out"
BATCH, SIDE = 4, 256
MIB = 2**20

said: list[str] = []  # for the page


def title(door: int, text: str) -> None:
    text = f"{door}. {text}"
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() else f"== {text}", flush=True)
    said.append(f'<h2 id="door{door}">{html.escape(text)}</h2>')


def call(line: str, answer: str = "") -> str:
    """Runs a command as a user would, shows it and the lines that `answer` matches, and returns all that it printed, which
    the page has."""
    print(f"$ {line}", flush=True)
    name, *words = shlex.split(line)
    program = [sys.executable, *(["-m", "memoir"] if name == "memoir" else []), *words]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = []
    for text in process.stdout or []:
        if answer and re.search(answer, re.sub(r"\x1b\[[0-9;]*m", "", text)):
            print("  " + text.strip(), flush=True)
        lines.append(text)
    if process.wait() != 0:
        raise subprocess.CalledProcessError(process.returncode, program)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "".join(lines))
    said.append(f"<pre><b>$ {html.escape(line)}</b>\n{html.escape(plain)}</pre>")
    return plain


def link(name: str, what: str) -> None:
    said.append(f'<p><a href="{name}">{html.escape(what)}</a></p>')


def record() -> None:
    import memoir.torch
    import torch
    import torchvision

    torch.manual_seed(0)
    net = torchvision.models.resnet50(weights=None).eval()
    with torch.inference_mode():
        memoir.torch.record(
            net, torch.randn(BATCH, 3, SIDE, SIDE), path=OUT / "resnet50.trace", graph=True, force=True
        )


def failed_snapshot(path: Path) -> None:
    """What PyTorch writes of a program that keeps a quarter of each of forty segments, and then asks for 64 MiB."""
    frames = [
        {"name": "forward", "filename": "model.py", "line": 54},
        {"name": "<module>", "filename": "train.py", "line": 9},
    ]
    base, history, freed = 0x7F00_0000_0000, [], []
    for i in range(40):
        begin = base + 20 * MIB * i
        row = {"stream": 0, "time_us": 1_700_000_000_000_000 + 1000 * i, "frames": frames}
        history += [
            {"action": "segment_alloc", "addr": begin, "size": 20 * MIB, **row},
            {"action": "alloc", "addr": begin, "size": 5 * MIB, **row},
            {"action": "alloc", "addr": begin + 5 * MIB, "size": 15 * MIB, **row},
        ]
        gone = {"addr": begin + 5 * MIB, "size": 15 * MIB, **row, "time_us": 1_700_000_000_041_000}
        freed += [{"action": "free_requested", **gone}, {"action": "free_completed", **gone}]
    end = {"stream": 0, "time_us": 1_700_000_000_045_000, "frames": frames}
    history += [*freed, {"action": "oom", "size": 64 * MIB, "device_free": 10 * MIB, **end}]
    content = {
        "segments": [],
        "device_traces": [history],
        "allocator_settings": {"max_split_size": -1, "expandable_segments": False},
        "external_annotations": [],
    }
    path.write_bytes(pickle.dumps(content, protocol=4))


def is_wide(figure: str) -> bool:
    """Of '0.73 [0.70, 0.76]': whether the interval is so wide that the ratio may be another."""
    ends = [float(end) for end in re.findall(r"[\d.]+", figure)][1:]
    return len(ends) == 2 and ends[1] > 1.25 * ends[0]


def answers(latency: str, memory: str, oom: str, plan: str) -> list[tuple[str, str, str]]:
    """Of each door its question, the figure that answers it, and what the figure says, from what the commands printed."""
    doors = []

    def door(question: str, figure: str, meaning: str, *patterns: tuple[str, str]) -> None:
        """Braces are filled with the groups of each pattern's last match; a command that printed none has no figure."""
        found = [
            match
            for pattern, text in patterns
            for match in list(re.finditer(pattern, text, re.MULTILINE))[-1:]
        ]
        groups = [group for match in found for group in match.groups()]
        whole = len(found) == len(patterns)
        doors.append(
            (question, figure.format(*groups), meaning.format(*groups))
            if whole
            else (question, "see below", "")
        )

    door(
        "A PyTorch model on CPUs",
        "{0}",
        "of the time of a pass with glibc; lower is better",
        (r"^\| glibc +\| ([\d.]+(?: \[[^\]]+\])?) +\|", latency),
    )
    if doors[0][2] and is_wide(doors[0][1]):
        doors[0] = (
            *doors[0][:2],
            f"{doors[0][2]}. Other programs keep this machine busy, so this figure says little: run it again later",
        )
    door(
        "A server whose load falls",
        "{0} of {1} MiB",
        "stay in memory after nine tenths are freed, next to the system's malloc",
        *((rf"^{name} +\d+ +[\d.]+ +[\d.]+ +\d+ +(\d+)", memory) for name in ("memoir", "system")),
    )
    door(
        "A GPU out of memory",
        "{2}",
        "would have survived, as {0} of {1} settings and policies would",
        (r"(\d+) of (\d+) settings and policies would have survived", oom),
        (r"To survive this request, start the program with\n +(\S.*)$", oom),
    )
    door(
        "Buffers that must fit",
        "{0} bytes",
        "for 454 buffers, {1} above the bound, found in {2}",
        (r"^auto +([\d,]+) .* \+([\d,]+) +([\d.]+ \w+)", plan),
    )
    return doors


STYLE = """
:root { color-scheme: light dark; --ink: #14181f; --paper: #fff; --box: #f3f5f8; --line: #d5dae1; --link: #0b5cad }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --paper: #14181f; --box: #1e242d; --line: #39424e; --link: #7db7f5 }
}
body { font: 16px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em;
       color: var(--ink); background: var(--paper) }
a { color: var(--link) }
pre { overflow: auto; font-size: 13px; padding: 1em; background: var(--box); border-radius: 6px }
.doors { display: grid; grid-template-columns: repeat(auto-fit, minmax(15em, 1fr)); gap: 1em }
.doors a { display: block; padding: 1em; color: inherit; text-decoration: none; background: var(--box);
           border: 1px solid var(--line); border-radius: 6px }
.doors b { display: block; margin: .3em 0; font-size: 1.15em; color: var(--link); overflow-wrap: anywhere }
"""


def page(doors: list[tuple[str, str, str]], body: str) -> str:
    cards = "".join(
        f'<a href="#door{number}">{html.escape(question)}<b>{html.escape(figure)}</b>{html.escape(meaning)}</a>'
        for number, (question, figure, meaning) in enumerate(doors, 1)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>memoir: four doors</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>'
        "<h1>memoir: four doors</h1><p>What <code>make demo</code> measured on this machine. "
        f'Below is all that the commands printed.</p><div class="doors">{cards}</div>{body}</html>\n'
    )


def main() -> None:
    OUT.mkdir(exist_ok=True)
    title(
        1,
        f"A PyTorch model: ResNet-50 (batch {BATCH}, {SIDE} x {SIDE}), recorded, planned, run from its slab",
    )
    record()
    call("memoir show out/resnet50.trace", r"allocations of|peak:")
    call(
        "memoir plan out/resnet50.trace --planner all --deadline 3 -f -o out/resnet50.plan", r"^(auto|bump) "
    )
    call("memoir show out/resnet50.plan -f -o out/resnet50.png")
    link("resnet50.png", "the plan: address against time, live bytes above")
    latency = call(
        f"python bench/torch/torch_latency.py --nets resnet50 --batch {BATCH} --side {SIDE} --threads 2 "
        "--variants glibc,jemalloc,memoir --replicates 8 --passes 1 --budget 30",
        r"^\| (glibc|jemalloc) +\| \d|bit for bit",
    )

    title(
        2,
        "A server: filled, nine tenths freed at random, twice; under the system's malloc and under memoir's",
    )
    memory = call(
        "python bench/malloc/malloc.py --memory --allocators system,memoir --objects 150000 --cycles 2 --wait 3",
        r"^(allocator|(system|memoir) +1) ",
    )

    title(3, "A GPU that ran out of memory: why, and what would have served it")
    failed_snapshot(OUT / "failed.pickle")
    oom = call("memoir oom out/failed.pickle", r"^  (asked|held)|could have served|use_pool")
    call("memoir show out/failed.pickle -f -o out/failed.html")
    link("failed.html", "every allocation by address and time")

    title(4, "Buffers that must fit: one of minimalloc's instances at its capacity")
    plan = call(
        "memoir plan tests/data/planning/minimalloc/K.1048576.csv --capacity 1048576", r"^auto |^fits"
    )

    doors = answers(latency, memory, oom, plan)
    (OUT / "demo.html").write_text(page(doors, "".join(said)))
    print("== The four doors, here")
    for question, figure, meaning in doors:
        print(f"{question}: {figure} {meaning}")
    print(f"All that the commands printed, as a page: {OUT / 'demo.html'}")
    print("Next: docs/README.md has a guide for each door. For a program of your own:")
    print("  .venv/bin/memoir record -o out/mine.trace -- python my_program.py")


if __name__ == "__main__":
    main()
