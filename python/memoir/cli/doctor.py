# SPDX-License-Identifier: Apache-2.0
"""memoir doctor: what this machine offers, and what would make its measurements doubtful."""

from __future__ import annotations

import json
from typing import Any

import click

from memoir.bench import allocators, machine
from memoir.views import bench_tables


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")
def command(as_json: bool) -> None:
    """Allocators found, huge pages, cores, load, governor, overcommit, counters."""
    found = []
    for name in allocators.NAMES:
        library = allocators.c_library() if name == allocators.SYSTEM else allocators.find(name)
        known = allocators.KNOWN.get(name)
        found.append(
            {
                "name": name,
                "library": None if library is None else str(library),
                "version": None
                if library is None
                else allocators.version(name, None if name == allocators.SYSTEM else library),
                "package": known.package if known and library is None else None,
            }
        )
    about, counters = machine.describe(), machine.counters()
    remarks = _remarks(about, counters)
    if as_json:
        click.echo(
            json.dumps(
                {"allocators": found, "machine": about, "counters": counters, "remarks": remarks}, indent=1
            )
        )
        return
    click.echo("Allocators")
    for one in found:
        what = f"{one['version']:<27}{one['library']}" if one["library"] else f"not found; {one['package']}"
        click.echo(f"  {one['name']:<10}{what}")
    click.echo("\nMachine")
    for name, value in about.items():
        shown = "not shown" if value is None else str(value)
        if isinstance(value, bool):
            shown = "yes" if value else "no"
        if name.endswith("_bytes"):
            name, shown = name.removesuffix("_bytes"), bench_tables.quantity(value, "B")
        click.echo(f"  {name.replace('_', ' '):<22}{shown}")
    click.echo("\nCounters")
    for name, state in counters.items():
        shown = {"all": "yes", "user": "yes, without the kernel's part"}.get(state, f"no ({state})")
        click.echo(f"  {name.replace('_', ' '):<22}{shown}")
    if remarks:
        click.echo("\nBefore you measure")
        for remark in remarks:
            click.echo(f"  {remark}")
    names = ",".join(str(one["name"]) for one in found if one["library"])
    click.echo(f"\nnext: memoir bench {names} --suite", err=True)


def _remarks(about: dict[str, Any], counters: dict[str, str]) -> list[str]:
    """What makes measurements here doubtful, and what to do about it."""
    remarks = []
    cores = about["cores_allowed"]
    if about["load_average"] > 0.3 * cores:
        remarks.append(
            f"load {about['load_average']} on {cores} cores: others are at work; intervals will be wide"
        )
    if about["governor"] not in (None, "performance"):
        remarks.append(
            f"governor {about['governor']}: cpupower frequency-set -g performance steadies the clock"
        )
    if about["virtual"]:
        remarks.append("a virtual machine: neighbours may take the processor; use many replicates")
    if about["huge_pages"] == "always":
        remarks.append("huge pages always: resident bytes of sparse heaps are rounded up to 2 MiB pieces")
    if about["overcommit"] == "2":
        remarks.append("overcommit 2: allocators that reserve large ranges may be refused")
    if not any(state in ("all", "user") for name, state in counters.items() if name != "page_faults"):
        remarks.append(f"no processor counters: {counters['cycles']} (virtual machines often hide them)")
    return remarks
