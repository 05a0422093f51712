#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: everything of tests/gpu, and memoir's pools next to PyTorch's own allocators.

    bench/gpu.py [-o gpu.json] [--only tests,calls,loops] [--smoke]
    bench/gpu.py --without-gpu [-o ...]

The JSON is a price list for `memoir simulate --device-costs`: its "us" are microseconds of each call to the driver.

Needs torch and memoir, no network, no pytest. Each run is a process of its own (bench/gpu_worker.py), since a process
has one allocator, and each result is written when it is there. Calls: what the driver takes to map and unmap memory, by
the size of its pieces, and what an allocation costs. Loops: training steps of a small transformer whose lengths vary,
without a cap and under caps of 1.10 and 1.02 times the most bytes that were live under PyTorch's default; and with four
lengths in turn, a loop that repeats. Some eight minutes, by estimate. Without a GPU it says so and ends with 0.

--without-gpu runs PyTorch's own code on the tests' device (tests/support/fake_cuda/runtime): the same allocations of the same
loops in the same order, so that memory, device calls and caps are real; kernels compute nothing, so that times are not.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from memoir.bench.results import write_whole

from memoir import _core

ROOT = Path(__file__).resolve().parents[1]
PYTORCH = {  # name -> PYTORCH_ALLOC_CONF
    "default": "",
    "expandable_segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}
# All but those that follow a plan, which nobody has yet.
POOLS = [
    name
    for name, _, settings in _core.policies("device")
    if all(setting[0] != "plan" for setting in settings)
]
LOOPS = [("varying", None), ("varying", 1.10), ("varying", 1.02), ("repeating", None)]  # lengths, cap
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


@dataclasses.dataclass
class Scale:
    """How much is run, and on what."""

    smoke: bool
    kernels: bool  # False: the tests' own device, whose kernels compute nothing

    @property
    def steps(self) -> int:
        return 20 if self.smoke else 100

    @property
    def width(self) -> int:
        """Of the transformer. The tests' own device is host memory, and not much of it."""
        return 1024 if self.kernels else 128

    @property
    def allocators(self) -> list[str]:
        pytorchs = [name for name in PYTORCH if self.kernels or name != "cudaMallocAsync"]  # the driver's own
        return [*pytorchs, *(POOLS[:1] if self.smoke else POOLS)]

    @property
    def pools(self) -> list[str]:
        """Of allocators, without what calls the device for every tensor: its loops would take minutes."""
        return [name for name in self.allocators if name != "direct"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def scenarios_module():
    return import_file(ROOT / "tests" / "gpu" / "scenarios.py")


def import_file(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tests(scale: Scale) -> Iterator[dict]:
    scenarios = scenarios_module()
    cases = [case for case in scenarios.CASES if not scale.smoke or case[1] == "memoir"]
    native = None
    for one in scenarios.in_processes([("training", "native"), *cases]):
        if one["policy"] == "native":
            native = one.get("result", {}).get("numbers")
            continue
        passed = "error" not in one
        if one["scenario"] == "training" and passed and scale.kernels:
            passed = native is not None and scenarios.same_numbers(one["result"]["numbers"], native)
        say(f"{'pass' if passed else 'FAIL'}  {one['scenario']:<18}{one['policy']:<14}{one.get('error', '')}")
        yield {"passed": passed, **one}


def loops(scale: Scale) -> Iterator[dict]:
    worker = str(ROOT / "bench" / "gpu_worker.py")
    size = [str(scale.steps), str(scale.width)]
    first = run([worker, "loop", "default", "varying", *size])
    if "error" in first:
        raise SystemExit(f"the loop does not run under PyTorch's own allocator:\n{first['error']}")
    peak = first["peak_live"]
    for lengths, factor in LOOPS[:2] if scale.smoke else LOOPS:
        cap = [] if factor is None else [str(int(peak * factor))]
        for name in scale.pools:
            result = run([worker, "loop", name, lengths, *size, *cap], PYTORCH.get(name, ""))
            result = {"allocator": name, "lengths": lengths, "cap": factor, **result}
            say(loop_line(result, scale.kernels))
            if not scale.kernels:
                result.pop("times", None)
            yield result


def loop_line(one: dict, kernels: bool) -> str:
    cap = "no limit" if one["cap"] is None else f"{one['cap']:.2f}"
    head = f"{one['allocator']:<20}{one['lengths']:<10}{cap:>7}  "
    if "error" in one:
        return head + "error: " + one["error"].splitlines()[-1]
    if one["out_of_memory"] is not None:
        return head + f"out of memory after {one['steps']} steps"
    time = f"{statistics.median(one['times']) * 1e3:8.2f} ms per step, " if kernels else ""
    calls = one["device_calls"]
    late = calls[-1] - calls[len(calls) // 2]
    return (
        f"{head}{time}reserved {one['peak_reserved'] / one['peak_live']:.3f} x the peak live bytes, "
        f"{calls[-1]} device calls, {late} of them in the second half"
    )


def calls(scale: Scale) -> Iterator[dict]:
    worker = str(ROOT / "bench" / "gpu_worker.py")
    for piece in PIECES[:1] if scale.smoke else PIECES:
        result = {"what": "map and unmap 4 GiB", "piece": piece, **run([worker, "map", piece])}
        say(json.dumps(result))
        yield result
    for piece in PIECES[:1] if scale.smoke else PIECES:
        size = int(piece.removesuffix("MiB")) << 20
        result = {"what": "calls to the driver", "piece": piece, **run([worker, "prices", str(size)])}
        say(json.dumps(result))
        yield result
    for name in scale.allocators:
        result = run([worker, "allocate", name, "2000" if scale.smoke else "200000"], PYTORCH.get(name, ""))
        result = {"what": "an allocation and its free", "allocator": name, **result}
        say(json.dumps(result))
        yield result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="where the JSON goes; standard output otherwise")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite the output")
    parser.add_argument("--only", help="parts to run (default: tests,calls,loops)")
    parser.add_argument("--smoke", action="store_true", help="a short run of each part")
    parser.add_argument(
        "--without-gpu", action="store_true", help="on the tests' own device: memory, not times; tests,loops"
    )
    arguments = parser.parse_args()
    parts = {"tests": tests, "calls": calls, "loops": loops}
    wanted = (arguments.only or ("tests,loops" if arguments.without_gpu else "tests,calls,loops")).split(",")
    if unknown := [part for part in wanted if part not in parts]:
        parser.error(f"--only: there is no part {unknown[0]!r} (parts: {', '.join(parts)})")
    if arguments.output is not None and arguments.output.exists() and not arguments.force:
        parser.error(f"{arguments.output} exists: choose another name, or -f to overwrite it")

    if arguments.without_gpu:
        build = import_file(ROOT / "tests" / "support" / "fake_cuda" / "build_fake_cuda.py")
        folder = tempfile.TemporaryDirectory()
        os.environ.update(build.with_fake_gpu(build.build_runtime(Path(folder.name)), mebibytes=81920))
    about = run([str(ROOT / "bench" / "gpu_worker.py"), "about"])
    if about.get("device") is None:
        say(f"bench/gpu.py needs an NVIDIA GPU; nothing was run: {about.get('error') or about['why']}")
        return 0
    about["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    say(json.dumps(about))
    scale = Scale(smoke=arguments.smoke, kernels=not arguments.without_gpu)
    report = {"machine": about, "smoke": scale.smoke, "kernels": scale.kernels}
    for part in wanted:
        report[part] = []
        for result in parts[part](scale):
            report[part].append(result)
            if "us" in result and "us" not in report:  # of the smallest pieces: what memoir's pools map
                report["us"] = result["us"]
            if arguments.output is not None:  # a run that is cut off leaves what it has
                write_whole(arguments.output, json.dumps(report, indent=1))
    if arguments.output is None:
        print(json.dumps(report, indent=1))
    return 1 if any(not one["passed"] for one in report.get("tests", [])) else 0


if __name__ == "__main__":
    sys.exit(main())
