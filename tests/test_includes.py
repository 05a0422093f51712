# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the table in src/memoir/README.md, checked against every #include of the core."""

import re
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "src" / "memoir"


def allowed() -> dict[str, set[str]]:
    table = {}
    for line in (CORE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            table[name[1]] = set(re.findall(r"`(\w+)`", cells[2]))
    return table


def test_the_table_names_every_folder():
    assert set(allowed()) == {path.name for path in CORE.iterdir() if path.is_dir()}


@pytest.mark.parametrize("folder", sorted(allowed()))
def test_includes(folder):
    for path in (CORE / folder).rglob("*"):
        if path.suffix in {".h", ".cc"}:
            text = path.read_text()
            included = set(re.findall(r'#include "memoir/(\w+)/', text))
            assert included <= allowed()[folder], f"{path.relative_to(CORE)} may not include {included}"
            assert "Python.h" not in text and "nanobind" not in text, f"{path} includes Python"
