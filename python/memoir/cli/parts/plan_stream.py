# SPDX-License-Identifier: Apache-2.0
"""`memoir plan --planner stream`: problems that do not fit into memory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from memoir._core import stream_csv
from memoir.base.files import finished_output
from memoir.base.quantities import quoted


def plan_stream(path: str, output: Path, capacity: int | None, as_json: bool, force: bool) -> bool:
    """Plans the CSV at `path`, its rows by birth, into the CSV `output`, and prints the summary. False: the plan does
    not fit the capacity."""
    began = time.perf_counter()
    with finished_output(output, force) as unfinished:
        buffers, load, arena_size, most_live = stream_csv(path, str(unfinished))
    seconds = time.perf_counter() - began
    fits = None if capacity is None else arena_size <= capacity
    if as_json:
        summary = {"input": path, "planner": "stream", "buffers": buffers, "load": load, "lower_bound": load}
        summary |= {"arena_size": arena_size, "optimal": arena_size == load, "seconds": seconds}
        summary |= {"capacity": capacity, "fits": fits, "most_live": most_live}
        click.echo(json.dumps(summary, indent=2))
    else:
        over = 100 * (arena_size / load - 1) if load else 0.0
        click.echo(f"{quoted(path)}: {buffers:,} buffers, at most {most_live:,} live at a time")
        click.echo(f"arena {arena_size:,} bytes, {over:.2f} % above the load of {load:,}, in {seconds:.1f} s")
        if fits is not None:
            click.echo(
                f"the capacity of {capacity:,} bytes is {'enough' if fits else 'not enough for this plan'}"
            )
    click.echo(f"wrote {quoted(output)}", err=True)
    return fits is not False
