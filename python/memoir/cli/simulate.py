# SPDX-License-Identifier: Apache-2.0
"""`memoir simulate`: the same allocators on the trace alone. What-if, caps, no hardware needed."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.base.files import write_output
from memoir.base.quantities import bytes_text, printable, printable_error, quoted
from memoir.cli.parts.arguments import Workers, check_output, workers_option
from memoir.cli.parts.patience import Lines
from memoir.cli.parts.sections import SectionedCommand, section
from memoir.cli.parts.work_limit import limited
from memoir.sweep import Outcome
from memoir.traces.files import ONLY
from memoir.views.screen import Screen

LEFT_OUT = (
    "Left out: the time of the device's own calls, memory that contexts, libraries and other processes hold on the "
    "device, and where objects lay that were live before the recording began"
)


def _left_out(from_recorded: bool) -> str:
    return LEFT_OUT + (" (but for policies with a recorded start)." if from_recorded else ".")


judging = section("Allocators and caps")


@click.command(
    cls=SectionedCommand,
    epilog="Exit codes: 0 all was simulated, out of memory or not; 1 some of it failed; 2 bad input, or all of it.",
)
@click.argument("inputs", type=click.Path(dir_okay=False), nargs=-1)
@judging(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[,KEY=VALUE...]|all",
    help="Repeatable; key=a|b|c tries each, one|another both. The default: ours and PyTorch's, or memoir's malloc and best fit "
    "for a trace of malloc. See --policies.",
)
@judging(
    "--cap",
    "caps",
    multiple=True,
    metavar="BYTES|1.05x|recorded",
    help="The memory of the device: bytes (20GiB), a multiple of the peak of live bytes, or what it had "
    "when a recorded request failed. Repeatable.",
)
@judging("--find-cap", is_flag=True, help="Search the smallest cap that each policy completes under.")
@judging("--what-if", is_flag=True, help="PyTorch's settings next to each other, with the text to copy.")
@judging(
    "--search",
    metavar="TIME[,calls]",
    help="Search PyTorch's settings for those that take the least memory, or make the fewest device calls, for this "
    "long (30s, 2min).",
)
@judging(
    "--from-recorded",
    is_flag=True,
    help="PyTorch's policies start from the recorded segments, and are compared with the recording. "
    "Without --policy: the recorded allocator.",
)
@judging(
    "--device-costs",
    type=click.Path(dir_okay=False),
    default="",
    metavar="FILE.json",
    help="Microseconds of each call to the driver, a JSON object by their names.  [default: published ones of an A100]",
)
@click.option(
    "--device", type=click.IntRange(0, 65535), help="Only this device. The default: each device by itself."
)
@click.option(
    "--only",
    type=click.Choice(list(ONLY)),
    help="Which allocations to use.  [default: tensors, where it has any]",
)
@judging("--continue", "go_on", is_flag=True, help="When a request fails, leave the object out and go on.")
@click.option("--phases", is_flag=True, help="Show where the time of each pool goes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="A picture of reserved memory over time: .png, .svg or .pdf; with heap maps: .html.",
)
@click.option("--json", "as_json", is_flag=True, help="The results as JSON on stdout.")
@click.option("--timeline", is_flag=True, help="With --json: live and reserved over time as well.")
@workers_option()
@judging(
    "--policies",
    "list_policies",
    type=click.Choice(("ours", "all")),
    is_flag=False,
    flag_value="ours",
    metavar="[all]",
    help="List the policies and their settings; `all`: with those that are only compared with.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite the picture.")
@limited
def command(
    inputs: tuple[str, ...],
    policies: tuple[str, ...],
    caps: tuple[str, ...],
    find_cap: bool,
    what_if: bool,
    search: str | None,
    from_recorded: bool,
    device_costs: str,
    device: int | None,
    only: str | None,
    go_on: bool,
    phases: bool,
    output: str | None,
    as_json: bool,
    timeline: bool,
    workers: Workers,
    list_policies: str | None,
    force: bool,
) -> None:
    """Say what each allocator would take for the traces INPUTS, and whether it would survive a cap.

    The allocators are the ones that programs run on, over a device that only counts: the memory is simulated, the
    allocators are real. Several inputs, policies, settings and caps make a sweep over all combinations.
    """
    from memoir import simulation
    from memoir.simulation.device_costs import read_costs

    if list_policies is not None:
        _list_policies(list_policies == "all", as_json)
        return
    if not inputs:
        raise Error("give a trace: memoir simulate x.trace")
    if output is not None:
        check_output(Path(output), (".png", ".svg", ".pdf", ".html"), force)
    if what_if and policies:
        raise Error("--what-if brings its own policies: leave --policy out")
    if search is not None:
        from memoir.cli.parts.search import search_effort

        if what_if or policies or len(inputs) > 1 or len(caps) > 1:
            raise Error("--search tries PyTorch's settings on one trace under one cap: leave the rest out")
        seconds, goal = search_effort(search)
        policies = ("pytorch", "pytorch:expandable_segments:True")
    if what_if:
        policies = tuple(simulation.what_if_policies(bool(caps)))
    samples = 1000 if output is not None or timeline else 0
    tasks = simulation.tasks_of(
        inputs,
        policies or (() if from_recorded else simulation.default_policies(inputs, only)),
        caps or (None,),
        device=device,
        only=only,
        with_recorded=from_recorded and (what_if or not policies),
        from_recorded=from_recorded,
        find_cap=find_cap,
        stop_at_oom=not go_on,
        samples=samples,
        phases=phases,
        device_costs=device_costs,
        timed=not what_if,  # that is about bytes, and wants its answer at once
    )
    read_costs(device_costs)  # what is wrong with it shows at once
    lines = Lines()

    def tell(outcome: Outcome) -> None:
        if len(tasks) > 1:
            what = printable_error(outcome.error) if outcome.error else _in_short(outcome.value)
            lines(f"{_name(outcome)}: {what}")

    swept = simulation.run(tasks, **workers._asdict(), tell=tell)
    if swept.failed and not swept.values and not swept.interrupted:
        for outcome in swept.failed[1:]:
            click.echo(f"memoir: {_name(outcome)}: {printable_error(outcome.error)}", err=True)
        raise Error(f"{_name(swept.failed[0])}: {swept.failed[0].error}")
    if swept.interrupted and not swept.values:
        raise KeyboardInterrupt
    groups = _groups(swept.values)
    if output is not None and groups:
        _draw(output, groups, force, from_recorded)
    found = None
    if search is not None:
        found = _search(swept.values[0], seconds, goal, tasks[0].only, workers.workers)
    if as_json:
        failed = [{"task": vars(o.arguments[0]), "error": o.error} for o in swept.failed]
        results = swept.values if timeline else [_without_timeline(result) for result in swept.values]
        summary: dict[str, Any] = {"results": results, "failed": failed, "interrupted": swept.interrupted}
        if found is not None:
            summary["search"] = found
        click.echo(json.dumps(summary, indent=2))
    else:
        _print(groups, phases, what_if, from_recorded)
        if found is not None:
            from memoir.views.search_text import found_lines, matters_table

            click.echo(f"\n{found_lines(found)}\n")
            Screen.of_output().table(matters_table(found))
    for outcome in swept.failed if not swept.interrupted else ():
        click.echo(f"memoir: {_name(outcome)}: {printable_error(outcome.error)}", err=True)
    if output is not None and groups:
        click.echo(f"wrote {quoted(output)}", err=True)
    if swept.interrupted:
        click.echo(f"memoir: {len(swept.failed):,} of {len(tasks):,} were not run", err=True)
        raise KeyboardInterrupt
    if not as_json:
        ran_out = [r["trace"] for _, results in groups for r in results if r["workload"]["failures"]]
        if ran_out:
            click.echo(f"\nnext: memoir oom {quoted(ran_out[0])}")
        elif from_recorded and not what_if:
            click.echo(f"\nnext: memoir simulate {quoted(inputs[0])} --from-recorded --what-if")
        else:
            click.echo(f"\nnext: {_next(inputs, caps, find_cap, output)}")
    sys.exit(1 if swept.failed else 0)


def _in_short(result: dict[str, Any]) -> str:
    ratio, oom = result["reserved_ratio"], result["out_of_memory"]
    held = f"{ratio:.4f} of the floor" if ratio is not None else bytes_text(result["peak_reserved"])
    ran_out = f", out of memory at event {oom['event']:,}" if oom else ""
    return f"{held}{ran_out} ({result['seconds']:.1f} s)"


def _search(
    first: dict[str, Any], seconds: float, goal: str, only: str, workers: int | None
) -> dict[str, Any]:
    """Of the trace, device and cap of a result; from the recorded state where that began there."""
    from memoir.cli.parts.search import search_settings
    from memoir.simulation import workload_of

    asks = first["start"] is None or first["cap"] is not None
    workload = workload_of(first["trace"], first["device"], only, failures=asks)
    recorded = first["fidelity"]["recorded_policy"] if first["fidelity"] else ""
    return search_settings(workload, seconds, goal=goal, cap=first["cap"], recorded=recorded, workers=workers)


def _groups(results: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(title, results) for each trace and device."""
    groups = []
    several = {(result["trace"], result["device"]) for result in results}
    for (trace, device), group in itertools.groupby(results, key=lambda r: (r["trace"], r["device"])):
        many = sum(path == trace for path, _ in several) > 1
        groups.append((f"{trace}, device {device}" if many or device else trace, list(group)))
    return groups


def _print(
    groups: list[tuple[str, list[dict[str, Any]]]], phases: bool, what_if: bool, from_recorded: bool
) -> None:
    from memoir.views import simulation_table as view

    out = Screen.of_output()
    for index, (title, results) in enumerate(groups):
        first = results[0]
        counts = first["workload"]
        private = counts["private_pools"]
        click.echo(
            "\n" * (index > 0) + f"{printable(title)}: {counts['operations']:,} operations, "
            f"{counts['streams']} stream{'s' * (counts['streams'] != 1)}, "
            + f"{private:,} private pool{'s' * (private != 1)}, " * (private > 0)
            + f"{first['floor']:,} bytes live at event {counts['peak_event']:,}"
        )
        if counts["failures"]:
            click.echo(view.failure_line(first))
        click.echo()
        out.table(view.simulation_table(results))
        compared = [result for result in results if view.is_reproduction(result)]
        if compared:
            click.echo()
        for result in compared:
            click.echo(view.fidelity_lines(result))
        stopped = [result for result in results if result["out_of_memory"]]
        if stopped:
            click.echo()
        for result in stopped:
            click.echo(view.oom_line(result))
        for result in results if phases else ():
            if result["phases"]:
                click.echo()
                out.table(view.phase_table(result))
        if what_if:
            _recommend(results)
    click.echo(f"\n{_left_out(from_recorded)}", err=True)


def _recommend(results: list[dict[str, Any]]) -> None:
    """The settings of PyTorch that took the least memory, to copy."""
    # From one start only: what the recording holds at its start and never uses would count against some.
    everything = len(results)
    results = [r for r in results if r["start"] != "afresh"]
    torch = [r for r in results if r["torch_settings"] or r["policy"] == "pytorch"]
    torch = [r for r in torch if r["completed"]]
    default = next((r for r in results if r["policy"] == "pytorch"), None)
    if not torch:
        click.echo("\nPyTorch's allocator runs out of memory with each of these settings.")
        return
    best = min(torch, key=lambda result: result["peak_reserved"])
    if default is not None and default["completed"] and best["peak_reserved"] == default["peak_reserved"]:
        among = "" if len(results) == everything else ", of those with a recorded start,"
        click.echo(f"\nNone of these settings{among} takes less than PyTorch's defaults.")
        return
    click.echo(
        f"\nPyTorch's allocator takes the least memory, {best['peak_reserved']:,} bytes, with\n  {best['torch_settings']}"
    )


def _draw(
    output: str, groups: list[tuple[str, list[dict[str, Any]]]], force: bool, from_recorded: bool
) -> None:
    kind = Path(output).suffix[1:].lower()
    if kind == "html":
        from memoir.traces.files import open_trace
        from memoir.views.page.of_simulation import simulation_page

        page = simulation_page(groups, _left_out(from_recorded), open_trace)
        write_output(Path(output), page.render().encode(), force)
        return
    from memoir.views.simulation_picture import draw_simulation

    if len(groups) > 1:
        raise Error(f"{output}: one picture is of one trace and device; write .html, or choose with --device")
    title, results = groups[0]
    write_output(Path(output), draw_simulation(results, Path(title).name, kind), force)


def _without_timeline(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "timeline"}


def _name(outcome: Outcome) -> str:
    task = outcome.arguments[0]
    cap = f" --cap {task.cap}" if task.cap else ""
    return f"{task.path} --device {task.device} --policy {quoted(task.policy)}{cap}"


def _next(inputs: tuple[str, ...], caps: tuple[str, ...], find_cap: bool, output: str | None) -> str:
    first = quoted(inputs[0])
    if not caps and not find_cap:
        return f"memoir simulate {first} --cap 1.05x"
    if not find_cap:
        return f"memoir simulate {first} --find-cap"
    if output is None:
        return f"memoir simulate {first} -o {quoted(Path(inputs[0]).with_suffix('.html').name)}"
    return f"memoir simulate {first} --what-if"


def _list_policies(peers: bool, as_json: bool) -> None:
    from memoir._core import peer_policies, policies

    left_out = [] if peers else peer_policies()
    listed = [policy for policy in policies() if policy[0] not in left_out]
    if as_json:
        keys = ("name", "takes", "default", "help")
        rows = [
            {"policy": name, "what": what, "settings": [dict(zip(keys, s, strict=True)) for s in settings]}
            for name, what, settings in listed
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    from memoir.views.simulation_table import policy_table

    Screen.of_output().table(policy_table(listed))
    click.echo("\nnext: memoir simulate x.trace --policy NAME,key=value")
