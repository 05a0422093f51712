# SPDX-License-Identifier: Apache-2.0
"""`memoir oom`: why did this program run out of memory, and what would have served it?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from memoir.base.files import write_output
from memoir.base.quantities import printable_error, quoted
from memoir.cli.parts.arguments import Whole, check_output
from memoir.cli.parts.work_limit import limited
from memoir.views.screen import Screen


@click.command(
    epilog="Exit codes: 0 some setting or policy would have survived; 1 none would for certain, or the failure is not "
    "reproduced; 2 bad input, or no request failed."
)
@click.argument("snapshot", type=click.Path(dir_okay=False))
@click.option(
    "--device",
    type=click.IntRange(0, 65535),
    help="The device. The default: the one where a request failed last.",
)
@click.option("--event", type=Whole(), help="The request that failed. The default: the last one.")
@click.option(
    "--asked",
    metavar="BYTES|TEXT",
    help="A request that failed after the recording: its bytes (2GiB), or the text of PyTorch's error, pasted whole.",
)
@click.option(
    "--cap",
    metavar="BYTES",
    help="The memory of the device (20GiB). The default: what was held plus what was free.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[,KEY=VALUE...]",
    help="Also judge this policy. Repeatable; key=a|b|c tries each. See memoir simulate --policies.",
)
@click.option("--no-caps", is_flag=True, help="Do not search the smallest cap of each policy. Quicker.")
@click.option(
    "--search",
    metavar="TIME[,calls]",
    help="Then search PyTorch's settings for those that take the least memory, or make the fewest device calls, for this "
    "long (30s, 2min).",
)
@click.option("--workers", type=Whole(1), help="Processes; the default: one per core.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A page with curves and maps: .html.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the page.")
@limited
def command(
    snapshot: str,
    device: int | None,
    event: int | None,
    asked: str | None,
    cap: str | None,
    policies: tuple[str, ...],
    no_caps: bool,
    search: str | None,
    workers: int | None,
    output: str | None,
    as_json: bool,
    force: bool,
) -> None:
    """Say why the program of SNAPSHOT ran out of memory, and which settings would have survived.

    SNAPSHOT is what torch.cuda.memory._dump_snapshot wrote after (or when) a request failed, with the history recorded, or
    a trace of it. The request is replayed under every setting of PyTorch's allocator and every policy of memoir.
    """
    from memoir.cli.parts.search import search_effort, search_settings
    from memoir.simulation import expand
    from memoir.simulation.out_of_memory import explain, judged_workload

    if output is not None:
        check_output(Path(output), (".html",), force)
    seconds, goal = (None, "") if search is None else search_effort(search)
    answer = explain(
        snapshot,
        device=device,
        event=event,
        asked=asked,
        cap=cap,
        policies=expand(policies),
        find_caps=not no_caps,
        samples=1000 if output is not None else 0,
        workers=workers,
    )
    if answer["interrupted"]:  # what was not tried might have survived: there is no verdict
        raise KeyboardInterrupt
    if seconds is not None:
        judged = judged_workload(answer)
        recorded = answer["recorded"] if answer["start"] == "recorded" else ""
        answer["search"] = search_settings(
            judged, seconds, goal=goal, cap=answer["cap"], recorded=recorded, workers=workers
        )
    if output is not None:
        from memoir.traces.files import open_trace
        from memoir.views.page.of_oom import oom_page

        page = oom_page(answer, open_trace(snapshot), judged_workload(answer))
        write_output(Path(output), page.render().encode(), force)
    if as_json:
        shown = {name: value for name, value in answer.items() if name != "results"}
        click.echo(json.dumps(shown, indent=2))
    else:
        _print(answer)
        click.echo(f"\nnext: {_next(snapshot, answer, output)}")
    for one in answer["failed"]:
        click.echo(f"memoir: {one['policy']}: {printable_error(one['error'])}", err=True)
    if output is not None:
        click.echo(f"wrote {quoted(output)}", err=True)
    best = answer.get("search", {}).get("best")
    advised = answer["survivors"] and answer["recorded_fails_again"] is not False
    sys.exit(0 if advised or (best and best["completed"]) else 1)


def _print(answer: dict[str, Any]) -> None:
    from memoir.views import oom_text as view

    out = Screen.of_output()
    click.echo(view.words(answer))
    click.echo()
    out.table(view.ranked_table(answer))
    for table in (view.sites_table(answer), view.ages_table(answer), view.pins_table(answer)):
        if table.rows:
            click.echo()
            out.table(table)
    click.echo()
    click.echo(view.paste_lines(answer))
    if "search" in answer:
        from memoir.views.search_text import found_lines, matters_table

        click.echo()
        click.echo(found_lines(answer["search"]))
        click.echo()
        out.table(matters_table(answer["search"]))


def _next(snapshot: str, answer: dict[str, Any], output: str | None) -> str:
    path = quoted(snapshot)
    if output is None:
        page = quoted(Path(snapshot).with_suffix(".html").name)
        return f"memoir oom {path} -o {page}"
    return f"memoir simulate {path} --device {answer['device']} --cap recorded"
