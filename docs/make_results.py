#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/results, their charts, and README's table, from docs/results/data/DOOR.json.

A figure of ours is written down once, in that file: its value, its interval where one was measured, and the measurement
that it is of (commit, machine, load, replicates, whether its programs were tuned on). Texts name figures:

    {name}      as it is written down: 0.832
    {name:2}    rounded to two digits after the point: 0.83
    {name:i}    with its interval: 0.832 [0.792, 0.875]; {name:2i} rounded
    {name:%}    what it is above 1, in per cent: 27 for 1.267
    {name:1/}   one over it, to as many digits as it has

    docs/make_results.py            after a change of a JSON file, or of project.urls in pyproject.toml
"""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
DOORS = ("remember", "malloc", "pools", "plan", "record", "train", "bench")
BEGIN, END = "<!-- written by docs/make_results.py -->", "<!-- end -->"


def parse(text: str) -> dict[str, Any]:
    """Results; numbers keep the digits that they are written with."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def load(door: str) -> dict[str, Any]:
    return parse((RESULTS / "data" / f"{door}.json").read_text())


def dump(results: dict[str, Any]) -> str:
    """The text of a file of results: what comes in numbers has a line each."""

    def line(value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False, default=lambda number: f"\0{number}")
        return re.sub(r'"\\u0000([^"]*)"', r"\1", text)

    def block(value: Any, deep: int) -> str:
        if deep == 0 or not isinstance(value, (dict, list)) or not value:
            return line(value)
        if isinstance(value, dict):
            inner = [f"{line(key)}: {block(one, deep - 1)}" for key, one in value.items()]
        else:
            inner = [block(one, deep - 1) for one in value]
        pad = " " * (4 - deep)
        begin, end = "{}" if isinstance(value, dict) else "[]"
        return begin + "\n" + ",\n".join(pad + one for one in inner) + "\n" + pad[1:] + end

    deep = {"table": 2, "chart": 2, "remake": 1}
    lines = []
    for key, value in results.items():
        many = isinstance(value, (dict, list))
        depth = deep.get(key, 1) if many else 0
        text = block(value, depth)
        lines.append(f"{line(key)}: {text}")
    return "{\n" + ",\n".join(" " + one for one in lines) + "\n}\n"


def rounded(value: Decimal, digits: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def figure(results: dict[str, Any], name: str, form: str = "") -> str:
    """A figure in words; KeyError where there is none of that name."""
    one = results["figures"][name]
    value, low, high = (one.get(key) for key in ("value", "low", "high"))
    if form == "%":
        return str(rounded((value - 1) * 100, 0))
    if form == "1/":
        return str(rounded(1 / value, -value.as_tuple().exponent))
    digits = re.match(r"\d*", form)[0]
    said = [rounded(x, int(digits)) if digits else x for x in (value, low, high) if x is not None]
    text = [f"{x:,}" for x in said]
    return f"{text[0]} [{text[1]}, {text[2]}]" if form.endswith("i") and len(text) == 3 else text[0]


def fill(results: dict[str, Any], text: str) -> str:
    return re.sub(r"\{(\w+)(?::([^}]*))?\}", lambda match: figure(results, match[1], match[2] or ""), text)


def chart(results: dict[str, Any]) -> str:
    """Bars with intervals on one axis, in the colours of a light or a dark page. SVG."""
    shown = results["chart"]
    bars = [(label, results["figures"][name]) for label, name in shown["bars"]]
    top = max(float(one.get("high") or one["value"]) for _, one in bars) * 1.08
    left, width, step = 230, 420, 26
    height = 34 + step * len(bars) + 10

    def x(value: Any) -> str:
        return f"{left + width * float(value) / top:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {height}" font-family="sans-serif" font-size="13"'
        f' role="img"><title>{escape(shown["title"])}</title>',
        "<style>text{fill:#222}.bar{fill:#4878a8}.ours{fill:#c8642c}.low{stroke:#222}.one{stroke:#888;stroke-dasharray:4}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.low{stroke:#ddd}}</style>",
        f'<text x="6" y="18" font-weight="bold">{escape(shown["title"])}</text>',
    ]
    line = shown.get("line")
    if line is not None:
        parts.append(f'<line class="one" x1="{x(line)}" x2="{x(line)}" y1="28" y2="{height - 6}"/>')
    for row, (label, one) in enumerate(bars):
        y = 34 + step * row
        kind = "ours" if label.startswith("memoir") else "bar"
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{y + 2}" width="{float(x(one["value"])) - left:.1f}" height="16"/>'
        )
        if one.get("low") is not None:
            parts.append(
                f'<line class="low" x1="{x(one["low"])}" x2="{x(one["high"])}" y1="{y + 10}" y2="{y + 10}"/>'
            )
        end = float(x(one.get("high") or one["value"])) + 6
        parts.append(f'<text x="{end:.1f}" y="{y + 14}">{one["value"]:,}</text>')
    return "\n".join([*parts, "</svg>", ""])


def measured(results: dict[str, Any]) -> list[str]:
    """Where each measurement comes from. What nobody wrote down is "not said", a commit only where there is one."""
    lines = []
    for name, one in results["measured"].items():
        known = [f"{one[key]}" for key in ("date", "machine", "programs") if one.get(key)]
        known += [f"{key} {one[key]}" for key in ("load", "replicates", "commit") if one.get(key)]
        missing = [key for key in ("date", "machine", "load", "replicates") if not one.get(key)]
        if missing:
            known.append(f"not said: {', '.join(missing)}")
        if one.get("notebook"):
            known.append(f"[notebook](../notebook/{one['notebook']})")
        lines.append(f"* **{name}**: {'; '.join(known)}")
    return lines


def page(door: str, results: dict[str, Any]) -> str:
    """The text of docs/results/DOOR.md."""

    def say(text: str) -> str:
        return fill(results, text)

    table = results["table"]
    columns = table["columns"]
    lines = [
        f"<!-- written by docs/make_results.py from data/{door}.json -->",
        f"# {results['title']}",
        "",
        say(results["says"]),
        "",
        f"![{results['chart']['title']}]({door}.svg)",
        "",
        say(table["about"]),
        "",
        f"| {' | '.join(columns)} |",
        "|" + "|".join(["---"] + ["---:"] * (len(columns) - 1)) + "|",
        *(f"| {' | '.join(say(cell) for cell in row)} |" for row in table["rows"]),
        "",
        "## Where it loses",
        "",
        *(f"* {say(text)}" for text in results["loses"]),
        "",
        "## More figures",
        "",
        *(f"* {say(text)}" for text in results["more"]),
        "",
        "## Measured",
        "",
        *measured(results),
        "",
        "Again, on your machine (what ends early goes on where it stopped):",
        "",
        "```sh",
        f"bench/results.py {door} --budget 20min",
        "```",
        "",
        f"Whole tables: {', '.join(f'[{name}](data/{name})' for name in results['tables'])}.",
        f"What was tried: the [notebook](../notebook/README.md#{results['room']}).",
        "",
    ]
    return "\n".join(lines)


def index(all_results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "<!-- written by docs/make_results.py from data -->",
        "# Results",
        "",
        "A page for each door. Every figure stands once, in a file of `data`, with its commit, machine and",
        "load; README and guides say the same ones, which `tests/test_results.py` holds. Where a page names",
        "no commit, nobody wrote one down.",
        "",
        "| door | what is measured |",
        "|---|---|",
        *(f"| [{door}]({door}.md) | {results['about']} |" for door, results in all_results.items()),
        "",
        "What was tried on the way: the [notebook](../notebook/README.md).",
        "",
    ]
    return "\n".join(lines)


def address() -> str:
    """Where the repository is: project.urls in pyproject.toml is the one place that says so."""
    return re.search(r'^Source = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]


def readme_table(all_results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| what is measured: less is better | next to what people run today | next to the best known | where it loses |",
        "|---|---|---|---|",
    ]
    for door, results in all_results.items():
        if row := results.get("readme"):
            cells = [fill(results, row[key]) for key in ("what", "today", "best", "loses")]
            cells[0] = f"[{row['name']}](docs/results/{door}.md): {cells[0]}"
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def readme(all_results: dict[str, dict[str, Any]]) -> str:
    """README as it should be: its table, and links that lead somewhere from the package index too."""
    text = (ROOT / "README.md").read_text()
    head, rest = text.split(BEGIN)
    text = head + BEGIN + "\n" + readme_table(all_results) + "\n" + END + rest.split(END, 1)[1]

    def absolute(match: re.Match[str]) -> str:
        link = re.sub(r"^https://[^/]+/[^/]+/[^/]+/(?:blob|raw|tree)/main/", "", match[3])
        if "://" in link or link.startswith("#"):
            return match[0]
        kind = "raw" if match[1] else "tree" if (ROOT / link).is_dir() else "blob"
        return f"{match[1]}{match[2]}({address()}/{kind}/main/{link})"

    return re.sub(r"(!?)(\[[^\[\]]*\])\(([^)\s]+)\)", absolute, text)


def written() -> dict[Path, str]:
    """All that this program writes, by path."""
    all_results = {door: load(door) for door in DOORS}
    texts = {RESULTS / "README.md": index(all_results), ROOT / "README.md": readme(all_results)}
    for door, results in all_results.items():
        texts[RESULTS / f"{door}.md"] = page(door, results)
        texts[RESULTS / f"{door}.svg"] = chart(results)
    return texts


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
