# SPDX-License-Identifier: Apache-2.0
"""`memoir attach`: sample or record a process that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoir._core import Error
from memoir.base.quantities import quoted, read_amount
from memoir.cli.parts.arguments import Size, Whole, check_output
from memoir.record import native

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older ones are not generic

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "": 1, "m": 60, "min": 60, "h": 3600}


class Duration(ParamType):
    """Seconds: a number, or one with ms, s, min or h."""

    name = "time"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        amount, unit = read_amount(value) or (0, "none")
        if unit not in _UNITS or not amount:
            self.fail(f"'{value}' is not a time: give a number with ms, s, min or h", parameter, context)
        return float(amount * _UNITS[unit])


@click.command()
@click.argument("process", metavar="PID", type=Whole(1))
@click.option(
    "--lifetimes", is_flag=True, help="Sample how long objects live, instead of recording everything."
)
@click.option(
    "--for", "seconds", type=Duration(), required=True, help="How long: 10s, 5min, 2h. Ctrl-C ends it sooner."
)
@click.option(
    "--every", type=Size(), help="With --lifetimes: bytes between samples, on average.  [default: 512KiB]"
)
@click.option("-o", "--output", help="The file to write.  [default: PID.lifetimes or PID.trace]")
@click.option("-f", "--force", is_flag=True, help="Overwrite the file.")
def command(
    process: int, lifetimes: bool, seconds: float, every: int | None, output: str | None, force: bool
) -> None:
    """Sample or record the running process PID for a while.

    \b
      memoir attach 4711 --lifetimes --for 5min -o x.lifetimes
      memoir attach 4711 --for 10s -o x.trace

    The process must have been started with the recorder preloaded. If it was not, this command says how to do that.
    The preloaded recorder costs almost nothing until someone attaches. The command switches it on and off through a
    page of memory: no debugger, signal or thread is used. Objects from before are not known; their frees are counted.
    """
    suffix = ".lifetimes" if lifetimes else ".trace"
    path = Path(output or f"{process}{suffix}")
    if every is not None and not lifetimes:
        raise Error("--every needs --lifetimes: it is the distance between samples; add --lifetimes")
    if every == 0:
        raise Error("--every 0: give the bytes between samples, such as 512KiB")
    check_output(path, (suffix,), force)
    if not lifetimes:
        native.check_free(path.absolute(), force)
    from memoir.lifetimes.names import name_frames
    from memoir.lifetimes.running import RunningProcess
    from memoir.lifetimes.sampling import DEFAULT_EVERY

    with RunningProcess(process) as running:
        if not lifetimes:
            if force:
                native.remove_earlier(path.absolute())
            running.record(seconds, path)
            if not native.is_recorded(path):
                raise Error(f"process {process}: it wrote no {path}; does it see the same folders?")
            click.echo(
                f"memoir: everything for {seconds:g} s in {quoted(path)}; next: memoir show {quoted(path)}",
                err=True,
            )
            return
        profile = name_frames(running.sample(seconds, DEFAULT_EVERY if every is None else every))
    profile.write(path, force=force)
    click.echo(
        f"memoir: {profile.totals['samples']:,} samples in {quoted(path)}; next: memoir show {quoted(path)}",
        err=True,
    )
