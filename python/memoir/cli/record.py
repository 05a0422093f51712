# SPDX-License-Identifier: Apache-2.0
"""memoir record: run a program and record every allocation of it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import memoir
from memoir import Error
from memoir.base.quantities import bytes_text, printable, printable_error, quoted
from memoir.cli.parts.arguments import Size, check_output
from memoir.cli.parts.program import run_program
from memoir.record import native
from memoir.record.processes import Watcher

if TYPE_CHECKING:
    from memoir._core import Trace

_MANY = 10  # times the events of the first process: then another one is what was meant


@click.command(name="record", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o", "--output", help="The file to write.  [default: memoir.trace; with --lifetimes: memoir.lifetimes]"
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False),
    help="When the program ends, also write a page of the recording: .html.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite the files.")
@click.option(
    "--lifetimes", is_flag=True, help="Sample how long objects live, by context. The cost is small."
)
@click.option(
    "--every", type=Size(), help="With --lifetimes: bytes between samples, on average.  [default: 512KiB]"
)
@click.option(
    "--only",
    type=click.Choice(["tensors", "malloc"]),
    help="In a Python program: record only PyTorch's tensors, or only malloc's.  [default: both]",
)
@click.option(
    "--check-stacks",
    is_flag=True,
    help="Compare every stack with a full unwind, and say how many differ. Slow.",
)
@click.option(
    "--keep-arguments",
    is_flag=True,
    help="Keep the program's arguments as they are. Passwords and tokens among them are masked otherwise.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: str | None,
    page: str | None,
    force: bool,
    lifetimes: bool,
    every: int | None,
    only: str | None,
    check_stacks: bool,
    keep_arguments: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM and record its allocations into a trace.

    \b
      memoir record -o x.trace -- ./server --port 8000
      memoir record -o x.trace -- python serve.py

    PROGRAM may be any dynamically linked program. The trace has every allocation and free of the malloc family and of
    operator new, by all threads, with its stack. Processes that the program starts get their own traces,
    x.<pid>.trace; x.index lists them.

    In a Python program, stacks also show the lines of Python. Once the program imports torch, PyTorch's CPU tensors
    are kept apart from other allocations and carry the names of their operators. Each outermost call of an nn.Module
    is a pass, which `memoir plan` can plan.

    With --lifetimes, memoir samples a few allocations instead. x.lifetimes then says how long the objects of each
    context live, for all processes together. You can sample a server for days.

    This command ends with the program's exit status, and passes signals on to it. After a crash or a kill, the trace
    holds everything up to that moment.
    """
    from memoir.bench.process import proof

    if every is not None and not lifetimes:
        raise Error("--every needs --lifetimes: it is the distance between samples; add --lifetimes")
    if page is not None:
        check_output(Path(page), (".html",), force)
    if lifetimes:
        from memoir.cli.parts.record_lifetimes import record_lifetimes

        if only is not None or check_stacks:
            raise Error("--only and --check-stacks are for traces: leave them out with --lifetimes")
        executable = _resolve(program[0])
        proof.check_executable(executable)
        native.check_program(executable)
        sys.exit(record_lifetimes(output, every=every, page=page, force=force, program=program))
    output = output or "memoir.trace"
    path = Path(output).absolute()
    if not path.parent.is_dir():
        raise Error(f"{output}: its folder does not exist")
    executable = _resolve(program[0])
    python = native.is_python(executable)
    native.check_free(path, force)
    native.check_folder(path)
    with_malloc = not (python and only == "tensors")
    if with_malloc:
        proof.check_executable(executable)
        native.check_program(executable)
    if force:
        native.remove_earlier(path)

    watcher: Watcher | None = None
    environment = dict(os.environ)
    if python and only != "malloc":
        if with_malloc:
            environment[native.TENSORS] = "1"
        else:
            environment["MEMOIR_RECORD"] = str(path)
        injected = Path(memoir.__file__).parent / "torch" / "injected"
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(injected), os.environ.get("PYTHONPATH")])
        )
    if not with_malloc:
        status = run_program(program, environment)
    else:
        with tempfile.TemporaryDirectory(prefix="memoir-record-") as folder, native.Clock() as clock:
            checks = str(Path(folder) / "checks") if check_stacks else None
            environment = native.environment(path, clock.path, checks, environment, keep_arguments)
            with Watcher(path, clock) as watcher:
                status = run_program(program, environment, watcher.began)
            if checks:
                _say_checks(Path(checks))
            refused, why = clock.refused()
            if refused:
                click.echo(
                    f"memoir: {refused:,} processes could not write a trace: {os.strerror(why)}", err=True
                )
    largest = path
    with _told():
        largest = _say_results(path, status)
        if watcher is not None:
            watcher.add_facts()
    for file in dict.fromkeys((path, largest)):
        with _told():
            _name(file)
    if page is not None:
        with _told():
            _write_page(largest, Path(page), force)
    sys.exit(status)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The program has ended: its status is ours, whatever becomes of the trace."""
    try:
        yield
    except (Error, OSError) as error:
        click.echo(f"memoir: {printable_error(error)}", err=True)


def _resolve(program: str) -> Path:
    from memoir.bench.process.launch import resolve

    try:
        return resolve(program)
    except Error as error:
        raise Error(f"{program}: cannot be run: {error}") from None


def _say_checks(checks: Path) -> None:
    rows = [line.split() for line in checks.read_text().splitlines()] if checks.exists() else []
    stacks, different, cut, made, fibres = (sum(int(row[i]) for row in rows) for i in range(1, 6))
    by_nature = [
        f"{count:,} end {where}"
        for count, where in ((made, "in code made at run time"), (fibres, "where a fibre begins"))
        if count
    ]
    click.echo(
        f"memoir: {stacks:,} stacks compared with a full unwind: {different:,} different, {cut:,} cut"
        + "".join(f"; {text}" for text in by_nature),
        err=True,
    )


def _say_results(file: Path, status: int) -> Path:
    """Returns the trace that people want to see: of a script that starts the program, or becomes it, the program's."""
    if not native.is_recorded(file):
        click.echo("memoir: nothing was recorded: the program did not start, or removed the trace", err=True)
        return file
    trace, complete = _finish(file, None if status >= 128 else status)
    lost = "" if complete else "; the program ended before the trace was closed: it holds what came before"
    losses = trace.losses
    if no_room := trace.dropped - losses["interrupted"] - losses["other"]:
        lost += f"; {no_room:,} events were lost: is the disk full, or the memory?"
    if losses["interrupted"]:
        lost += f"; {losses['interrupted']:,} events of signal handlers that interrupted the recorder were not recorded"
    torn = losses["torn_bytes"]
    if complete and torn:  # where a program is killed that is to be expected
        lost += (
            f"; {bytes_text(torn)} of it cannot be read and are left out: memoir's fault, please report it"
        )
    name, count = os.path.relpath(file), trace.event_count
    if trace.meta("malloc"):
        click.echo(
            "memoir: this program brings a malloc of its own, whose calls cannot be recorded", err=True
        )
    del trace  # it may be large
    index = os.path.relpath(native.index_of(file))
    try:
        children = dict.fromkeys(child for child, _ in native.listed(file))
    except OSError as error:
        raise Error(f"{index}: the traces of other processes are not known: {error.strerror}") from None
    most, largest, command, killed, dropped = _MANY * count, file, "", 0, 0
    for child in children:
        if not native.is_recorded(child):
            continue
        one, ended = _finish(child, None)
        killed += not ended
        dropped += one.dropped
        if one.event_count > most:
            most, largest, command = one.event_count, child, one.meta("command")
    next_ = f"; next: memoir show {quoted(name)}" if largest == file else ""
    click.echo(f"memoir: {count:,} events in {quoted(name)}{lost}{next_}", err=True)
    if children:
        said = f", killed or still running: {killed}" if killed else ""
        if dropped:
            said += f", {dropped:,} events of theirs were lost"
        traces = "trace" if len(children) == 1 else "traces"
        click.echo(
            f"memoir: {len(children):,} more {traces} of other processes{said}, listed in {quoted(index)}",
            err=True,
        )
    if largest != file:
        where = os.path.relpath(largest)
        click.echo(
            f"memoir: most is of {printable(command)}: {most:,} events in {quoted(where)}; next: memoir show {quoted(where)}",
            err=True,
        )
    return largest


def _name(file: Path) -> None:
    """Names for its stacks, while the program and its libraries are what they were. Ctrl-C leaves that for later."""
    from memoir._core import Trace
    from memoir.cli.parts.naming import needs_names, store_names

    try:
        if native.is_recorded(file) and needs_names(Trace.open(str(file))):
            store_names(file)
    except (Error, KeyboardInterrupt):
        return


def _write_page(file: Path, page: Path, force: bool) -> None:
    if not native.is_recorded(file):
        return
    from memoir.base.files import write_output
    from memoir.cli.parts.naming import open_named
    from memoir.cli.parts.show_trace import picture_of, summary_of

    trace, chosen = open_named(str(file))
    write_output(page, picture_of(str(file), trace, summary_of(trace, chosen), "html"), force)
    click.echo(f"wrote {quoted(page)}", err=True)


def _finish(file: Path, status: int | None) -> tuple[Trace, bool]:
    """Compresses the trace of a process that has ended. status: how it ended, when the trace does not say. Returns the
    trace as it was, and whether it is complete now."""
    from memoir._core import Trace, finish_trace

    trace = Trace.open(str(file))
    pid = trace.meta("pid")
    if trace.meta("recorder") != "native" or (pid and Path(f"/proc/{pid}").exists()):
        return trace, trace.complete
    status = trace.end["status"] if trace.end is not None else status
    try:
        finish_trace(str(file), status)
    except Error as error:
        click.echo(f"memoir: {quoted(os.path.relpath(file))} stays as the program left it: {error}", err=True)
        return trace, trace.complete
    return trace, status is not None
