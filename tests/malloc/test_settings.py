# SPDX-License-Identifier: Apache-2.0
"""The settings: the guide names those of the library, and a simulation has the same names and values for what it shares."""

import re
from pathlib import Path

from memoir import _core, malloc

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "malloc.md"


def test_the_guide_names_what_there_is(library):
    table = PAGE.read_text().split("| when | set |\n", 1)[1].split("\n\n", 1)[0]
    named = re.findall(r"`(\w+)(?:=[^`]*)?`", table)
    assert len(named) > 4 and set(named) <= {one.name for one in malloc.settings().values()}


def test_a_simulation_has_the_same_settings(library):
    [settings] = [rows for name, _, rows in _core.policies() if name == "lifetime"]
    shared = {
        name: initial for name, _, initial, _ in settings if name not in ("lifetimes", "seed", "ask_again")
    }
    assert shared.items() <= {one.name: one.initial for one in malloc.settings().values()}.items()
    assert {"tau", "slack", "split", "sample", "release", "huge"} <= shared.keys()
