# SPDX-License-Identifier: Apache-2.0
"""The documents' tables of policies name what the list has (src/memoir/policy/policies.cc), no more and no less."""

import re
from pathlib import Path

from memoir import _core

DOCS = Path(__file__).parents[2] / "docs"


def named_in_tables(text: str, header: str) -> set[str]:
    """The policies in the first column of the table whose header begins so."""
    head = re.search(rf"^\| (\[{header}\]\([^)]*\)|{header}) \|", text, re.MULTILINE)  # a term may be linked
    assert head is not None
    table = text[head.start() :].split("\n\n", 1)[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


def test_the_table_has_every_policy():
    """The guide to simulation leads to the generated list instead."""
    known = {name for name, _, _ in _core.policies("device")}
    assert named_in_tables((DOCS / "guides" / "gpu.md").read_text(), "policy") == known


def test_settings_that_pages_name_exist():
    settings = {setting[0] for _, _, rows in _core.policies() for setting in rows}
    pages = [
        *(DOCS / "concepts").glob("device-pools*.md"),
        DOCS / "notebook" / "pools" / "nine-recorded-programs.md",
    ]
    text = "".join(page.read_text() for page in pages)
    named = set(re.findall(r"[`,](\w+)=[\w.]+`?", text))
    table = text[text.index("| PyTorch | memoir | what |") :].split("\n\n", 1)[0]
    named |= {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[2])}
    named -= {"expandable", "ExpandableHeap", "apart"}  # a policy, its heap, what was tried and left out
    assert len(named) > 10 and named <= settings, named - settings
