# SPDX-License-Identifier: Apache-2.0
"""`memoir import`: what another tool recorded becomes a trace."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memoir._core import (
    ImportReport,
    import_rmm_log,
    import_snapshot,
    import_text_trace,
    is_rmm_log,
    is_text_trace,
)
from memoir.base.files import finished_output, read_regular, write_output
from memoir.base.kinds import wrong_kind
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.work_limit import limited
from memoir.traces.files import read_begin


@click.command()
@click.argument("snapshot", type=click.Path(dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The trace to write.  [default: SNAPSHOT with the suffix .trace]",
)
@click.option(
    "--passes",
    metavar="PREFIX",
    default="ProfilerStep#",
    show_default=True,
    help="Annotations whose names begin with this become the passes of the trace.",
)
@click.option("--json", "as_json", is_flag=True, help="The counts as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@limited
def command(snapshot: str, output: str | None, passes: str, as_json: bool, force: bool) -> None:
    """Make a trace of SNAPSHOT, a file that torch.cuda.memory._dump_snapshot wrote, of a log of RAPIDS Memory Manager
    (logging_resource_adaptor), or of a text trace.

    The file is read as data: nothing in it is run, and a pickle that would run something is refused.
    """
    target = Path(output) if output is not None else Path(snapshot).with_suffix(".trace")
    check_output(target, (".trace",), force)
    begin = read_begin(snapshot)
    if is_text_trace(begin):
        _import_text(snapshot, target, as_json, force)
        return
    if is_rmm_log(begin):
        _import_rmm_log(snapshot, target, as_json, force)
        return
    if begin and not begin.startswith((b"\x80", b"PK", b"(")):
        raise wrong_kind(
            snapshot, begin, "neither a memory snapshot of PyTorch, nor a log of RMM, nor a text trace"
        )
    with finished_output(target, force, private=True) as unfinished:
        report = import_snapshot(snapshot, str(unfinished), passes)
    if as_json:
        counts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
        click.echo(json.dumps({"snapshot": snapshot, "trace": str(target), **counts}, indent=2))
    else:
        click.echo(
            f"{_number(report.allocations, 'allocation')} and {_number(report.frees, 'free')} on "
            f"{_number(report.devices, 'device')}, after {_number(report.live_before, 'object')} that were "
            f"live before; {_number(report.segments, 'segment event')}, {_number(report.passes, 'pass')}, "
            f"{report.out_of_memory:,} out of memory"
        )
    for note in notes(report):
        click.echo(f"note: {note}", err=True)
    click.echo(f"wrote {quoted(target)}", err=True)
    if not as_json:
        if report.out_of_memory:
            click.echo(f"\nnext: memoir oom {quoted(target)}")
        else:
            click.echo(f"\nnext: memoir simulate {quoted(target)} --what-if")


def _import_text(path: str, target: Path, as_json: bool, force: bool) -> None:
    content, counts = import_text_trace(read_regular(path), path)
    write_output(target, content, force, private=True)
    if as_json:
        click.echo(json.dumps({"snapshot": path, "trace": str(target), **counts}, indent=2))
    else:
        click.echo(
            f"{_number(counts['allocations'], 'allocation')} and {_number(counts['frees'], 'free')}, after "
            f"{_number(counts['live_before'], 'object')} that were live before; "
            f"{_number(counts['segments'], 'segment event')}, {counts['out_of_memory']:,} out of memory"
        )
    click.echo(f"wrote {quoted(target)}", err=True)
    if not as_json:
        verb = "oom" if counts["out_of_memory"] else "simulate"
        click.echo(f"\nnext: memoir {verb} {quoted(target)}")


def _import_rmm_log(path: str, target: Path, as_json: bool, force: bool) -> None:
    content, counts = import_rmm_log(read_regular(path), path)
    write_output(target, content, force, private=True)
    if as_json:
        click.echo(json.dumps({"snapshot": path, "trace": str(target), **counts}, indent=2))
    else:
        click.echo(
            f"{_number(counts['allocations'], 'allocation')} and {_number(counts['frees'], 'free')} on "
            f"{_number(counts['streams'], 'stream')}, after {_number(counts['live_before'], 'object')} that were live "
            f"before; {counts['out_of_memory']:,} out of memory"
        )
    if counts["lost_frees"]:
        lost = _number(counts["lost_frees"], "free")
        click.echo(f"note: {lost} missing: inferred where the address was given again", err=True)
    if counts["times_back"]:
        back = _number(counts["times_back"], "row")
        click.echo(f"note: {back} earlier than the one before: given its time", err=True)
    if counts["unreadable"]:
        odd = _number(counts["unreadable"], "thread or time")
        click.echo(f"note: {odd} that cannot be read: the first one's, and that of the row before", err=True)
    click.echo(f"wrote {quoted(target)}", err=True)
    if not as_json:
        if counts["out_of_memory"]:
            click.echo(f"\nnext: memoir oom {quoted(target)} --cap BYTES")
        else:
            click.echo(f"\nnext: memoir simulate {quoted(target)} --policy rmm --policy memoir")


def notes(report: ImportReport) -> list[str]:
    """What was inferred, and what the trace does not hold."""
    said = []

    def say(count: int, noun: str, what: str) -> None:
        if count:
            said.append(f"{_number(count, noun)} {what}")

    if report.entries == 0:
        said.append("the snapshot has no history (record it with torch.cuda.memory._record_memory_history())")
    say(
        report.known_by_free,
        "object",
        "of those live before is known only by its free: no site"
        if report.known_by_free == 1
        else "of those live before are known only by their frees: no sites",
    )
    say(report.lost_frees, "free", "missing: inferred where the address was given again")
    say(report.after_history, "block", "made after the history had ended: left out")
    say(report.odd_segments, "segment event", "that did not fit the segments at the end")
    say(report.without_time, "entry", "without a time: in order, with the time of the one before")
    say(report.times_back, "entry", "earlier than the one before: given its time")
    say(report.private_pools, "private pool", "(CUDA graphs, MemPools)")
    say(report.user_metadata, "entry", "with user metadata, which is not kept")
    say(report.compile_contexts, "entry", "with a compile context, which is not kept")
    say(report.unreadable, "line, name, time or annotation", "that cannot be read: left out")
    for action, count in sorted(report.other_actions.items()):
        say(count, "entry", f"of the unknown action {action!r}: left out")
    for name, count in sorted(report.other_annotations.items(), key=lambda row: -row[1])[:5]:
        say(count, "annotation", f"of {name!r} left out (--passes {quoted(name)} makes passes of them)")
    return said


def _number(count: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun if count == 1 else plural}"
