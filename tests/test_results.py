# SPDX-License-Identifier: Apache-2.0
"""Results are written once: the notebook's index from its files."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def program(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_of_the_notebook_is_that_of_its_files():
    assert (DOCS / "notebook/README.md").read_text() == program("make_notebook").index()


def test_links_of_the_notebook_lead_somewhere():
    missing = []
    for page in [*(DOCS / "notebook").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        missing += [
            f"{page.relative_to(ROOT)}: {link}"
            for link in links
            if not re.match(r"https?:|mailto:", link) and not (page.parent / link).exists()
        ]
    assert not missing, "\n".join(missing)
