# SPDX-License-Identifier: Apache-2.0
"""`memoir plan --planner guided`: a whole run of a device's program, for the guided pool to follow in the next one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from memoir import _core
from memoir._core import Error
from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.cli.parts.arguments import check_output
from memoir.traces.files import only_device, open_for_plans


def plan_guided(
    input: str,
    output: str | None,
    device: int | None,
    alignment: int | None,
    as_json: bool,
    force: bool,
    only: str | None = None,
) -> None:
    """Plans the run in the trace at `input` into `output`, and prints what it takes. `alignment` in bytes; None: that of
    device pools."""
    if output is not None:
        check_output(Path(output), (".plan",), force)
    trace = open_for_plans(input, only)
    try:
        device = only_device(trace, device)
        chosen = {} if alignment is None else {"alignment": alignment}
        plan = _core.plan_run(trace, device, **chosen)
    except Error as error:
        raise Error(f"{input}: {error}") from None
    if not trace.complete:
        click.echo("the recording was cut off; this is what it had until then", err=True)
    if trace.dropped:
        click.echo(f"the recorder lost {trace.dropped:,} records: the plan may not fit the program", err=True)
    if output is not None:
        write_output(Path(output), plan.to_bytes(), force)
    counts = Counter(plan.places.tolist())
    memories: list[dict[str, Any]] = [
        {
            "name": memory.name,
            "buffers": counts[place],
            "load": memory.load,
            "arena_size": memory.size,
            "alignment": memory.alignment,
        }
        for place, memory in enumerate(plan.memories)
    ]
    streams = len(set(plan.streams.tolist()))
    if as_json:
        summary = {"input": input, "planner": plan.planner, "device": device, "buffers": len(plan)}
        click.echo(json.dumps({**summary, "streams": streams, "memories": memories}, indent=2))
    else:
        on = "" if streams < 2 else f" on {streams} streams"
        click.echo(f"{quoted(input)}: {len(plan):,} buffers of the whole run on device {device}{on}")
        for memory in memories:
            over = 100 * (memory["arena_size"] / memory["load"] - 1) if memory["load"] else 0.0
            click.echo(
                f"{memory['name']}: {memory['arena_size']:,} bytes for {memory['buffers']:,} buffers, "
                f"{over:.2f} % above the load of {memory['load']:,}"
            )
    if output is not None:
        click.echo(f"wrote {quoted(output)}", err=True)
        if not as_json:
            page = Path(output).with_suffix(".html")
            click.echo(f"\nnext: memoir show {quoted(output)} -o {quoted(page)}")
    elif not as_json:
        target = Path(input).with_suffix(".plan").name
        click.echo(f"\nnext: memoir plan --planner guided {quoted(input)} -o {quoted(target)}")
