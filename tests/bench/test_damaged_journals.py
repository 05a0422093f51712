# SPDX-License-Identifier: Apache-2.0
"""Results of benches whose JSON is whole, and says what no bench writes: one line, whatever reads them."""

import copy
import csv
import json
import random
import re

import pytest
from memoir.bench import journal

ALLOCATORS = ("system", "other")
HEADER = {
    "memoir_bench": journal.VERSION,
    "grid": {
        "programs": [
            {"name": "p", "command": ["p"], "client": [],
             "metrics": [{"name": "ops", "pattern": "(.)", "higher_is_better": True}]}
        ],
        "allocators": [{"name": name, "library": None, "environment": {}} for name in ALLOCATORS],
        "threads": [1, 2], "loads": [1], "parameters": [["x", ["a"]]], "threads_given": True, "extra_placeholders": [],
    },
    "options": {"replicates": 3, "sessions": 2, "prepare": None, "pause": 0.5, "memory": True, "counters": ["cycles"]},
    "interleaved": True,
    "versions": dict.fromkeys(ALLOCATORS, "1"),
    "machine": {"processor": "x", "cores": 2},
    "proofs": [
        {"program": "p", "allocator": name, "requests": 9, "provider": "x", "share": 0.5, "anonymous": 9,
         "weak": [["q", 0.1, 5]], "aside": ["r"]}
        for name in ALLOCATORS
    ],
}  # fmt: skip
BAD = [None, 0, -1, True, "x", "", [], {}, [1], {"a": 1}, 1e300, [[]], "\x1b[2J\u202e", 2**70]


def rows():
    draw = random.Random(3)
    return [
        {"program": "p", "allocator": name, "threads": threads, "load": 1, "work": threads, "parameters": {"x": "a"},
         "replicate": replicate, "position": 0, "status": "ok", "wall": 1 + draw.random(), "user": 1.0, "system": 0.1,
         "peak_rss": 1000, "rss_mean": 5.0, "metrics": {"ops": 3.0}, "counters": {"cycles": 7}, "exit_code": 0}
        for replicate in range(3) for threads in (1, 2) for name in ALLOCATORS
    ]  # fmt: skip


def places(value, place=()):
    for key, entry in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*place, key)
        yield from places(entry, (*place, key))


def damaged(records, seed):
    draw, records = random.Random(seed), copy.deepcopy(records)
    for _ in range(draw.choice((1, 1, 1, 2))):
        *way, last = draw.choice(list(places(records)))
        at = records
        for key in way:
            at = at[key]
        if draw.random() < 0.4:
            del at[last]
        elif isinstance(at, dict) and draw.random() < 0.2:
            at["zzz"] = copy.deepcopy(draw.choice(BAD))
        else:
            at[last] = copy.deepcopy(draw.choice(BAD))
    return records


@pytest.mark.parametrize("seeds", [range(0, 40), range(40, 80)])
def test_readers_say_one_line(seeds, tmp_path, memoir_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(map(journal.line_of, [HEADER, *rows()])))
    assert memoir_cli("bench", "--from", whole)[0] == 0
    for seed in seeds:
        header, runs = damaged([HEADER, rows()], seed)[:2] if seed % 2 else ([HEADER, rows()])
        if seed % 2 == 0:
            runs = damaged(runs, seed)
        if not isinstance(header, dict) or not isinstance(runs, list):
            continue
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(b"".join(journal.line_of(one) for one in [header, *runs] if isinstance(one, dict)))
        other = tmp_path / f"{seed}.json"
        other.write_text(json.dumps({"results": [], "memoir": {"header": header, "rows": runs, "notes": []}}))
        for arguments in (("bench", "--from", path), ("diff", whole, other)):
            code, out, err = memoir_cli(*arguments)
            assert code in (0, 1, 2), (seed, arguments, err)
            assert "Traceback" not in err and "\x1b" not in out + err and "\u202e" not in out + err, seed
            if code == 2:
                assert err.count("\n") == 1 and err.startswith("memoir: "), (seed, err)


NAMES = [
    "=cmd|' /C calc'!A0",
    "</script><img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "a`b",
    "\x1b[2J\u202ename",
    "a|b",
    "# title",
    "nul\x00",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_report_are_names(name, tmp_path, memoir_cli, monkeypatch):
    """tables.md is read by what renders Markdown: a name is a code span there, and no control character is in it."""
    monkeypatch.chdir(tmp_path)
    runs = [{**row, "program": name, "parameters": {"p": name}, "metrics": {name: 1.0}} for row in rows()]
    first = runs[0]["allocator"]
    for row in runs:  # the baseline's name is in headings too
        row["allocator"] = name if row["allocator"] == first else f"b{name}"
    header = {"memoir_bench": journal.VERSION, "machine": {"processor": name}, "sources": [name]}
    (tmp_path / "x.jsonl").write_bytes(b"".join(map(journal.line_of, [header, *runs])))
    code, _, err = memoir_cli("bench", "--from", "x.jsonl", "-o", "out")
    assert code == 0, err
    text = (tmp_path / "out" / "tables.md").read_text()
    assert not any(not letter.isprintable() and letter != "\n" for letter in text)
    outside = re.sub(r"(`+).*?\1", "", text)
    markup = outside.replace("\\<", "").replace("\\]", "")
    assert "<script" not in markup and "<img" not in markup and "](" not in markup
    for line in csv.reader((tmp_path / "out" / "results.csv").open(newline="")):
        assert not any(
            cell.startswith(("=", "+", "-", "@", "\t")) for cell in line
        )  # a spreadsheet would run it


def test_a_header_of_nothing_has_a_sentence(tmp_path, memoir_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_bytes(journal.line_of({"memoir_bench": journal.VERSION}))
    code, _, err = memoir_cli("bench", "--from", "x.jsonl")
    assert code == 2 and "nothing to compare: there is neither an allocator nor a run" in err
