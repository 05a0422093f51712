# SPDX-License-Identifier: Apache-2.0
"""`memoir show x.trace`."""

from __future__ import annotations

import json as json_format
import re
import sys
from pathlib import Path
from typing import Any

import click

from memoir._core import Trace
from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.naming import open_named
from memoir.cli.parts.patience import doing
from memoir.traces.files import has_more, open_trace
from memoir.views.native_summary import is_native, summarize_native
from memoir.views.screen import Screen
from memoir.views.trace_summary import summarize
from memoir.views.trace_text import print_answer, print_summary

PICTURES = (".html", ".png", ".svg", ".pdf")
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_@%+=:,./-]+( [A-Za-z0-9_@%+=:,./-]+)*", re.ASCII)


def show_trace(
    path: str,
    *,
    output: str | None,
    json: bool,
    force: bool,
    only: str | None = None,
    at: int | None = None,
    everything: bool = False,
    all_frames: bool = False,
) -> None:
    """Prints the answer of a trace (`json`: all of it as JSON; `everything`: all tables), of what `only` names: without, of
    its tensors where it has any. Draws its load into `output` when that is named. `at`: who held memory at that time, in
    nanoseconds, instead of at the peak. `all_frames`: the innermost frame of a stack asked, nothing is folded."""
    if output is not None:
        check_output(Path(output), PICTURES, force)
    trace, chosen = open_named(path, only)
    with doing("adding up who holds what"):
        summary = summary_of(trace, chosen, at=at, all_frames=all_frames)
    if output is not None:
        with doing("drawing"):
            picture = picture_of(path, trace, summary, Path(output).suffix[1:].lower())
        write_output(Path(output), picture, force)
        click.echo(f"wrote {quoted(output)}", err=True)
    if json:
        click.echo(json_format.dumps({"trace": str(path), **summary}, indent=2))
        return
    if "native" in summary and chosen != "tensors" and not everything and summary["allocations"]["count"]:
        print_answer(Screen.of_output(), str(path), summary)
    else:
        print_summary(Screen.of_output(), str(path), summary, ascii_only=not _shows_blocks())
    if only is None and has_more(trace, chosen):
        click.echo("\nThese are its tensors. The rest of what it allocated: --only malloc, or --only both")
    if summary["allocations"]["count"] or summary["devices"]:
        click.echo(f"\nnext: {_next(path, chosen, trace, summary, output)}")


def summary_of(
    trace: Trace, chosen: str, *, at: int | None = None, all_frames: bool = False
) -> dict[str, Any]:
    """All that is said of a trace, of a program's with its "native" part."""
    native = at is not None or is_native(trace)
    summary = {"only": chosen, **summarize(trace, operators=not native or chosen == "tensors")}
    if native:
        summary["native"] = summarize_native(trace, at=at, is_whole=chosen == "both", all_frames=all_frames)
    return summary


def _next(path: str, chosen: str, trace: Trace, summary: dict[str, Any], page: str | None) -> str:
    """The command that a reader of this answer wants now."""
    name = quoted(path)
    if any(row["out_of_memory"] for row in summary["devices"]):
        return f"memoir oom {name}"
    if "native" not in summary or chosen == "tensors":
        return f"memoir plan {name} -o {quoted(Path(path).with_suffix('.plan').name)}"
    if page is None:
        return f"memoir show {name} -o {quoted(Path(path).with_suffix('.html').name)}"
    after = quoted(Path(path).with_suffix(".after.trace").name)
    # A trace keeps no quotes, and may be a stranger's: only words that mean themselves are for a shell.
    command = trace.meta("command")
    program = command if _PLAIN_WORDS.fullmatch(command) else "PROGRAM"
    return f"memoir record -o {after} -- {program}; memoir diff {name} {after}"


def show_diff(
    before: str,
    after: str,
    *,
    output: str | None = None,
    json: bool = False,
    only: str | None = None,
    force: bool = False,
) -> None:
    """Prints what changed from one trace to another, by the names of their stacks; writes its page into `output` where that
    is named."""
    from memoir.views.trace_diff import diff_traces, print_diff

    if output is not None:
        check_output(Path(output), (".html",), force)
    first, chosen = open_named(before, only)
    second, chosen_second = open_named(after, only)
    if chosen != chosen_second:  # one has no tensors
        first, second = open_trace(before), open_trace(after)
    traces = first, second
    diff = diff_traces(*traces)
    if output is not None:
        from memoir.views.page.of_diff import trace_diff_page

        page = trace_diff_page((Path(before).name, Path(after).name), traces, diff)
        write_output(Path(output), page.render().encode(), force)
        click.echo(f"wrote {quoted(output)}", err=True)
    if json:
        click.echo(json_format.dumps({"before": before, "after": after, **diff}, indent=2))
        return
    print_diff(Screen.of_output(), (before, after), diff)


def picture_of(path: str, trace: Trace, summary: dict[str, Any], kind: str) -> bytes:
    """A page (`kind` html), or a picture of the load."""
    if kind == "html":
        from memoir.views.page.of_trace import trace_page

        return trace_page(Path(path).name, trace, summary).render().encode()

    from memoir.views.load_picture import draw_load

    title = f"{Path(path).name}  {trace.meta('model')}".strip()
    return draw_load(trace, summary, kind, title=title)


def _shows_blocks() -> bool:
    try:
        "▁█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
