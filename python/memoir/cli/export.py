# SPDX-License-Identifier: Apache-2.0
"""`memoir export`: a trace or a lifetime profile for the viewers that people have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import click

from memoir._core import Error, EventKind, Trace, export_trace
from memoir.base.files import finished_output, open_new, write_output
from memoir.base.kinds import wrong_kind
from memoir.base.quantities import printable, quoted
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.work_limit import limited
from memoir.traces.files import ONLY, has_more, is_trace, open_chosen, read_begin
from memoir.views.stack_export import FOLDED, folded, pprof
from memoir.views.trace_objects import parts_of

# format -> the suffixes that it may have (the first is the default's), and how it is looked at
FORMATS = {
    "snapshot": (
        (".pickle", ".pkl"),
        "python -m torch.cuda._memory_viz trace_plot {} -o {}.html, or drop it on pytorch.org/memory_viz",
    ),
    "chrome": ((".json",), "open {} in chrome://tracing or ui.perfetto.dev"),
    "perfetto": ((".pftrace", ".perfetto-trace"), "open {} in ui.perfetto.dev"),
    "pprof": ((".pb.gz", ".gz", ".pb"), "pprof -top -sample_index=inuse_space {}"),
    "folded": ((".folded", ".txt"), "drop {} on speedscope.app, or flamegraph.pl {} > flames.svg"),
}


# The same of a lifetime profile.
LIFETIME_FORMATS = {
    "pprof": ((".pb.gz", ".gz", ".pb"), "pprof -top -sample_index=deallocated_space {}"),
    "folded": ((".folded", ".txt"), "drop {} on speedscope.app, or flamegraph.pl {} > flames.svg"),
}


@click.command()
@click.argument("trace", type=click.Path(dir_okay=False))
@click.option(
    "--to",
    "target_format",
    type=click.Choice(list(FORMATS)),
    required=True,
    help="pprof's protobuf, or folded stacks for flame graphs. Of a trace also PyTorch's memory snapshot, Chrome's trace "
    "events (JSON), or Perfetto's own format.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write.  [default: TRACE with the format's suffix]",
)
@click.option(
    "--only",
    type=click.Choice(list(ONLY)),
    help="With a trace: which allocations.  [default: tensors, where it has any]",
)
@click.option(
    "--count",
    type=click.Choice(list(FOLDED)),
    help="With a trace and --to folded: the bytes that a stack held at the peak, allocated in all, never freed, or freed "
    "before its thread allocated again.  [default: peak]",
)
@click.option("--json", "as_json", is_flag=True, help="The counts as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@limited
def command(
    trace: str,
    target_format: str,
    output: str | None,
    only: str | None,
    count: str | None,
    as_json: bool,
    force: bool,
) -> None:
    """Write TRACE in the format of another tool.

    Addresses are the recorded ones. Where a trace has none, memoir's plain heap places its objects. TRACE may be a
    lifetime profile, which has formats of its own.
    """
    begin = read_begin(trace)
    is_profile = begin.startswith(b"\x89memoirL")
    if not is_profile and not is_trace(begin):
        raise wrong_kind(trace, begin, "neither a trace nor a lifetime profile")
    formats = LIFETIME_FORMATS if is_profile else FORMATS
    if target_format not in formats:
        kind = "a lifetime profile" if is_profile else "a trace"
        raise Error(f"{trace}: {kind} is exported to {' or '.join(formats)}, not to {target_format}")
    suffixes, look = formats[target_format]
    target = Path(output) if output is not None else Path(trace).with_suffix(suffixes[0])
    check_output(target, suffixes, force)
    if count is not None and (is_profile or target_format != "folded"):
        raise Error(f"{trace}: --count is for a trace's folded stacks")
    if is_profile:
        if only is not None:
            raise Error(f"{trace} is a lifetime profile: --only is for traces")
        _export_profile(trace, target_format, target, force=force, as_json=as_json, look=look)
        return
    source, chosen = open_chosen(trace, only)
    if only is None and has_more(source, chosen):
        click.echo("note: of its tensors; all of it with --only both", err=True)
    if target_format in LIFETIME_FORMATS:
        _say_incomplete(source)
        content = iter([pprof(source)]) if target_format == "pprof" else folded(source, count or "peak")
        with finished_output(target, force) as unfinished, open_new(unfinished) as file:
            if target.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                    packed.writelines(content)
            else:
                file.writelines(content)
        objects = sum(
            int((part["kind"] == int(EventKind.kAllocate)).sum()) for part in parts_of(source.events)
        )
        _say(trace, target_format, target, {"allocations": objects}, as_json=as_json, look=look)
        return
    with finished_output(target, force) as unfinished:
        report = export_trace(source, target_format, str(unfinished))
    _say_incomplete(source)
    if report.placed:
        click.echo(
            f"note: {report.placed:,} objects without recorded addresses: laid out by the plain heap",
            err=True,
        )
    if report.left_out:
        click.echo(f"note: {report.left_out:,} objects of 0 bytes left out", err=True)
    counted = "entries" if target_format == "snapshot" else "objects"
    counts = {counted: report.events, "placed": report.placed, "left_out": report.left_out}
    _say(trace, target_format, target, counts, as_json=as_json, look=look)


def _say_incomplete(source: Trace) -> None:
    if not source.complete:
        click.echo("note: the trace is incomplete: what was lost of it is not in the export", err=True)


def _export_profile(
    path: str, target_format: str, target: Path, *, force: bool, as_json: bool, look: str
) -> None:
    from memoir.lifetimes import Lifetimes

    lifetimes = Lifetimes.open(path)
    content = lifetimes.profile.export(target_format)
    if target_format == "folded":
        content = "\n".join(map(printable, content.decode(errors="replace").split("\n"))).encode()
    write_output(target, gzip.compress(content, mtime=0) if target.suffix == ".gz" else content, force)
    counts = {"contexts": len(lifetimes), "samples": lifetimes.totals["samples"]}
    _say(path, target_format, target, counts, as_json=as_json, look=look)


def _say(
    path: str, target_format: str, target: Path, counts: dict[str, Any], *, as_json: bool, look: str
) -> None:
    """What was exported: all counts as JSON, or the first of them and the next command."""
    if as_json:
        figures = {"trace": path, "format": target_format, "output": str(target), **counts}
        click.echo(json.dumps(figures, indent=2))
    else:
        counted, count = next(iter(counts.items()))
        click.echo(f"{count:,} {counted}")
    click.echo(f"wrote {quoted(target)}", err=True)
    if not as_json:
        name = quoted(target)
        click.echo(f"\nnext: {look.format(name, name)}")
