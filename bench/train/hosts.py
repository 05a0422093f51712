# SPDX-License-Identifier: Apache-2.0
"""Virtual machines on hosts, by the heaps that place objects by lifetime: a host can be switched off when it is empty.

    python bench/train/hosts.py                  a week of 20,000 machines, three seeds
    python bench/train/hosts.py --load bursts    most machines come within an hour each morning, and few of them stay
    python bench/train/hosts.py --smoke          seconds, for the tests

A host is a page of 2 MiB and a machine some of its 256 blocks of 8 KiB, so that `memoir simulate` says what is to be known:
bytes reserved are hosts that run. Classes of lifetimes begin at six minutes. A prediction is the 95th percentile of what the
same customer's machines of that kind lived in another week.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import click
import numpy as np
from lifetime_programs import Story

from memoir import _core

HOST = 2 << 20
SHARE = HOST // 256
HOUR = 3600 * 10**9
POLICIES = {
    "best fit": "size_classes_huge",
    "lifetimes shuffled": "llama,shortest=360,lifetimes=shuffled",
    "lifetimes predicted": "llama,shortest=360,lifetimes=[{other}]",
    "lifetimes known": "llama,shortest=360,lifetimes=true",
}


# What runs: a name, how long it typically lives, and how many blocks it may have.
BATCH, BUILD = ("batch", 0.3 * HOUR, (4, 8, 16)), ("build", 1.5 * HOUR, (8, 16))
TEST, SERVICE = ("test", 9 * HOUR, (4, 32)), ("service", 70 * HOUR, (8, 16, 64))
SHARES = {
    "day": [(BATCH, 0.60), (BUILD, 0.25), (TEST, 0.10), (SERVICE, 0.05)],
    "bursts": [(BATCH, 0.64), (BUILD, 0.32), (SERVICE, 0.04)],
}


def arrival(load: str, chance: random.Random) -> float | None:
    """An hour of the week at which a machine comes; None: draw again."""
    if load == "bursts":
        return 24 * chance.randrange(7) + 9 + abs(chance.gauss(0, 0.7))
    hour = chance.uniform(0, 7 * 24)
    by_day = 0.25 + 0.75 * max(0.0, 1 - abs(hour % 24 - 13) / 7)
    return hour if chance.random() < by_day else None


def write_week(path: Path, seed: int, machines: int, load: str = "day") -> None:
    """Batch jobs of minutes, builds of an hour, tests, services that restart in days and some that stay."""
    story = Story(path, seed)
    chance = story.random
    arrivals: list[float] = []
    while len(arrivals) < machines:
        if (hour := arrival(load, chance)) is not None:
            arrivals.append(hour)
    kinds, shares = zip(*SHARES[load], strict=True)
    for hour in sorted(arrivals):
        story.until(hour * HOUR)
        name, typical, sizes = chance.choices(kinds, shares)[0]
        customer = chance.randrange(40)
        lives = typical * (0.5 + customer % 5 / 4) * chance.lognormvariate(0, 0.5)
        story.allocate(f"{name} of {customer}", chance.choice(sizes) * SHARE, lives)
    story.until(7 * 24 * HOUR)
    story.close()


def hosts_over_time(path: Path, policy: str) -> dict[str, float]:
    """Hosts that run: on average, and in the quietest tenth of the second half; vCPU shares used on average."""
    workload = _core.Workload(_core.Trace.open(path))
    line = _core.simulate(workload, policy, samples=20_000, timed=False).timeline
    spans = np.diff(line["time"].astype(float))
    hosts = line["reserved"][:-1] / HOST
    later = hosts[len(hosts) // 2 :]
    return {
        "mean": float(np.average(hosts, weights=spans)),
        "quiet": float(np.quantile(later, 0.1)),
        "needed": float(np.average(line["live"][:-1] / HOST, weights=spans)),
    }


def compare(machines: int, seed: int, load: str = "day") -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        week, other = Path(folder) / "week.trace", Path(folder) / "other.trace"
        write_week(week, seed, machines, load)
        write_week(other, seed + 1000, machines, load)
        return {name: hosts_over_time(week, policy.format(other=other)) for name, policy in POLICIES.items()}


@click.command(help=__doc__)
@click.option("--machines", default=20_000, show_default=True)
@click.option("--seeds", default=3, show_default=True, help="Weeks to try.")
@click.option(
    "--load", type=click.Choice(list(SHARES)), default="day", show_default=True, help="When machines come."
)
@click.option("--smoke", is_flag=True, help="One small week: does it work?")
def main(machines: int, seeds: int, load: str, smoke: bool) -> None:
    if smoke:
        machines, seeds = 3000, 1
    click.echo("| week | policy | hosts that run | in quiet hours | needed at least |\n|---|---|---|---|---|")
    for seed in range(1, seeds + 1):
        for name, found in compare(machines, seed, load).items():
            click.echo(
                f"| {seed} | {name} | {found['mean']:.1f} | {found['quiet']:.1f} | {found['needed']:.1f} |"
            )


if __name__ == "__main__":
    main()
