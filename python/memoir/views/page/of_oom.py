# SPDX-License-Identifier: Apache-2.0
"""The page of a failed request: why it failed, where everything lay then, who held it, and what would have served it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from memoir._core import Error, Trace, Workload
from memoir.base.quantities import bytes_text
from memoir.views import oom_text, text_table
from memoir.views.page.addresses import largest_hole
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet, objects_of, recorded_addresses
from memoir.views.page.of_simulation import lines_of
from memoir.views.page.of_trace import device_map
from memoir.views.page.panels import Fact, Flame, HeapMaps, Table, Text
from memoir.views.page.placed import placed_map
from memoir.views.search_text import found_lines, matters_table

_MOST_CURVES = 6

Answer = dict[str, Any]  # of memoir.simulation.out_of_memory.explain()


def oom_page(answer: Answer, trace: Trace, workload: Workload) -> Page:
    """`workload`: of the trace and device, up to the request that failed."""
    device, tick = answer["device"], answer["failure"]["event"]
    objects = objects_of(trace, device).until(tick + 1)
    recorded = device_map(trace, objects, device)
    said = [line.strip() for line in oom_text.words(answer).split("\n\n", 1)[1].splitlines()]
    page = Page(
        f"Why did {Path(answer['trace']).name} run out of memory?",
        subtitle=said[0],
        facts=_facts(answer, recorded, objects),
        notes=said[1:],
    )
    paste = [line for line in (answer["paste"]["pytorch"], answer["paste"]["memoir"]) if line]
    if paste:
        page.add(Text("What would have served it?", ["Start the program with one of these."], paste))
    else:
        page.add(Text("What would have served it?", [oom_text.paste_lines(answer)]))
    page.add(_maps(answer, trace, workload, objects, recorded))
    page.add(
        _table("Who held the memory when it failed?", oom_text.sites_table(answer, 100)),
        _table("How long had it been held?", oom_text.ages_table(answer)),
        _table("What kept free memory from going back?", oom_text.pins_table(answer, 100)),
    )
    if len(objects) and "site" in objects.columns:
        page.add(Flame("Who allocates?", objects, measures=("never", "peak", "allocated", "count", "moment")))
    page.add(Table.of("Which settings and policies survive?", oom_text.ranked_table(answer)))
    page.add(lines_of(_some(answer), ""))
    if "search" in answer:
        question = "What did the search over PyTorch's settings find?"
        page.add(Table.of(question, matters_table(answer["search"]), found_lines(answer["search"]), left=3))
    return page


def _facts(answer: Answer, recorded: HeapMaps, objects: ObjectSet) -> list[Fact]:
    failure = answer["failure"]
    live, held = failure["live"], failure["reserved"]
    facts = [
        Fact("Asked for", bytes_text(failure["asked"]), f"at event {failure['event']:,}"),
        Fact("Held", bytes_text(held), f"{held / live:.3f} x the {bytes_text(live)} live" if live else ""),
    ]
    shown = recorded.maps[0]
    if len(shown.segments) and not recorded.question.startswith("Where would"):
        tick = failure["event"]
        alive = objects.at(tick) & (shown.placed if shown.placed is not None else objects.at(tick))
        largest, free = largest_hole(
            shown.segments.at(tick), shown.addresses[alive], objects.size[alive].astype("uint64")
        )
        note = f"of {bytes_text(free)} free in what was held, and {bytes_text(failure['device_free'])} on the device"
        facts.append(Fact("Largest request that still fitted", bytes_text(largest), note))
    else:
        facts.append(Fact("Free on the device", bytes_text(failure["device_free"])))
    facts.append(Fact("Memory that there was", bytes_text(answer["cap"]), answer["cap_from"]))
    served = f"{answer['survivors']} of {len(answer['rows'])}"
    facts.append(Fact("Settings and policies that survive", served))
    return facts


def _maps(
    answer: Answer, trace: Trace, workload: Workload, objects: ObjectSet, recorded: HeapMaps
) -> HeapMaps | None:
    """The recording, next to what serves the request with most room."""
    if not len(objects):
        return None
    device, tick = answer["device"], answer["failure"]["event"]
    maps = []
    known, _ = recorded_addresses(trace, objects)
    if known.any():
        maps = list(recorded.maps)
        maps[0].name = "as recorded"
        maps[0].lines = [("cap", answer["cap"])]
    best = next((row for row in answer["rows"] if row["survives"]), None)
    policies = [row["policy"] for row in (best,) if row] if maps else []
    if not maps:
        policies = [answer["recorded"], *[row["policy"] for row in (best,) if row]]
    for policy in dict.fromkeys(policies):
        row = next(row for row in answer["rows"] if row["policy"] == policy)
        start = answer["recorded"] if row["start"] == "recorded" else ""
        with contextlib.suppress(Error):  # the table says what went wrong
            maps.append(
                placed_map(
                    trace,
                    device,
                    policy,
                    objects,
                    name=f"{policy}: {'serves it' if row['survives'] else 'fails'}",
                    cap=answer["cap"],
                    recorded=start,
                    workload=workload,
                )
            )
    if not maps:
        return None
    serves = f", next to {best['policy']}, which serves it" if best else ""
    return HeapMaps(
        "Where did every object lie when it failed?",
        objects,
        maps[:2],
        f"The recording up to the failure{serves}. Grey is held and free: the request fits into no single piece of it.",
        moment=tick,
    )


def _some(answer: Answer) -> list[dict[str, Any]]:
    """What was recorded, and the policies with the most room."""
    wanted = [answer["recorded"], *(row["policy"] for row in answer["rows"])]
    wanted = list(dict.fromkeys(wanted))[:_MOST_CURVES]
    return [result for result in answer["results"] if result["policy"] in wanted]


def _table(question: str, table: text_table.Table) -> Table | None:
    return Table.of(question, table) if table.rows else None
