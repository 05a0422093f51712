# SPDX-License-Identifier: Apache-2.0
"""How fast traces are simulated, and what every policy takes for recorded programs.

    python bench/pool/simulate.py -o simulate.md               a million events, and the traces that there are
    python bench/pool/simulate.py --smoke                      seconds, for the tests

One million events with everything measured, policy by policy; bytes reserved and the smallest cap that completes, as
ratios to the most bytes live (geometric mean and worst over the traces); one what-if from start to end; processor time
and memory of the command on ten million events.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from memoir.bench.statistics import geometric_mean
from memoir.simulation import what_if_policies
from memoir.traces.files import open_trace

from memoir import _core

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "gpu-traces"
KEPT = ROOT / "tests" / "data" / "gpu"  # those of them that the tests have


def training(events: int, seed: int = 1) -> bytes:
    """A loop of training steps: activations of 400 operators live until the backward pass, temporaries shortly; the
    batch's length varies from step to step."""
    chance, writer = random.Random(seed), _core.TraceWriter()
    writer.set_time(0)
    sizes = [256 * chance.randint(1, 64) << chance.randint(0, 9) for _ in range(400)]
    number = done = 0
    while done < events:
        length = chance.randint(50, 100)
        kept = []
        for backward in (False, True):
            for operator in range(400):
                size = sizes[operator if not backward else -operator - 1] * length // 100
                scratch, number = number + 1, number + 2
                writer.allocate(scratch, 1, size, 256)
                writer.allocate(number, 2, size, 256)
                writer.free(scratch)
                if backward:
                    writer.free(kept.pop())
                    writer.free(number)
                else:
                    kept.append(number)
                done += 5 if backward else 3
    writer.close()
    return writer.bytes()


def speed(events: int) -> list[str]:
    trace = _core.Trace.from_bytes(training(events))
    began = time.perf_counter()
    workload = _core.Workload(trace)
    read = time.perf_counter() - began
    rows = [
        f"{workload.operations:,} operations, at most {workload.most_live:,} objects live; made ready in {read:.2f} s.\n",
        "| policy | s | of it counting | / floor | mean ns | p50 | p99.9 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, _, _ in _core.policies():
        counted = _core.simulate(workload, name, timed=False)
        done = _core.simulate(workload, name)
        ratio = done.peak_reserved / workload.peak_live
        times = done.times
        rows.append(
            f"| {name} | {done.seconds:.2f} | {counted.seconds:.2f} | {ratio:.4f} | {times.mean:.0f} | {times.p50:.0f} | "
            f"{times.p99_9:.0f} |"
        )
    return rows


def large(events: int) -> list[str]:
    """The command on a file of so many events: all of its processor time, and the most memory that it held."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.trace"
        path.write_bytes(training(events))
        for policy in ("memoir", "pytorch"):
            command = [sys.executable, "-m", "memoir", "simulate", str(path), "--policy", policy, "--json"]
            with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
            rows.append(
                f"`memoir simulate --policy {policy}`, {events:,} events: {used.ru_utime:.1f} s + {used.ru_stime:.1f} s of the "
                f"system, {used.ru_maxrss * 1024 / 1e6:,.0f} MB."
            )
    return rows


def ratios(paths: list[Path], caps: bool) -> list[str]:
    workloads = [
        _core.Workload(trace, device)
        for trace in map(open_trace, paths)
        for device in _core.devices_of(trace)
    ]
    rows = [
        f"{len(workloads)} traces.\n",
        "| policy | reserved, geometric mean | worst | smallest cap, geometric mean | worst | device calls |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, _, _ in _core.policies():
        done = [_core.simulate(workload, name, timed=False) for workload in workloads]
        reserved = [one.peak_reserved / w.peak_live for one, w in zip(done, workloads, strict=True)]
        cells = [_mean(reserved), f"{max(reserved):.3f}"]
        if caps:
            least = [_core.find_cap(w, name).cap / w.peak_live for w in workloads]
            cells += [_mean(least), f"{max(least):.3f}"]
        else:
            cells += ["", ""]
        rows.append(f"| {name} | {' | '.join(cells)} | {sum(one.calls.all for one in done):,} |")
    return rows


def _mean(values: list[float]) -> str:
    return f"{geometric_mean(values):.3f}"


def what_if(path: Path) -> list[str]:
    """The command from start to end, as a user waits for it; the best of five."""
    command = [sys.executable, "-m", "memoir", "simulate", str(path), "--what-if", "--json"]
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
    count = len(what_if_policies(capped=False))
    return [
        f"`memoir simulate {path.name} --what-if`: {count} policies and settings in {min(seconds):.2f} s."
    ]


@click.command()
@click.option("-o", "--output", type=click.File("w"), default="-", help="The tables, as Markdown.")
@click.option("--smoke", is_flag=True, help="Few events and traces.")
def main(output, smoke: bool) -> None:
    """Prints what docs/notebook/pools/how-fast-a-simulation-is.md holds of times and ratios."""
    paths = sorted(SHARED.glob("*/*.trace")) or sorted(KEPT.glob("*.trace"))
    parts = [speed(20_000 if smoke else 1_000_000)]
    parts.append(ratios(paths[:2] if smoke else paths, caps=not smoke))
    parts.append(what_if(KEPT / "magma27_cs336.d0.trace"))
    parts.append(large(20_000 if smoke else 10_000_000))
    output.write("\n\n".join("\n".join(part) for part in parts) + "\n")


if __name__ == "__main__":
    main()
