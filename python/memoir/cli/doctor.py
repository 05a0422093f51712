# SPDX-License-Identifier: Apache-2.0
"""memoir doctor: what this machine offers, and what would make its measurements doubtful."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from memoir._core import Error
from memoir.base.quantities import printable
from memoir.bench.process import allocators, fetching, machine, tuning
from memoir.views import bench_tables
from memoir.views.screen import Screen
from memoir.views.text_table import Table


@click.command()
@click.option(
    "--get",
    "names",
    metavar="NAMES",
    help="Get these allocators: from packages, or built here into your cache.",
)
@click.option("--fix", is_flag=True, help="Change what makes timings unsteady, as far as your rights allow.")
@click.option("--undo", is_flag=True, help="Undo what --fix changed.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")
def command(names: str | None, fix: bool, undo: bool, as_json: bool) -> None:
    """Show the allocators found, huge pages, cores, load, governor, overcommit and counters.

    \b
    memoir doctor
    memoir doctor --get snmalloc,rpmalloc
    memoir doctor --fix
    memoir doctor --undo
    """
    if sum((names is not None, fix, undo)) > 1:
        raise Error("use only one of --get, --fix and --undo")
    if names is not None:
        _get(names.split(","))
        return
    if fix or undo:
        _tune(undo)
        return
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
    rows = [
        (str(one["name"]), str(one["version"]), str(one["library"]))
        if one["library"]
        else (str(one["name"]), "", f"not found; {one['package']}")
        for one in found
    ]
    _table("Allocators", rows)
    facts = []
    for name, value in about.items():
        shown = "not shown" if value is None else str(value)
        if isinstance(value, bool):
            shown = "yes" if value else "no"
        if name.endswith("_bytes"):
            name, shown = name.removesuffix("_bytes"), bench_tables.quantity(value, "B")
        facts.append((name.replace("_", " "), printable(shown)))
    _table("Machine", facts)
    states = {"all": "yes", "user": "yes, without the kernel's part"}
    _table(
        "Counters",
        [(name.replace("_", " "), states.get(state, f"no ({state})")) for name, state in counters.items()],
    )
    _table("Before you measure", [(remark,) for remark in remarks])
    changes = [(change.path, f"{change.before} -> {change.after}", change.why) for change in tuning.wanted()]
    _table("memoir doctor --fix would change", [tuple(map(str, change)) for change in changes])
    names = ",".join(str(one["name"]) for one in found if one["library"])
    click.echo(f"\nnext: memoir bench {names} --suite", err=True)


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Rows of words, after an empty line where something came before; nothing for no rows."""
    if rows:
        out = Screen.of_output()
        if title != "Allocators":
            out.line()
        out.table(Table(title, ("",) * len(rows[0]), tuple(rows), words=tuple(range(len(rows[0])))))


def _get(names: list[str]) -> None:
    """Each name's library, or the reason why there is none; exit code 1 when one could not be had."""
    missing = False
    for name in names:
        if name not in fetching.SOURCES:
            raise Error(f"--get {name}: use {', '.join(fetching.SOURCES)}")
    for name in names:
        here = allocators.find(name)
        if here is not None:
            click.echo(f"{name:<10}{here} (is here)")
            continue
        try:
            library = fetching.get(name, lambda line: click.echo(f"getting {line}", err=True))
            click.echo(f"{name:<10}{library}")
        except Error as error:
            missing = True
            click.echo(f"{name:<10}{printable(str(error))}")
    if missing:
        sys.exit(1)
    click.echo(f"next: memoir bench system,{','.join(names)} --suite", err=True)


def _tune(back: bool) -> None:
    changes = tuning.undo() if back else tuning.fix()
    if not changes:
        click.echo("nothing to change")
    for change in changes:
        if change.foreign:
            click.echo(
                f"{change.path}: {change.before}: left alone, somebody has changed it since --fix; "
                f"before that it was {change.after}: {change.command}"
            )
            continue
        how = "changed" if change.done else f"not allowed: {change.command}"
        click.echo(f"{change.path}: {change.before} -> {change.after} ({change.why}): {how}")
    if not back and any(change.done for change in changes):
        click.echo("next: memoir doctor --undo puts it back", err=True)
    if any(not change.done and not change.foreign for change in changes):
        sys.exit(1)


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
    if about["address_randomisation"] == "off":
        remarks.append(
            "address randomisation is off: every run has the same layout, which may favour one allocator"
        )
    if about["overcommit"] == "2":
        remarks.append("overcommit 2: allocators that reserve large ranges may be refused")
    if not any(state in ("all", "user") for name, state in counters.items() if name != "page_faults"):
        remarks.append(f"no processor counters: {counters['cycles']} (virtual machines often hide them)")
    return remarks
