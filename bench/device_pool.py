# SPDX-License-Identifier: Apache-2.0
"""Device pools side by side: memory, caps, device calls and time per operation on recorded traces.

make test                                        # builds build/release/bench/bench_device_pool
.venv/bin/python bench/device_pool.py            # all policies on tests/data/gpu/*.trace
.venv/bin/python bench/device_pool.py --policy memoir --policy "memoir,wait_first=false" x.trace
.venv/bin/python bench/device_pool.py --smoke    # two small traces, five passes each
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import click
from memoir.bench.statistics import geometric_mean as mean

ROOT = Path(__file__).resolve().parent.parent


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
@click.option("--smoke", is_flag=True, help="does it run? two small traces, few passes")
@click.argument("traces", nargs=-1, type=click.Path(exists=True))
def main(policies, program, as_json, smoke, traces):
    """Policies on traces: ratios to the peak of live bytes, and nanoseconds per operation."""
    traces = traces or sorted(str(path) for path in (ROOT / "tests/data/gpu").glob("*.trace"))
    if smoke:
        traces = sorted(traces, key=lambda path: Path(path).stat().st_size)[:2]
    policies = policies or ("memoir", "guided", "span")
    if not Path(program).exists():
        raise click.ClickException(f"{program} is not built: make test")
    words = [*["--smoke"] * smoke, ";".join(policies), *traces]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(done.stderr.strip())
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    click.echo(json.dumps(rows, indent=1) if as_json else table(rows))


if __name__ == "__main__":
    main()
