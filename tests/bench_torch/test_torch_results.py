# SPDX-License-Identifier: Apache-2.0
"""The results file: whatever happens to the program, what was measured is there, whole, and once."""

import json

import made_up
import pytest
from latency.results import Results

from memoir import Error

SPEEDS = {"glibc": 2.0, "memoir": 1.0}


def blocks(results):
    return {key: [block["runs"] for block in cell["blocks"]] for key, cell in results.cells.items()}


def test_a_finished_run_reads_back_and_leaves_no_journal(tmp_path):
    path = tmp_path / "r.json"
    made = made_up.results(SPEEDS, path=path)
    assert not path.exists()
    made.finish()
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
    back = Results.read(path)
    assert (back.header, back.cells) == (made.header, made.cells)
    json.loads(path.read_text())


def test_a_journal_cut_off_anywhere_keeps_all_that_came_before(tmp_path):
    path = tmp_path / "r.json"
    made = made_up.results(SPEEDS, path=path)
    journal = tmp_path / "r.json.journal"
    content = journal.read_bytes()
    whole = sum(len(several) for several in blocks(made).values())
    for length in range(len(content.split(b"\n")[0]) + 1, len(content), 997):
        journal.write_bytes(content[:length])
        kept = sum(len(several) for several in blocks(Results.read(path)).values())
        assert kept == content[:length].count(b'{"record":"block"') - (
            b'{"record":"block"' in content[:length].split(b"\n")[-1]
        )
    journal.write_bytes(content)
    assert sum(len(several) for several in blocks(Results.read(path)).values()) == whole


def test_a_journal_that_outlived_its_document_counts_nothing_twice(tmp_path):
    path = tmp_path / "r.json"
    made = made_up.results(SPEEDS, path=path)
    journal = (tmp_path / "r.json.journal").read_bytes()
    made.finish()
    (tmp_path / "r.json.journal").write_bytes(journal)
    assert blocks(Results.read(path)) == blocks(made)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a results file"),
        ("[1]", "not a results file"),
        ('{"format": "memoir-torch-latency", "version": 9}', "version 9"),
        ('{"format": "memoir-torch-latency", "version": 1, "header": {}}', "damaged"),
        ('{"format": "memoir-torch-latency", "version": 1, "header": {}, "cells": [{"key": 1}]}', "damaged"),
    ],
)
def test_another_file_is_refused_by_its_name(tmp_path, text, says):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(Error, match=says) as caught:
        Results.read(path)
    assert str(path) in str(caught.value)


def test_a_damaged_journal_record_is_named_by_its_line(tmp_path):
    path = tmp_path / "r.json"
    made_up.results(SPEEDS, path=path)
    journal = tmp_path / "r.json.journal"
    lines = journal.read_bytes().split(b"\n")
    lines[4] = b'{"record":"block"}'
    journal.write_bytes(b"\n".join(lines))
    with pytest.raises(Error, match=r"journal:5: damaged"):
        Results.read(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"design": made_up.HEADER["design"] | {"seed": 3}}, "seed"),
        ({"machine": made_up.HEADER["machine"] | {"processor": "another"}}, "another machine"),
        (
            {"variants": {"glibc": {"says": "", "library": None, "version": "1", "environment": {"A": "b"}}}},
            "another glibc",
        ),
    ],
)
def test_what_cannot_be_put_together_is_not_resumed(tmp_path, change, says):
    made = made_up.results(SPEEDS, path=tmp_path / "r.json")
    with pytest.raises(Error, match=says):
        made.continues(made_up.HEADER | change)
