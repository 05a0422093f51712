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


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)
    said.append(f"<h2>{html.escape(text)}</h2>")


def call(line: str) -> None:
    """Runs a command as a user would, and shows it."""
    print(f"$ {line}", flush=True)
    name, *words = shlex.split(line)
    program = [sys.executable, *(["-m", "memoir"] if name == "memoir" else []), *words]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = []
    for text in process.stdout or []:
        print(text, end="", flush=True)
        lines.append(text)
    if process.wait() != 0:
        raise subprocess.CalledProcessError(process.returncode, program)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "".join(lines))
    said.append(f"<pre><b>$ {html.escape(line)}</b>\n{html.escape(plain)}</pre>")


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


def make_page() -> None:
    style = "body{font:16px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}pre{overflow:auto;font-size:13px}"
    head = f'<!doctype html><meta charset="utf-8"><title>memoir: four doors</title><style>{style}</style>'
    (OUT / "demo.html").write_text(f"{head}<h1>memoir: four doors</h1>{''.join(said)}")


def main() -> None:
    OUT.mkdir(exist_ok=True)
    title(
        f"1. A PyTorch model: ResNet-50 (batch {BATCH}, {SIDE} x {SIDE}), recorded, planned, run from its slab"
    )
    record()
    call("memoir show out/resnet50.trace")
    call("memoir plan out/resnet50.trace --planner all --deadline 3 -f -o out/resnet50.plan")
    call("memoir show out/resnet50.plan -f -o out/resnet50.png")
    link("resnet50.png", "the plan: address against time, live bytes above")
    call(
        f"python bench/torch_latency.py --nets resnet50 --batch {BATCH} --side {SIDE} --threads 2 "
        "--variants glibc,jemalloc,memoir --replicates 8 --passes 1 --budget 45"
    )

    title(
        "2. A server: filled, nine tenths freed at random, twice; under the system's malloc and under memoir's"
    )
    call("python bench/malloc.py --memory --allocators system,memoir --objects 150000 --cycles 2 --wait 3")

    title("3. A GPU that ran out of memory: why, and what would have served it")
    failed_snapshot(OUT / "failed.pickle")
    call("memoir oom out/failed.pickle")
    call("memoir show out/failed.pickle -f -o out/failed.html")
    link("failed.html", "every allocation by address and time")

    title("4. Buffers that must fit: one of minimalloc's instances at its capacity")
    call("memoir plan tests/data/planning/minimalloc/K.1048576.csv --capacity 1048576")

    make_page()
    print(f"\nAll of this as a page: {OUT / 'demo.html'}")
    print("Next: docs/README.md has a guide for each door. For a program of your own:")
    print("  .venv/bin/memoir record -o out/mine.trace -- python my_program.py")


if __name__ == "__main__":
    main()
