# SPDX-License-Identifier: Apache-2.0
"""Who may import whom in Python: the table in python/memoir/README.md, checked against every import, also those inside
functions and those for type checkers."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "python" / "memoir"
BUILT = {"memoir._core": "_core", "memoir._torch": "_torch"}  # extension modules, each a room of its own


def module_name(path: Path) -> str:
    parts = ["memoir", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def room_of(module: str) -> str:
    """The folder of a module; a module next to the package's door is a room of its own."""
    if module in BUILT:
        return BUILT[module]
    folder = str(MODULES[module].parent.relative_to(PACKAGE))
    return folder if folder != "." else module.removeprefix("memoir").removeprefix(".") or "memoir"


def imported(path: Path) -> set[str]:
    """The modules of memoir that a file imports: of `from memoir.views import heap_map` memoir.views.heap_map, of
    `from memoir.planning import plan` memoir.planning."""
    known = {*MODULES, *BUILT}
    found = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: import by the full name"
            module = statement.module or ""
            names = [
                name if (name := f"{module}.{alias.name}") in known or module not in known else module
                for alias in statement.names
            ]
        else:
            continue
        found |= {name for name in names if name.split(".")[0] == "memoir"}
    return found


def allowed() -> dict[str, set[str]]:
    """The table: a room, and the rooms that it may import."""
    table = {}
    for line in (PACKAGE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and (name := re.fullmatch(r"`([\w/]+)`", cells[0])):
            table[name[1]] = set(re.findall(r"`([\w/]+)`", cells[2])) | {name[1]}
    return table


def test_the_table_names_every_room():
    assert set(allowed()) == {room_of(module) for module in MODULES}


def test_every_import_is_of_a_module_that_there_is():
    for module, path in MODULES.items():
        unknown = imported(path) - {*MODULES, *BUILT}
        assert not unknown, f"{module} imports {unknown}"


@pytest.mark.parametrize("room", sorted(allowed()))
def test_imports(room):
    for module, path in MODULES.items():
        if room_of(module) == room:
            rooms = {room_of(other) for other in imported(path)}
            assert rooms <= allowed()[room], f"{module} may not import from {rooms - allowed()[room]}"


def test_no_two_rooms_import_each_other():
    graph = {room: others - {room} for room, others in allowed().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_no_modules_import_each_other():
    TopologicalSorter({module: imported(path) - {module} for module, path in MODULES.items()}).prepare()
