# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the table in src/memoir/README.md, checked against every #include of the core. And one word, one
thing: no two files define types of one name."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "src" / "memoir"


def allowed() -> dict[str, set[str]]:
    """The table: a room, and the rooms that it may include."""
    table = {}
    for line in (CORE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and (name := re.fullmatch(r"`([\w/]+)`", cells[0])):
            table[name[1]] = set(re.findall(r"`([\w/]+)`", cells[2])) | {name[1]}
    return table


def sources(room: str) -> list[Path]:
    return [path for path in (CORE / room).iterdir() if path.suffix in {".h", ".cc"}]


def included(path: Path) -> set[str]:
    """The rooms of the headers that a file includes."""
    return {str(Path(header).parent) for header in re.findall(r'#include "memoir/([^"]+)"', path.read_text())}


def test_the_table_names_every_room():
    rooms = {str(path.parent.relative_to(CORE)) for path in CORE.rglob("*") if path.suffix in {".h", ".cc"}}
    assert set(allowed()) == rooms


@pytest.mark.parametrize("room", sorted(allowed()))
def test_includes(room):
    for path in sources(room):
        assert included(path) <= allowed()[room], f"{path.relative_to(CORE)} may not include {included(path)}"
        text = path.read_text()
        assert "Python.h" not in text and "nanobind" not in text, f"{path} includes Python"


def test_no_two_rooms_include_each_other():
    graph = {room: others - {room} for room, others in allowed().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


DEFINITION = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)(?!\w|::)[^;(]*\{")


def defined(path: Path) -> set[str]:
    """The types that a file defines in named namespaces, with their namespaces; not those inside other types."""
    found, spaces = set(), []
    for line in path.read_text().splitlines():
        if opened := re.match(r"(?:inline )?namespace ([\w:]*) ?\{$", line):
            spaces.append(opened[1])
        elif re.match(r"\}  // namespace", line):
            spaces.pop()
        elif (definition := DEFINITION.match(line)) and all(spaces):
            found.add("::".join([*spaces, definition[1]]))
    return found


def test_no_two_types_have_one_name():
    """The linker would take either's destructor for both, and say nothing."""
    places: dict[str, list[str]] = {}
    for path in sorted([*CORE.rglob("*"), *(Path(__file__).parent / "support").glob("*")]):
        if path.suffix in {".h", ".cc"}:
            for name in defined(path):
                places.setdefault(name, []).append(path.name)
    assert "memoir::Buffer" in places
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


DOORS = {"preload", "torch", "onnxruntime", "c"}


def test_nobody_includes_a_door():
    for room, others in allowed().items():
        doors = {other for other in others - {room} if Path(other).name in DOORS}
        assert not doors, f"{room} may include the doors {doors}"
