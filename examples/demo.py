#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job on real input, from end to end: record ResNet-50, plan its memory, and run it from one slab beside plain
PyTorch (and jemalloc, when it is installed). `make demo` calls it; what it writes is in out/.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out"
BATCH, SIDE = 4, 256


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def call(*words: str) -> None:
    """Runs a command as a user would, and shows it."""
    print(f"$ {shlex.join(words)}", flush=True)
    program = (
        [sys.executable, "-m", "memoir", *words[1:]] if words[0] == "memoir" else [sys.executable, *words[1:]]
    )
    subprocess.run(program, check=True, cwd=ROOT)


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


def main() -> None:
    OUT.mkdir(exist_ok=True)
    title(f"1. Record one pass of ResNet-50 (batch {BATCH}, {SIDE} x {SIDE}, random weights)")
    record()
    call("memoir", "show", "out/resnet50.trace")
    title("2. Plan its memory, with every planner beside the floor")
    call(
        "memoir",
        "plan",
        "out/resnet50.trace",
        "--planner",
        "all",
        "--deadline",
        "5",
        "-f",
        "-o",
        "out/resnet50.plan",
    )
    call("memoir", "show", "out/resnet50.plan", "-f", "-o", "out/resnet50.png")
    title("3. Run it from its slab, beside PyTorch on malloc")
    call(
        *[
            "python",
            "bench/torch_latency.py",
            "--nets",
            "resnet50",
            "--batch",
            str(BATCH),
            "--side",
            str(SIDE),
        ],
        *[
            "--threads",
            "2",
            "--variants",
            "glibc,jemalloc,memoir",
            "--replicates",
            "8",
            "--passes",
            "1",
            "--budget",
            "60",
        ],
    )
    print(f"\nThe picture of the plan (address against time, live bytes above): {OUT / 'resnet50.png'}")
    print("Next: remember a model of your own (docs/torch.md), or record a program:")
    print("  .venv/bin/memoir record -o out/mine.trace -- python my_program.py")


if __name__ == "__main__":
    main()
