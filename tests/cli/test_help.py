# SPDX-License-Identifier: Apache-2.0
"""--help of verbs with many options: in sections."""

import importlib
import re

import click
import pytest

from memoir import cli

SECTIONS = {
    "plan": ["Options", "Search"],
    "simulate": ["Options", "Allocators and caps"],
    "bench": ["Options", "What runs", "How often and how", "What is measured and compared", "Results"],
}


@pytest.mark.parametrize("verb", SECTIONS)
def test_every_option_stands_in_one_section(memoir, verb):
    code, out, _ = memoir(verb, "--help")
    assert code == 0
    found = re.findall(r"^(\S[^\n]*):\n((?:  [^\n]*\n|\n)+)", out, re.MULTILINE)
    titles = [title for title, _ in found]
    assert len(titles) == len(SECTIONS[verb])
    assert all(title.startswith(begin) for title, begin in zip(titles, SECTIONS[verb], strict=True))
    listed = [
        name for _, text in found for name in re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
    ]
    command = importlib.import_module(f"memoir.cli.{verb}").command
    options = [
        option.opts[-1] for option in command.params if isinstance(option, click.Option) and not option.hidden
    ]
    assert sorted(listed) == sorted([*options, "--help"])


@pytest.mark.parametrize("verb", cli.VERBS)
def test_h_is_one_screen_and_help_is_all(memoir, verb):
    code, short, err = memoir(verb, "-h")
    assert (code, err) == (0, "") and short.startswith(f"Usage: memoir {verb}")
    assert len(short.splitlines()) <= 24, short  # of a terminal that nobody made larger
    _, whole, _ = memoir(verb, "--help")
    assert set(re.findall(r"--[a-z][\w-]+", short)) <= set(re.findall(r"--[a-z][\w-]+", whole)) | {"--help"}
    if "--help shows" in short:
        more = int(re.search(r"--help shows (\d+) more", short)[1])
        assert more > 0 and len(whole.splitlines()) > 24


def test_an_option_is_in_the_section_that_it_names(memoir):
    _, out, _ = memoir("plan", "--help")
    searching = out.split("Search:\n")[1].split("\n\n")[0]
    assert "--deadline" in searching and "--capacity" not in searching and "--output" not in searching
