# SPDX-License-Identifier: Apache-2.0
"""memoir top: what the malloc of a running program holds, live."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
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
    """Show what memoir's malloc holds in the running process PID.

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
    while True:
        text = state() if prometheus or as_json or output is not None else ""
        if output is not None:
            write_output(output, text.encode(), force=True)
        elif text:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            _print(pid, malloc.figures(pid), malloc.sites(pid), clear=not once and sys.stdout.isatty())
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
    """One line for people; the place keeps two calls of a function apart."""
    where = f"{Path(site.module).name or 'code in no file'}+{site.offset:#x}"
    return printable(f"{site.function}, {where}" if site.function else where)


def _print(pid: int, figures: dict[str, int], sites: list[malloc.LiveSite], clear: bool) -> None:
    out = Screen.of_output()
    if clear:
        click.clear()
    rows = tuple(
        (name.replace("_", " "), bytes_text(figures.get(name, 0)), what)
        for name, what in _SHOWN.items()
        if _applies(name, figures)
    )
    dim = {(number, 2): "dim" for number in range(len(rows))}
    out.line(f"process {pid}")
    out.table(Table("", ("", "", ""), rows, styles=dim, words=(0, 2)))
    figures = defaultdict(int, figures)  # another version may have other ones
    classes = "two classes" if figures["two_classes"] else "one class"
    wrong = figures["mispredicted"] / max(figures["samples"], 1)
    out.sentence(
        f"lifetimes: {classes}, {figures['long_contexts']:,} contexts are long-lived; of {figures['samples']:,} samples "
        f"{figures['long_samples']:,} were, and {100 * wrong:.1f} % were not as predicted "
        f"({figures['long_called_short']:,} long-lived, {figures['mispredicted'] - figures['long_called_short']:,} short-lived)"
    )
    sizes = sorted(
        ((value, name) for name, value in figures.items() if name.startswith("size_")), reverse=True
    )
    most = [f"{name.removeprefix('size_')}: {bytes_text(value)}" for value, name in sizes[:8] if value]
    if most:
        out.sentence("live by size: " + ", ".join(most))
    if sites:
        held_by = tuple(
            (bytes_text(site.old), bytes_text(site.live), str(site.samples), _name(site))
            for site in sites[:10]
        )
        heads = ("long-lived", "live", "samples", "asked for by")
        out.table(Table("who holds memory, by samples", heads, held_by, words=(3,)))
