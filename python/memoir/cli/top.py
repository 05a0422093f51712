# SPDX-License-Identifier: Apache-2.0
"""memoir top: what the malloc of a running program holds, live."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from memoir import malloc
from memoir._core import Error
from memoir.base.files import read_regular, write_output
from memoir.base.quantities import bytes_text, printable
from memoir.cli.parts.arguments import Whole
from memoir.cli.parts.unix_socket import serve
from memoir.views.screen import Screen
from memoir.views.text_table import Table

_SHOWN = {
    "live": "bytes of live objects, rounded up to their size classes",
    "held": "taken from regions for objects",
    "resident": "with memory behind them",
    "huge": "of these, in regions of 2 MiB that have all their pages",
    "short_lived": "held for short-lived objects",
    "long_lived": "held for long-lived objects",
    "large": "live, in mappings of their own",
    "large_cached": "freed, kept ready for a second",
    "gone_in_spans": "given back between live objects",
    "returned": "given back to the system, ever",
    "allocated": "ever",
    "limit": "of the memory that the program may use",
    "limit_left": "until then, when the malloc looked last",
    "limit_returned": "given back for it, ever",
}


@click.command(name="top")
@click.argument("pid", type=Whole(1))
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print once, and exit.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON, one object per line.")
@click.option("--prometheus", is_flag=True, help="The figures in Prometheus' text format.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures to this file, again and again.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="Answer whoever connects to this Unix socket, over HTTP as Prometheus asks.",
)
def command(
    pid: int,
    every: float,
    once: bool,
    as_json: bool,
    prometheus: bool,
    output: Path | None,
    socket: Path | None,
) -> None:
    """Show who holds the memory of the running process PID, which runs on memoir's malloc.

    \b
      memoir top 4711
      memoir top 4711 --once --json
      memoir top 4711 --prometheus -o /run/metrics/server.prom
      memoir top 4711 --prometheus --socket /run/metrics/server.sock

    The figures are read from the process's memory. The process must be yours; it does no work for this. The malloc's
    background thread makes the figures; heaps below 16 MiB have none. Sites are estimated from samples, which also
    begin at 16 MiB.
    """

    def state() -> str:
        figures, sites = malloc.figures(pid), malloc.sites(pid)
        if prometheus:
            return _prometheus(pid, figures, sites)
        return json.dumps({"pid": pid, **figures, "sites": [vars(site) for site in sites]}) + "\n"

    if socket is not None:
        malloc.figures(pid)  # what cannot be read is said now
        return serve(socket, state, "text/plain; version=0.0.4" if prometheus else "application/json", once)
    if output is not None:
        _check_ours(output)
    watch = _Watch(pid, clear=not once and sys.stdout.isatty())
    while True:
        text = state() if prometheus or as_json or output is not None else ""
        if output is not None:
            write_output(output, text.encode(), force=True)
        elif text:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            watch.show(malloc.figures(pid), malloc.sites(pid))
        if once:
            return
        time.sleep(every)


def _check_ours(output: Path) -> None:
    """Of what is there, only the figures of an earlier run are written over."""
    try:
        begins = read_regular(output, 32)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Error(f"-o {output}: {error.strerror}") from None
    if begins and not begins.startswith((b"# TYPE memoir_malloc_", b'{"pid": ')):
        raise Error(
            f"-o {output}: it exists already, and holds no figures of memoir top; choose another name"
        )


def _prometheus(pid: int, figures: dict[str, int], sites: list[malloc.LiveSite]) -> str:
    counters = (
        "returned",
        "limit_returned",
        "allocated",
        "restored",
        "rounds",
        "borrowed",
        "samples",
        "long_samples",
        "mispredicted",
        "long_called_short",
    )
    lines = []
    for name, value in figures.items():
        if name.startswith("size_") or not _applies(name, figures):
            continue
        kind = "counter" if name in counters else "gauge"
        full = f"memoir_malloc_{name}" + "_total" * (kind == "counter")
        lines += [f"# TYPE {full} {kind}", f'{full}{{pid="{pid}"}} {value}']
    lines.append("# TYPE memoir_malloc_live_by_size gauge")
    for name, value in figures.items():
        if name.startswith("size_"):
            lines.append(
                f'memoir_malloc_live_by_size{{pid="{pid}",size="{name.removeprefix("size_")}"}} {value}'
            )
    for kind in ("live", "old"):
        lines.append(f"# TYPE memoir_malloc_site_{kind} gauge")
        for site in sites:
            name = _name(site).replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'memoir_malloc_site_{kind}{{pid="{pid}",site="{name}"}} {getattr(site, kind)}')
    return "\n".join(lines) + "\n"


def _applies(name: str, figures: dict[str, int]) -> bool:
    """Whether there is such a thing: a process may have no limit, or nobody has looked yet."""
    return not name.startswith("limit") or figures.get("limit", 0) != 0


def _name(site: malloc.LiveSite) -> str:
    """One line; the place keeps two calls of a function apart."""
    where = f"{_file(site.module) or 'code in no file'}+{site.offset:#x}"
    return printable(f"{site.function}, {where}" if site.function else where)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass
class _Holder:
    """Who holds memory, and how much."""

    who: str
    where: str
    live: int = 0
    old: int = 0
    samples: int = 0


def _holders(sites: Sequence[malloc.LiveSite]) -> list[_Holder]:
    """All calls in one line of a function are one; most bytes first."""
    found: dict[tuple[str, str, int], _Holder] = {}
    for site in sites:
        if site.function:
            place = f"{_file(site.file)}:{site.line}" if site.line else _file(site.file) or _file(site.module)
            key = (site.function, site.file or site.module, site.line)
            holder = found.setdefault(key, _Holder(printable(site.function), printable(place)))
        else:
            holder = found.setdefault((site.module, "", site.offset), _Holder(_name(site), ""))
        holder.live += site.live
        holder.old += site.old
        holder.samples += site.samples
    return sorted(found.values(), key=lambda holder: -holder.live)


class _Watch:
    """What a person sees, again and again: who holds the memory and what grew since the first look, then the figures."""

    def __init__(self, pid: int, clear: bool):
        self.pid = pid
        self.clear = clear
        self.begin = time.monotonic()
        self.first: dict[tuple[str, str], int] | None = None

    def show(self, figures: dict[str, int], sites: Sequence[malloc.LiveSite]) -> None:
        holders = _holders(sites)
        out = Screen.of_output()
        if self.clear:
            click.clear()
        out.sentence(self._headline(figures, holders))
        if holders:
            out.table(self._who(holders))
        rows = tuple(
            (name.replace("_", " "), bytes_text(figures[name]), what)
            for name, what in _SHOWN.items()
            if figures.get(name, 0) or (name == "limit_left" and figures.get("limit", 0))
        )
        out.table(
            Table("", ("", "", ""), rows, styles={(row, 2): "dim" for row in range(len(rows))}, words=(0, 2))
        )
        for sentence in (_lifetimes(figures), _sizes(figures)):
            if sentence:
                out.sentence(sentence)

    def _headline(self, figures: dict[str, int], holders: list[_Holder]) -> str:
        live, resident = figures.get("live", 0), figures.get("resident", 0)
        text = (
            f"{_program(self.pid)} ({self.pid}): {bytes_text(live)} live in {bytes_text(resident)} of memory."
        )
        if not holders:
            return f"{text} Nobody is known to hold it: samples begin when the heap has 16 MiB."
        most, samples = holders[0], sum(holder.samples for holder in holders)
        share = most.live / max(sum(holder.live for holder in holders), 1)
        where = f" ({most.where})" if most.where else ""
        return f"{text} {most.who}{where} holds about {100 * share:.0f} % of it, by {samples:,} samples."

    def _who(self, holders: list[_Holder]) -> Table:
        now = {(holder.who, holder.where): holder.live for holder in holders}
        grows = self.first is not None
        if self.first is None:
            self.first = now
        has_old = any(holder.old for holder in holders)
        heads = ["live"] + ["long-lived"] * has_old
        heads += [f"change in {time.monotonic() - self.begin:.0f} s"] * grows + [
            "samples",
            "asked for by",
            "",
        ]
        rows = []
        for holder in holders[:10]:
            change = holder.live - self.first.get((holder.who, holder.where), 0)
            row = [bytes_text(holder.live)] + [bytes_text(holder.old)] * has_old
            row += [("-" if change < 0 else "+") + bytes_text(abs(change)) if change else ""] * grows
            rows.append((*row, f"{holder.samples:,}", holder.who, holder.where))
        return Table("", tuple(heads), tuple(rows), words=(len(heads) - 2, len(heads) - 1))


def _program(pid: int) -> str:
    try:
        return printable(os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes()).strip())
    except OSError:  # it ended just now
        return "process"


def _lifetimes(figures: dict[str, int]) -> str:
    """What the malloc knows of lifetimes; "" before it has looked."""
    known = defaultdict(int, figures)  # another version may have other ones
    if not known["samples"]:
        return ""
    wrong = known["mispredicted"] / known["samples"]
    return (
        f"lifetimes: {'two classes' if known['two_classes'] else 'one class'}, "
        f"{known['long_contexts']:,} contexts are long-lived; of {known['samples']:,} samples "
        f"{known['long_samples']:,} were, and {100 * wrong:.1f} % were not as predicted "
        f"({known['long_called_short']:,} long-lived, {known['mispredicted'] - known['long_called_short']:,} short-lived)"
    )


def _sizes(figures: dict[str, int]) -> str:
    sizes = sorted(
        ((value, name) for name, value in figures.items() if name.startswith("size_")), reverse=True
    )
    most = [f"{name.removeprefix('size_')}: {bytes_text(value)}" for value, name in sizes[:8] if value]
    return f"live by size: {', '.join(most)}" if most else ""
