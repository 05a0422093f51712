# SPDX-License-Identifier: Apache-2.0
"""`memoir plan --stream`: problems that do not fit into memory."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click

from memoir._core import Error, stream_csv


def plan_stream(input: str, output: str | None, capacity: int | None, as_json: bool, force: bool) -> bool:
    """Plans the CSV at `input`, its rows by birth, into `output`, and prints the summary. False: the plan does
    not fit the capacity."""
    if output is None or Path(output).suffix.lower() != ".csv":
        raise Error("--stream writes its plan as it goes: pass -o FILE.csv")
    path = Path(output)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    began = time.perf_counter()
    try:
        buffers, load, arena_size, most_live = stream_csv(input, str(unfinished))
        if force:
            unfinished.replace(path)
        else:
            os.link(unfinished, path)
    except FileExistsError:
        raise Error(f"{output} exists already; pass -f to overwrite it") from None
    finally:
        unfinished.unlink(missing_ok=True)
    seconds = time.perf_counter() - began
    fits = None if capacity is None else arena_size <= capacity
    if as_json:
        summary = {"input": input, "planner": "stream", "buffers": buffers, "load": load, "lower_bound": load}
        summary |= {"arena_size": arena_size, "optimal": arena_size == load, "seconds": seconds}
        summary |= {"capacity": capacity, "fits": fits, "most_live": most_live}
        click.echo(json.dumps(summary, indent=2))
    else:
        over = 100 * (arena_size / load - 1) if load else 0.0
        click.echo(f"{input}: {buffers:,} buffers, at most {most_live:,} live at a time")
        click.echo(f"arena {arena_size:,} bytes, {over:.2f} % above the load of {load:,}, in {seconds:.1f} s")
        if fits is not None:
            click.echo(
                f"the capacity of {capacity:,} bytes is {'enough' if fits else 'not enough for this plan'}"
            )
    click.echo(f"wrote {output}", err=True)
    return fits is not False
