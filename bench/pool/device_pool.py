# SPDX-License-Identifier: Apache-2.0
"""Device pools side by side: memory, caps, device calls and time per operation on recorded and generated programs.

make test                                            # builds build/release/bench/bench_device_pool
.venv/bin/python bench/pool/device_pool.py                # all policies on tests/data/gpu/*.trace
.venv/bin/python bench/pool/device_pool.py --policy memoir --policy "memoir,wait_first=false" x.trace
.venv/bin/python bench/pool/device_pool.py --generated unseen      # programs of pool_programs.h, next to PyTorch's pool
.venv/bin/python bench/pool/device_pool.py --generated tuned --quick   # the other seeds: one run and two caps each
.venv/bin/python bench/pool/device_pool.py --smoke        # two small traces, five passes each

Whoever changes the pool looks at the tuned seeds only, and reports the unseen ones.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import click
from memoir.bench.statistics import geometric_mean as mean

ROOT = Path(__file__).resolve().parents[2]
# As pool_programs.h has them.
PROGRAMS = [
    "phases",
    "survivors",
    "comb",
    "paged",
    "kvcat",
    "four_streams",
    "experts",
    "serving",
    "quantise",
    "beams",
    "lru",
    "graphs",
    "buckets",
    "tuning",
]
SEEDS = {"tuned": (1, 3, 5, 7), "unseen": (2, 4, 6, 8)}
REFERENCE = "expandable"  # whose device calls the others' are compared with


def by_program(rows) -> str:
    """A line for each program and policy: means over its seeds, and the worst of them."""
    calls = {row["trace"]: row["calls"] for row in rows if row["policy"] == REFERENCE}
    lines = [
        f"{'program':14} {'policy':24} {'reserved: mean / worst':>24} {'cap: mean / worst':>20} "
        f"{'1.02':>5} {'1.06':>5} {'calls':>7} {'of ' + REFERENCE + ': worst':>20} {'p50':>6} {'p99.9':>8} {'CPU s':>7}"
    ]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for program, policy in [(name, policy) for name in [*PROGRAMS, "all"] for policy in policies]:
        own = [
            row
            for row in rows
            if row["policy"] == policy and program in ("all", row["trace"].partition("@")[0])
        ]
        if not own:
            continue
        reserved, caps = [row["reserved"] for row in own], [row.get("cap", float("nan")) for row in own]
        ratio = max(
            (row["calls"] / max(calls[row["trace"]], 1) for row in own if row["trace"] in calls), default=0
        )
        lines.append(
            f"{program:14} {policy:24} {mean(reserved):15.4f} / {max(reserved):6.4f} {mean(caps):11.4f} / {max(caps):6.4f} "
            f"{sum(row['cap_1.02'] for row in own):2}/{len(own):2} {sum(row['cap_1.06'] for row in own):2}/{len(own):2} "
            f"{sum(row['calls'] for row in own):7} {ratio:20.2f} "
            f"{sorted(row.get('p50_ns', 0) for row in own)[len(own) // 2]:6.0f} "
            f"{max(row.get('p99.9_ns', 0) for row in own):8.0f} {sum(row['cpu'] for row in own):7.2f}"
        )
    return "\n".join(lines)


def table(rows) -> str:
    lines = [
        f"{'policy':24} {'reserved: mean / worst':>24} {'smallest cap: mean / worst':>28} {'caps of 1.01':>13} "
        f"{'calls':>6} {'as a loop: mean / worst':>24} {'calls from round 3, 4 on':>25} {'ns p50':>7} {'p99.9':>7}"
    ]
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        reserved = [row["reserved"] for row in own]
        caps = [row["cap"] for row in own]
        loops = [row["loop_reserved"] for row in own]
        third, fourth = (sum(sum(row["loop_calls"][first:]) for row in own) for first in (2, 3))
        lines.append(
            f"{policy:24} {mean(reserved):15.4f} / {max(reserved):6.4f} {mean(caps):19.4f} / {max(caps):6.4f} "
            f"{sum(row['cap_1.01'] for row in own):6} of {len(own):2} {sum(row['calls'] for row in own):7} "
            f"{mean(loops):15.4f} / {max(loops):6.4f} {third:17} / {fourth:5} "
            f"{sorted(row['p50_ns'] for row in own)[len(own) // 2]:7.1f} {max(row['p99.9_ns'] for row in own):7.1f}"
        )
    return "\n".join(lines)


@click.command()
@click.option("--policy", "policies", multiple=True, help="as memoir simulate takes it; again for more")
@click.option(
    "--program", default=str(ROOT / "build/release/bench/bench_device_pool"), help="the native part"
)
@click.option("--json", "as_json", is_flag=True, help="print every row as JSON")
@click.option("--generated", type=click.Choice(sorted(SEEDS)), help="programs from these seeds, not traces")
@click.option("--quick", is_flag=True, help="one run and two caps: no loops, no times")
@click.option("--smoke", is_flag=True, help="does it run? two small traces or programs, few passes")
@click.argument("traces", nargs=-1, type=click.Path(exists=True))
def main(policies, program, as_json, generated, quick, smoke, traces):
    """Policies on traces: ratios to the peak of live bytes, and nanoseconds per operation."""
    if generated:
        traces = [f"{name}@{seed}" for name in PROGRAMS for seed in SEEDS[generated]]
        policies = policies or ("memoir", "memoir,learn=false", REFERENCE)
        if smoke:
            traces = traces[-2:]
    traces = traces or sorted(str(path) for path in (ROOT / "tests/data/gpu").glob("*.trace"))
    if smoke and not generated:
        traces = sorted(traces, key=lambda path: Path(path).stat().st_size)[:2]
    policies = policies or ("memoir", "guided", "span")
    if not Path(program).exists():
        raise click.ClickException(f"{program} is not built: make test")
    words = [*(["--quick"] if quick else ["--smoke"] * smoke), ";".join(policies), *traces]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(done.stderr.strip())
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        click.echo(by_program(rows) if generated or quick else table(rows))


if __name__ == "__main__":
    main()
