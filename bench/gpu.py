#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: everything of tests/gpu, and memoir's pools beside PyTorch's own allocators.

    bench/gpu.py [-o docs/results/gpu.json] [--only tests,loops,calls] [--smoke]

Needs torch and memoir, no network, no pytest. Each run is a process of its own (bench/gpu_worker.py), since a process
has one allocator. Loops: a training step of a small transformer whose lengths vary, without a cap and under caps of
1.30, 1.10, 1.05 and 1.02 times the most bytes that were live under PyTorch's default. Calls: what the driver takes to map
and unmap memory, by the size of its pieces, and what an allocation costs. Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTORCH = {  # name -> PYTORCH_ALLOC_CONF
    "default": "",
    "expandable_segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}
POOLS = ["memoir", "pytorch", "expandable", "split", "binned", "rmm", "span", "direct"]
CAPS = [None, 1.30, 1.10, 1.05, 1.02]
PIECES = ["2MiB", "8MiB", "32MiB", "128MiB"]


def run(command: list[str], settings: str = "", timeout: int = 300) -> dict:
    """A process's last line of JSON, or {"error": ...}."""
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": settings, "PYTORCH_CUDA_ALLOC_CONF": settings}
    try:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=timeout, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout} s"}
    if done.returncode != 0:
        return {"error": "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])}
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tests(smoke: bool) -> list[dict]:
    spec = importlib.util.spec_from_file_location("scenarios", ROOT / "tests" / "gpu" / "scenarios.py")
    scenarios = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenarios)
    program = str(ROOT / "tests" / "gpu" / "scenarios.py")
    native = run([program, "training", "native"]).get("losses")
    results = []
    for scenario, policy in scenarios.CASES:
        if smoke and policy != "memoir":
            continue
        result = run([program, scenario, policy])
        passed = "error" not in result
        if scenario == "training" and passed:
            passed = native is not None and all(
                abs(a - b) <= 1e-3 * abs(b) for a, b in zip(result["losses"], native, strict=True)
            )
        results.append({"scenario": scenario, "policy": policy, "passed": passed, "result": result})
        say(f"{'pass' if passed else 'FAIL'}  {scenario:<14}{policy:<14}{result.get('error', '')}")
    return results


def loops(smoke: bool) -> list[dict]:
    steps = "20" if smoke else "200"
    worker = str(ROOT / "bench" / "gpu_worker.py")
    first = run([worker, "loop", "default", steps])
    if "error" in first:
        raise SystemExit(f"the loop does not run under PyTorch's own allocator:\n{first['error']}")
    peak = first["peak_live"]
    results = []
    for factor in CAPS[:2] if smoke else CAPS:
        cap = [] if factor is None else [str(int(peak * factor))]
        for name in [*PYTORCH, *(POOLS[:1] if smoke else POOLS)]:
            result = run([worker, "loop", name, steps, *cap], PYTORCH.get(name, ""))
            results.append({"allocator": name, "cap": factor, **result})
            say(loop_line(results[-1], peak))
    return results


def loop_line(one: dict, peak: int) -> str:
    head = f"{one['allocator']:<20}{'no cap' if one['cap'] is None else format(one['cap'], '.2f'):>7}  "
    if "error" in one:
        return head + "error: " + one["error"].splitlines()[-1]
    if one["out_of_memory"] is not None:
        return head + f"out of memory in step {one['steps']}"
    milliseconds = statistics.median(one["times"]) * 1e3
    reserved = one["peak_reserved"]
    ratio = "      ?" if reserved is None else f"{reserved / peak:7.3f}"
    return head + f"{milliseconds:8.2f} ms per step, reserved{ratio} x the peak live bytes"


def calls(smoke: bool) -> list[dict]:
    worker = str(ROOT / "bench" / "gpu_worker.py")
    results = []
    for piece in PIECES[:1] if smoke else PIECES:
        results.append({"what": "map and unmap 4 GiB", "piece": piece, **run([worker, "map", piece])})
        say(json.dumps(results[-1]))
    for name in [*PYTORCH, *(POOLS[:1] if smoke else POOLS)]:
        result = run([worker, "allocate", name, "2000" if smoke else "200000"], PYTORCH.get(name, ""))
        results.append({"what": "an allocation and its free", "allocator": name, **result})
        say(json.dumps(results[-1]))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="where the JSON goes; standard output otherwise")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite the output")
    parser.add_argument("--only", default="tests,loops,calls", help="parts to run (default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="a short run of each part")
    arguments = parser.parse_args()
    parts = {"tests": tests, "loops": loops, "calls": calls}
    wanted = arguments.only.split(",")
    if unknown := [part for part in wanted if part not in parts]:
        parser.error(f"--only: there is no part {unknown[0]!r} (parts: {', '.join(parts)})")
    if arguments.output is not None and arguments.output.exists() and not arguments.force:
        parser.error(f"{arguments.output} exists: choose another name, or -f to overwrite it")

    about = run([str(ROOT / "bench" / "gpu_worker.py"), "about"])
    if about.get("device") is None:
        say(f"bench/gpu.py needs an NVIDIA GPU; nothing was run: {about.get('error') or about['why']}")
        return 0
    about["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    say(json.dumps(about))
    report = {"machine": about, "smoke": arguments.smoke}
    for part in wanted:
        report[part] = parts[part](arguments.smoke)
        write(report, arguments.output)  # after each part: a run that is cut off leaves what it has
    if arguments.output is None:
        print(json.dumps(report, indent=1))
    return 1 if any(not one["passed"] for one in report.get("tests", [])) else 0


def write(report: dict, output: Path | None) -> None:
    if output is None:
        return
    with tempfile.NamedTemporaryFile("w", dir=output.parent, delete=False) as file:
        json.dump(report, file, indent=1)
    os.replace(file.name, output)


if __name__ == "__main__":
    sys.exit(main())
