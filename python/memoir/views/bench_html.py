# SPDX-License-Identifier: Apache-2.0
"""One page of a bench that opens with no network: everything it shows is inside it."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from memoir.bench import machine
from memoir.bench.results import Result
from memoir.views.bench_tables import Table
from memoir.views.inline_svg import inline_svg

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .8em .15em 0; text-align: left; white-space: nowrap; font-size: .88em; }
th { border-bottom: 1px solid #888; font-weight: 600; } tr.first td { border-top: 1px solid #ccc; }
td.faster, td.less, td.fewer { color: #00664d; } td.slower, td.more { color: #a03000; }
figure { margin: 1em 0; } figure svg { max-width: 100%; height: auto; }
p.answer { font-size: 1.1em; font-weight: 600; }
p.note { color: #555; font-size: .88em; }
@media print {
  body { margin: 0; max-width: none; font-size: 10pt; } .scroll { overflow: visible; }
  table, figure, pre { break-inside: avoid; } h2 { break-after: avoid; } pre { white-space: pre-wrap; }
}
pre { background: #f4f4f4; padding: .6em; overflow-x: auto; }
"""


def page(
    result: Result,
    tables: Sequence[Table],
    figures: dict[str, bytes],
    remarks: Sequence[str],
    answers: Sequence[str] = (),
) -> str:
    """tables in reading order; figures as SVG by name; remarks are the notes and warnings; answers come first."""
    parts = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">', "<title>memoir bench</title>"]
    parts.append(f"<style>{_STYLE}</style></head><body><h1>Allocators against each other</h1>")
    parts += [f'<p class="answer">{html.escape(line)}</p>' for line in answers]
    for program in result.header.get("grid", {}).get("programs", [])[:12]:
        parts.append(f"<pre>{html.escape(shlex.join(program['command']))}</pre>")
    if "machine" in result.header:
        parts.append(f"<p>{html.escape(machine.line(result.header['machine']))}</p>")
    versions = result.header.get("versions", {})
    if versions:
        named = ", ".join(f"{name}: {version}" for name, version in versions.items())
        parts.append(f"<p>{html.escape(named)}</p>")
    parts += [f'<p class="note">{html.escape(remark)}</p>' for remark in remarks]
    parts += [_table(table) for table in tables]
    for number, (name, svg) in enumerate(figures.items(), 1):
        title = html.escape(name.replace("-", " ").capitalize())
        parts.append(f"<h2>{title}</h2><figure>{inline_svg(svg, number)}</figure>")
    return "\n".join([*parts, "</body></html>", ""])


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = []
    for index, row in enumerate(table.rows):
        first = ' class="first"' if index in table.breaks else ""
        rows.append(f"<tr{first}>{''.join(_cell(text) for text in row)}</tr>")
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<h2>{html.escape(table.title)}</h2><div class="scroll"><table>{body}</table></div>{note}'


def _cell(text: str) -> str:
    known = text in ("faster", "slower", "less", "more", "fewer")
    return f"<td{f' class={chr(34)}{text}{chr(34)}' if known else ''}>{html.escape(text)}</td>"
