# SPDX-License-Identifier: Apache-2.0
"""The page of a bench, and of what changed between two."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from memoir.bench.process import machine
from memoir.bench.results import Result
from memoir.views import text_table
from memoir.views.page.document import Page
from memoir.views.page.panels import Picture, Table, Text

_QUESTIONS = {
    "times": "How long did every run take?",
    "ratios": "What differs beyond its interval?",
    "serial-normalised-by-allocator": "How does each allocator scale with threads?",
    "serial-normalised-by-load": "How does scaling depend on the load?",
    "memory-against-time": "What does speed cost in memory?",
    "live-and-resident": "How much is held that nobody uses, over time?",
    "scaling": "Does the difference grow with threads?",
    "memory-over-time": "How much memory was held over time?",
    "run-order": "Did the machine stay as it was?",
}


def bench_page(
    result: Result,
    tables: Sequence[text_table.Table],
    figures: Mapping[str, bytes],
    remarks: Sequence[str],
    answers: Sequence[str] = (),
) -> Page:
    """tables in reading order, the summary last; figures as SVG by name; remarks are the notes and warnings; the answers come
    first."""
    about = []
    if "machine" in result.header:
        about.append(machine.line(result.header["machine"]))
    versions = result.header.get("versions", {})
    if versions:
        about.append(", ".join(f"{name}: {version}" for name, version in versions.items()))
    page = Page("Allocators against each other", subtitle=" · ".join(about), notes=remarks)
    page.add(Text("Which allocator, then?", answers) if answers else None)
    summary = [table for table in tables if table.title.startswith(("Overall", "Best"))]
    page.add(*(_table(table) for table in summary))
    for name, svg in figures.items():
        page.add(Picture(_QUESTIONS.get(name, name.replace("-", " ").capitalize()), svg))
    page.add(*(_table(table) for table in tables if table not in summary))
    commands = [shlex.join(one["command"]) for one in result.header.get("grid", {}).get("programs", [])[:12]]
    return page.add(Text("What ran?", lines=commands) if commands else None)


def diff_page(before: str, after: str, tables: Sequence[text_table.Table], notes: Sequence[str]) -> Page:
    """What changed between two benches."""
    page = Page("What changed?", subtitle=f"{before} → {after}", notes=notes)
    return page.add(*(_table(table) for table in tables))


def _question(title: str) -> str:
    if title.startswith("Overall, against "):
        return f"Overall, what differs from {title.removeprefix('Overall, against ')}?"
    asked = {
        "Best beyond doubt": "Who is best beyond doubt?",
        "Scaling": "How does each scale?",
        "Failures": "What failed?",
        "Proof": "Was each allocator in use?",
        "Who scales better": "Who scales better?",
    }
    return asked.get(title, title if title.endswith("?") else f"{title}: what differs?")


def _table(table: text_table.Table) -> Table:
    words = [len(table.columns) - 1] if table.title == "Proof" else []  # the libraries that served
    question = _question(table.title)
    return Table(question, table.columns, table.rows, table.note, left=2, breaks=table.breaks, words=words)
