# SPDX-License-Identifier: Apache-2.0
"""The documents' tables of policies name what the list has (src/memoir/policy/policies.cc), no more and no less."""

import re
from pathlib import Path

import pytest

from memoir import _core

DOCS = Path(__file__).parents[2] / "docs"


def named_in_tables(text: str, header: str) -> set[str]:
    """The policies in the first column of the table whose header begins so."""
    table = text[text.index(f"| {header} |") :].split("\n\n", 1)[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("page", "header", "substrate"),
    [("guides/gpu.md", "policy", "device"), ("guides/simulate.md", "name", "simulation")],
)
def test_the_table_has_every_policy(page, header, substrate):
    known = {name for name, _, _ in _core.policies(substrate)}
    assert named_in_tables((DOCS / page).read_text(), header) == known


def test_settings_that_a_page_names_exist():
    settings = {setting[0] for _, _, rows in _core.policies() for setting in rows}
    text = (DOCS / "concepts" / "device-pools.md").read_text()
    tables = re.findall(r"\| setting \| initial \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", text)
    named = {
        name
        for table in tables
        for line in table.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert len(named) > 10 and named <= settings, named - settings
