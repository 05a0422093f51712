# SPDX-License-Identifier: Apache-2.0
"""memoir record: run a Python program and record every allocation that PyTorch makes in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

import memoir
from memoir import Error


@click.command(name="record", context_settings={"ignore_unknown_options": True})
@click.option("-o", "--output", default="memoir.trace", show_default=True, help="The trace file to write.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the trace file.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(output: str, force: bool, program: tuple[str, ...]) -> None:
    """Run PROGRAM and record its allocations into a trace.

    \b
      memoir record -o x.trace -- python serve.py

    Recorded is what goes through PyTorch's CPU allocator from the moment the program imports torch: on the importing
    thread with the operators it was made under, on others without. Each outermost call of an nn.Module is one pass. The
    program's exit code is passed on; after a crash or a kill the trace holds what was recorded until then.
    """
    path = Path(output).absolute()
    if not path.parent.is_dir():
        raise Error(f"{output}: its folder does not exist")
    if path.exists() and not force:
        raise Error(f"{output}: exists already; -f overwrites it")
    path.unlink(missing_ok=True)
    environment = dict(os.environ, MEMOIR_RECORD=str(path))
    injected = Path(memoir.__file__).parent / "torch" / "injected"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(injected), os.environ.get("PYTHONPATH")]))
    try:
        process = subprocess.Popen(program, env=environment)
    except OSError as error:
        raise Error(f"{program[0]}: cannot be run: {error.strerror}") from None
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the program got it too, and decides
            continue
    if not path.exists():
        click.echo(
            "memoir: nothing was recorded: the program did not import torch in its first process", err=True
        )
    else:
        from memoir._core import Trace

        trace = Trace.open(str(path))
        lost = (
            ""
            if trace.complete
            else "; the program ended before the trace was closed: it holds what came before"
        )
        click.echo(
            f"memoir: {len(trace.events):,} events in {output}{lost}; next: memoir show {output}", err=True
        )
    sys.exit(128 - code if code < 0 else code)
