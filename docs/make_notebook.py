#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/notebook/README.md, the index of what was tried and measured, from the heads of its files.

A file is one try or one measurement: a title, then a list of `Question`, `Change`, `Gave`, `Kept` and `Commit`, then
what was seen. A new one needs nothing else but a run of this program."""

import re
from pathlib import Path

NOTEBOOK = Path(__file__).parent / "notebook"
FIELDS = ("Question", "Change", "Gave", "Kept", "Commit")
ROOMS = {
    "remember": "PyTorch models on CPUs",
    "malloc": "The malloc",
    "pools": "Pools for GPUs, and their simulation",
    "plan": "Planners",
    "record": "Recording, and the page of a recording",
    "train": "Predicted lifetimes",
    "bench": "memoir bench",
    "gates": "Tests",
}
HEAD = """# Notebook

What was tried and measured, a file each: the question, the change, what it gave, whether it was
kept, and the commit that wrote it down. Figures are those of their day and machine. What holds now
is in the [results](../results/README.md). `docs/make_notebook.py` writes this index.
"""


def read(path: Path) -> tuple[str, dict[str, str]]:
    """The title and the fields of a file; AssertionError says what is missing."""
    title, head = path.read_text().split("\n\n")[:2]
    assert title.startswith("# "), f"{path}: no title"
    fields = dict(re.findall(r"^\* (\w+): (.+)", head.replace("\n  ", " "), re.MULTILINE))
    assert tuple(fields) == FIELDS, f"{path}: has {', '.join(fields)}"
    return title[2:], fields


def index() -> str:
    """The text of the index."""
    text = HEAD
    assert {folder.name for folder in NOTEBOOK.iterdir() if folder.is_dir()} == set(ROOMS)
    for room, title in ROOMS.items():
        text += f"\n## {title}\n\n| what | question | kept |\n|---|---|---|\n"
        for path in sorted((NOTEBOOK / room).glob("*.md")):
            name, fields = read(path)
            kept = "a measurement" if fields["Kept"] == "no change" else fields["Kept"]
            text += f"| [{name}]({room}/{path.name}) | {fields['Question']} | {kept} |\n"
    return text


if __name__ == "__main__":
    (NOTEBOOK / "README.md").write_text(index())
