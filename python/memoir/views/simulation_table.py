# SPDX-License-Identifier: Apache-2.0
"""Simulations as tables: every policy next to the floor; where memory ran out; where a pool's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.text_table import Table

Result = dict[str, Any]  # of memoir.simulation.simulate_task()


def simulation_table(results: Sequence[Result]) -> Table:
    """Of one trace and device: for each cap the smallest reserved first, those that ran out of memory last."""
    capped = any(result["cap"] is not None for result in results)
    several_caps = len({result["cap"] for result in results}) > 1
    searched = any("smallest_cap" in result for result in results)
    timed = any(result["ns_per_operation"] for result in results)
    started = any(result["start"] for result in results)
    stepped = any(result["driver_ms_per_pass"] is not None for result in results)
    has_pools = any(result["workload"]["private_pools"] for result in results)
    oom_shown = capped or any(result["out_of_memory"] for result in results)
    wanted_heads = (
        ("policy", True),
        ("start", started),
        ("cap", several_caps),
        ("reserved", True),
        ("/ floor", True),
        ("private", has_pools),
        ("frag. at peak", True),
        ("mean", True),
        ("driver calls", True),
        ("ms a step" if stepped else "ms of them", True),
        ("smallest cap", searched),
        ("ns/op", timed),
        ("p50", timed),
        ("p99.9", timed),
        ("out of memory", oom_shown),
    )
    heads = tuple(head for head, wanted in wanted_heads if wanted)
    floor = results[0]["floor"]
    cells = ["floor: most bytes live", *[""] * (started + several_caps), bytes_text(floor), "1.0000"]
    rows = [(*cells, *[""] * (len(heads) - len(cells)))]
    styles = {(0, column): "dim" for column in range(len(cells))}
    for result in sorted(results, key=_order):
        cells = [printable(result["policy"])]
        if started:
            cells.append(result["start"])
        if several_caps:
            cells.append("-" if result["cap"] is None else bytes_text(result["cap"]))
        ratio = result["reserved_ratio"]
        cells += [
            bytes_text(result["peak_reserved"]),
            "-" if ratio is None else f"{ratio:.4f}",
            *[bytes_text(result["private_reserved"])] * has_pools,
            f"{100 * result['fragmentation_at_peak']:.1f} %",
            f"{100 * result['fragmentation_mean']:.1f} %" if result["operations"] else "-",
            f"{result['device_calls']['driver']:,}",
            _milliseconds(result["driver_ms_per_pass"] if stepped else result["driver_ms"]),
        ]
        if searched:
            found = result.get("smallest_cap", {})
            cells.append(f"{found['ratio']:.4f}" if found.get("ratio") else "none found")
        if timed:
            times = result["ns_per_operation"]
            cells += [f"{times[name]:,.0f}" for name in ("mean", "p50", "p99_9")] if times else ["-"] * 3
        oom = result["out_of_memory"]
        if oom:
            cells.append(
                f"at event {oom['event']:,}" + (f", {result['failed']:,} in all" * (result["failed"] > 1))
            )
            styles[len(rows), len(cells) - 1] = "bad"
        elif oom_shown:
            cells.append("no" if capped else "")
        rows.append(tuple(cells))
    words = (0, *(at for at, head in enumerate(heads) if head in ("start", "out of memory")))
    return Table("", heads, tuple(rows), styles=styles, words=words)


def _milliseconds(value: float | None) -> str:
    """Of the driver's calls, by the price list."""
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _order(result: Result) -> tuple[Any, ...]:
    return result["cap"] or 0, not result["completed"], result["peak_reserved"]


def oom_line(result: Result) -> str:
    """One line about the first allocation that could not be placed."""
    oom = result["out_of_memory"]
    text = (
        f"{printable(result['policy'])}: event {oom['event']:,} asked {bytes_text(oom['asked'])} with "
        f"{bytes_text(oom['live'])} live, {bytes_text(oom['reserved'])} reserved: "
        f"{bytes_text(oom['fragmented'])} free but of no use, {bytes_text(oom['rounding'])} lost to rounding"
    )
    if oom["reason"]:
        text += f" ({oom['reason']})"
    if oom["site"]:
        text += f"; at {printable(oom['site'].rpartition(' > ')[2])}"  # --json has all of it
    if oom["any_layout_fits"] is None:
        return text
    if oom["any_layout_fits"]:
        over = result["cap"] - oom["live"] - oom["asked"]
        return text + f". Another layout had room, with {bytes_text(over)} to spare"
    return text + f". No layout fits {bytes_text(oom['live'] + oom['asked'])} live under this cap"


def failure_line(result: Result) -> str:
    """One line about the request that failed last in the recording."""
    failures = result["workload"]["failures"]
    last = failures[-1]
    text = (
        f"its recording ran out of memory at event {last['event']:,}: {bytes_text(last['asked'])} asked, "
        f"{bytes_text(last['live'])} live, {bytes_text(last['reserved'])} held, "
        f"{bytes_text(last['device_free'])} free"
    )
    if len(failures) > 1:
        text += f" ({len(failures):,} failures in all)"
    if result["start"] and result["cap"] is None:
        return text + "; not asked for again, since this compares with the recording (--cap recorded asks)"
    return (
        text
        + "; asked for here as well"
        + " (--cap recorded: under what there was)" * (result["cap"] is None)
    )


def is_reproduction(result: Result) -> bool:
    """Whether fidelity_lines() are about it: from the recorded state, with the recorded settings."""
    return result["fidelity"] is not None and result["fidelity"]["same_settings"]


def fidelity_lines(result: Result) -> str:
    """Of a run from the recorded state with the recorded settings: does the simulation do what the recording did?"""
    fidelity = result["fidelity"]
    objects, segments = fidelity["start_objects"], fidelity["start_segments"]
    where = "as recorded" if fidelity["settings_recorded"] else "the defaults, since they were not recorded"
    start = (
        f"  from {segments:,} segment{'s' * (segments != 1)} of {bytes_text(fidelity['start_reserved'])} with "
        f"{objects:,} live object{'s' * (objects != 1)}; settings: {where}"
    )
    name, agreed, objects = printable(result["policy"]), fidelity["agreed"], fidelity["objects"]
    if not objects:
        return f"{name}: the recording has no history with addresses to compare with\n{start}"
    text = f"{name}: {agreed:,} of {objects:,} recorded addresses reproduced"
    if agreed < objects:
        text += f" ({100 * agreed / objects:.2f} %; the first elsewhere is event {fidelity['first_difference']:,})"
    peak, calls = result["peak_reserved"], result["device_calls"]["all"]
    text += f", {bytes_text(peak)} reserved at the peak"
    if peak != fidelity["recorded_peak"]:
        text += f" (recorded: {bytes_text(fidelity['recorded_peak'])})"
    text += f", {calls:,} device call{'s' * (calls != 1)}"
    if calls != fidelity["recorded_calls"]:
        text += f" (recorded: {fidelity['recorded_calls']:,})"
    if agreed < objects and result["cap"] is not None:
        start += "; the recorded device may have had more memory than the cap"
    elif agreed < objects:
        start += (
            "\n  not in a trace, so perhaps the cause: a device that was full, torch 2.12 (try ties_by_record)"
            + ", the ends of private pools (CUDA graphs, MemPools)"
            * (result["workload"]["private_pools"] > 0)
        )
    elif peak == fidelity["recorded_peak"] and calls == fidelity["recorded_calls"]:
        text += ": both as recorded"
    return f"{text}\n{start}"


def phase_table(result: Result) -> Table:
    """Where the time of one pool went in its first pass over the trace; phases that were never entered are left out."""
    rows = []
    total = sum(phase["total_ns"] for phase in result["phases"]) or 1
    for phase in result["phases"]:
        calls = phase["calls"]
        if not calls:
            continue
        row = (
            phase["phase"],
            f"{calls:,}",
            duration_text(phase["total_ns"]),
            f"{100 * phase['total_ns'] / total:.1f} %",
            duration_text(phase["total_ns"] / calls),
            duration_text(phase["worst_ns"]),
        )
        rows.append(row)
    heads = ("phase", "calls", "total", "share", "mean", "worst")
    return Table(printable(result["policy"]), heads, tuple(rows), words=(0,))


def listed_settings(
    listed: Sequence[tuple[str, str, list[tuple[str, str, str, str]]]],
) -> tuple[
    dict[str, list[tuple[str, str, str, str]]], dict[tuple[str, ...], list[tuple[str, str, str, str]]]
]:
    """(of each policy those that it has alone, of some policies' names those that they share): each setting once."""
    owners: dict[tuple[str, str, str, str], list[str]] = {}
    for name, _, settings in listed:
        for setting in settings:
            owners.setdefault(setting, []).append(name)
    own: dict[str, list[tuple[str, str, str, str]]] = {name: [] for name, _, _ in listed}
    shared: dict[tuple[str, ...], list[tuple[str, str, str, str]]] = {}
    for setting, names in owners.items():
        if len(names) == 1:
            own[names[0]].append(setting)
        else:
            shared.setdefault(tuple(names), []).append(setting)
    return own, shared


def policy_table(policies: Sequence[tuple[str, str, list[tuple[str, str, str, str]]]]) -> Table:
    """Every policy with its settings: (name, what, [(setting, kind, default, help)]); at the end those that several have."""
    rows: list[tuple[str, ...]] = []
    styles: dict[tuple[int, int], str] = {}
    own, shared = listed_settings(policies)
    parts = [(name, what, own[name]) for name, what, _ in policies]
    parts += [("of several", ", ".join(names), settings) for names, settings in shared.items()]
    for name, what, settings in parts:
        styles[len(rows), 0] = "bold"
        rows.append((name, "", "", what))
        for setting, kind, initial, text in settings:
            styles[len(rows), 3] = "dim"
            rows.append((f"  {setting}", kind, initial, text))
    heads = ("policy, setting", "takes", "default", "what it is")
    return Table("", heads, tuple(rows), styles=styles, words=(0, 1, 2, 3))
