# SPDX-License-Identifier: Apache-2.0
"""Why a program ran out of memory, in words and tables: what memoir.simulation.out_of_memory.explain() found."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text, duration_text, printable
from memoir.views.text_table import Table

Answer = dict[str, Any]


def words(answer: Answer) -> str:
    """The answer itself, before any table."""
    failure, cap, needed = answer["failure"], answer["cap"], answer["needed"]
    idle = max(failure["reserved"] - failure["live"], 0)
    where = (
        "the request that was given, at the end of the recording"
        if answer["asked_for"]
        else f"event {failure['event']:,}, {duration_text(answer['time_ns'])} into the recording, ran out of memory"
    )
    lines = [
        f"{answer['trace']}, device {answer['device']}: {where}",
        f"  asked  {bytes_text(failure['asked'])}"
        + (f" at {printable(failure['place'])}" if failure["place"] else ""),
        f"  live   {bytes_text(failure['live'])} in {answer['held']['objects']:,} objects",
        *(
            [
                f"  held   {bytes_text(failure['reserved'])} by the allocator, {bytes_text(idle)} of it idle",
                f"  free   {bytes_text(failure['device_free'])} on the device",
            ]
            if failure["reserved"]
            else ["  held   and free: not in the recording"]
        ),
        f"  cap    {_cap_text(answer)}: {_CAPS[answer['cap_from']]}",
    ]
    if answer["failures"] > 1 and not answer["asked_for"]:
        lines.append(f"  {answer['failures']:,} requests failed in all; --event chooses another")
    return "\n".join([*lines, "", _verdict(answer, cap, needed), *_doubts(answer)])


_CAPS = {
    "held and free": "what the allocator held and what was free",
    "held": "what the allocator held, and that with the request. The device had room, so a limit of the process said no "
    "(per_process_memory_fraction?): say which with --cap",
    "the error": "as the error says, to its digits",
    "given": "as given",
}


def _cap_text(answer: Answer) -> str:
    low, most = answer["cap"], answer["cap_most"]
    return bytes_text(low) if low == most else f"between {bytes_text(low)} and {bytes_text(most)}"


def _verdict(answer: Answer, cap: int, needed: int) -> str:
    fits, most, live = (
        answer["any_placement_fits"],
        answer["cap_most"],
        f"with it {bytes_text(needed)} are live",
    )
    if answer["recorded_fails_again"] is False:
        return _not_reproduced(answer)
    if fits is False:
        return (
            f"No placement could have served it: {live}, {bytes_text(needed - most)} more than the cap. Only less live "
            "memory helps."
        )
    if fits is None and needed > cap:
        text = f"Perhaps no placement could have served it: {live}, and the limit may have been less or more."
    elif fits is None:
        text = f"{live[0].upper()}{live[1:]}, under the cap; private pools keep some of that apart."
    else:
        text = (
            f"A placement could have served it: {live}, {bytes_text(cap - needed)} under the cap. The memory was there, but "
            "in pieces."
        )
    text += f" {answer['survivors']} of {len(answer['rows'])} settings and policies would have survived"
    return text + (f", {answer['perhaps']} more perhaps." if answer["perhaps"] else ".")


def _not_reproduced(answer: Answer) -> str:
    """What a replay that succeeds says, why that may be, and what to record next."""
    if answer["cap_from"] == "given":
        why = "the limit that was given, or"
    elif answer["start"] != "recorded":
        why = "what the allocator held before the recording began (replays start empty), or"
    else:
        why = ""
    return (
        "Not reproduced: replayed with its recorded settings, the program gets this request. What made it fail is not in "
        f"the recording: {why} memory that other processes and libraries had at that moment, a share that the process was "
        "limited to (per_process_memory_fraction), or events that the history had dropped. So that other settings survive "
        "as well says nothing.\n"
        "Record it again from the program's start, with torch.cuda.memory._record_memory_history(max_entries=10**7) and "
        "the snapshot dumped where the error is caught, or give the limit with --cap, or the error's text with --asked."
    ).replace(":  ", ": ")


def _doubts(answer: Answer) -> list[str]:
    return [f"Replays start empty: {answer['why_afresh']}"] if answer["why_afresh"] else []


def ranked_table(answer: Answer) -> Table:
    """Every setting and policy, the one with the most room first."""
    searched = any(row["smallest_cap"] for row in answer["rows"])
    started = answer["start_segments"] > 0
    heads = ("settings or policy", "survives", *("room", "smallest cap") * searched, "held", "device calls")
    heads += ("start",) * started
    rows: list[tuple[str, ...]] = []
    for row in answer["rows"]:
        cells = [printable(row["policy"])]
        cells[0] += " (recorded)" * (answer["recorded_is_known"] and row["policy"] == answer["recorded"])
        cells.append(row["verdict"] if row["verdict"] != "no" else _failed_at(answer, row))
        if searched:
            known = row["smallest_cap"] is not None
            cells += [_signed(row["room"]), bytes_text(row["smallest_cap"])] if known else ["-", "none found"]
        cells += [bytes_text(row["peak_reserved"]), f"{row['device_calls']:,}"]
        rows.append((*cells, *[row["start"]] * started))
    failed = {(number, 1): "bad" for number, row in enumerate(answer["rows"]) if row["verdict"] == "no"}
    words = (0, 1, *[len(heads) - 1] * started)
    return Table("", heads, tuple(rows), styles=failed, words=words)


def _failed_at(answer: Answer, row: dict[str, Any]) -> str:
    event = row["out_of_memory"]["event"]
    return "no" if event == answer["failure"]["event"] else f"no, event {event:,}"


def _signed(count: int) -> str:
    return f"+{bytes_text(count)}" if count >= 0 else f"-{bytes_text(-count)}"


def sites_table(answer: Answer, most: int = 10) -> Table:
    """Who held the memory, most bytes first."""
    rows: list[tuple[str, ...]] = []
    held = answer["held"]
    for row in held["sites"][:most]:
        share = 100 * row["bytes"] / held["bytes"] if held["bytes"] else 0
        cells = (bytes_text(row["bytes"]), f"{share:.1f} %", f"{row['objects']:,}", _oldest(row))
        rows.append((printable(row["place"]), *cells))
    return _table("who held it", "bytes", "share", "objects", "oldest", rows=rows)


def ages_table(answer: Answer) -> Table:
    """The same by age."""
    rows: list[tuple[str, ...]] = []
    for row in answer["held"]["ages"]:
        if row["from_ns"] is None:
            age = "before the recording"
        elif row["to_ns"] is None:
            age = f"{duration_text(row['from_ns'])} or more"
        else:
            age = f"{duration_text(row['from_ns'])} to {duration_text(row['to_ns'])}"
        rows.append((age, bytes_text(row["bytes"]), f"{row['objects']:,}"))
    return _table("live since", "bytes", "objects", rows=rows)


def pins_table(answer: Answer, most: int = 5) -> Table:
    """Who kept free memory from going back, most first."""
    rows: list[tuple[str, ...]] = []
    for row in answer["held"]["pins"][:most]:
        cells = (bytes_text(row["kept_bytes"]), bytes_text(row["bytes"]), f"{row['objects']:,}", _oldest(row))
        rows.append((printable(row["place"]), *cells))
    return _table("what kept free memory from going back", "kept", "with", "objects", "oldest", rows=rows)


def paste_lines(answer: Answer) -> str:
    """What to change, exactly."""
    paste = answer["paste"]
    lines = [line for line in (paste["pytorch"], paste["memoir"]) if line]
    if answer["recorded_fails_again"] is False:
        return "No settings are advised: the failure is not reproduced."
    if not lines and answer["survivors"]:
        return "Nothing that a RAPIDS program can load serves the request under this cap."
    if not lines:
        return "None of these settings and policies serves the request under this cap."
    certain = "To survive" if answer["survivors"] else "Perhaps to survive"
    return f"{certain} this request, start the program with\n" + "\nor\n".join(f"  {line}" for line in lines)


def _table(*heads: str, rows: list[tuple[str, ...]]) -> Table:
    return Table("", heads, tuple(rows), words=(0,))


def _oldest(row: dict[str, Any]) -> str:
    return "before the recording" if row["before_recording"] else duration_text(row["oldest_ns"])
