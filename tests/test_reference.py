# SPDX-License-Identifier: Apache-2.0
"""docs/reference has what the code has: `.venv/bin/python docs/make_reference.py` writes it."""

import importlib
import importlib.util
import re
from pathlib import Path

import click
import pytest

from memoir import _core, cli, malloc

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
AGAIN = "call .venv/bin/python docs/make_reference.py"


def squeezed(text: str) -> str:
    """Without white space: how lines are wrapped is the library's, and differs between its versions."""
    return "".join(text.replace("\\", "").split())


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_and_option_stands_in_the_reference_and_in_the_man_page(verb):
    command = importlib.import_module(f"memoir.cli.{verb}").command
    whole = (FOLDER / "commands.md").read_text()
    once = whole.split("\n* ", 1)[0]  # what every verb takes
    page = once + whole.split(f"\n## memoir {verb}\n", 1)[1].split("\n## ", 1)[0]
    manual = (
        (FOLDER / "memoir.1").read_text().split(f"\n.SH MEMOIR {verb.upper()}\n", 1)[1].split("\n.SH ", 1)[0]
    )
    for text in (squeezed(page), squeezed(manual)):
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[-1] in text, f"{option.opts[-1]}: {AGAIN}"
                assert squeezed(option.help or "") in text, f"{option.opts[-1]}: {AGAIN}"


def test_every_policy_and_setting():
    text = (FOLDER / "policies.md").read_text()
    of_several = text.split("\n## Settings of several policies\n", 1)[1]
    for name, what, settings in _core.policies():
        part = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
        assert what in part, AGAIN
        rows = part.splitlines() + [
            line for line in of_several.splitlines() if re.search(rf"\b{name}\b", line)
        ]
        for setting in settings:
            row = f"| `{setting[0]}` | {setting[1]} | {setting[2]} |"
            assert sum(line.startswith(row) for line in rows) == 1, f"{name}: {setting[0]}: {AGAIN}"
    text = (FOLDER / "malloc-settings.md").read_text()
    for one in malloc.settings().values():
        assert f"| `{one.name}` | {one.unit} | {one.initial} | {one.help} |" in text, AGAIN


# What there is to learn, and to keep: a new option takes the place of another, or needs a reason here.
MOST_OPTIONS = 161  # of all verbs together
MOST_OWN_OPTIONS = 117  # the same without -o, -f, --json and --yes, which mean one thing wherever they are
MOST_SETTINGS = 62  # of policies and the malloc, one that several have counted once
EVERYWHERE = {"--output", "--force", "--json", "--yes"}


def test_options_and_settings_are_no_more_than_their_budget():
    options = [
        option.opts
        for verb in cli.VERBS
        for option in importlib.import_module(f"memoir.cli.{verb}").command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    own = [names for names in options if not EVERYWHERE & set(names)]
    assert len(options) <= MOST_OPTIONS and len(own) <= MOST_OWN_OPTIONS, (len(options), len(own))
    policies = {(one[0], one[3]) for _, _, settings in _core.policies() for one in settings}
    rows = policies | {(one.name, one.help) for one in malloc.settings().values()}
    assert len(rows) <= MOST_SETTINGS, len(rows)


def test_tuning_names_settings_with_their_initial_values():
    parts = (FOLDER / "tuning.md").read_text().split("\n## ")
    pool = {one[0]: one[2] for name, _, settings in _core.policies() for one in settings if name == "memoir"}
    for title, initial in (
        ("The malloc", {one.name: one.initial for one in malloc.settings().values()}),
        ("Pools for GPUs", pool),
    ):
        (part,) = (part for part in parts if part.startswith(title))
        named = re.findall(r"`(\w+)` \((\w[\w.]*)", part)
        settings = [(name, value) for name, value in named if name in initial]
        assert len(settings) >= 5
        for name, value in settings:
            assert str(initial[name]) == value, f"{title}: {name}"


def test_every_public_name_of_python():
    pytest.importorskip("torch", reason="the page has memoir.torch")
    text = (FOLDER / "python.md").read_text()
    for module in ("memoir", "memoir.torch"):
        for name in importlib.import_module(module).__all__:
            if not name.startswith("_"):
                assert f"### {module}.{name}\n" in text, f"{module}.{name}: {AGAIN}"


def test_every_function_of_the_headers_for_c():
    headers = [path for path in (ROOT / "src/memoir").rglob("memoir_*.h") if 'extern "C"' in path.read_text()]
    assert len(headers) == 3
    text = (FOLDER / "c.md").read_text()
    for header in headers:
        assert f"`#include <{header.name}>`" in text, AGAIN
        functions = re.findall(r"\b(memoir_\w+)\(", header.read_text())
        assert len(functions) > 5
        assert [name for name in functions if f"{name}(" not in text] == [], AGAIN


def test_the_writer_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="the page has memoir.torch")
    where = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    writer = importlib.util.module_from_spec(where)
    where.loader.exec_module(writer)
    for name, make in writer.PAGES.items():
        assert squeezed(make())[:200] == squeezed((FOLDER / name).read_text())[:200]
