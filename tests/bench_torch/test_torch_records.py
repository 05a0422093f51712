# SPDX-License-Identifier: Apache-2.0
"""What a run keeps: whatever happens to the program, what was measured is there, once, and can be gone on with."""

from pathlib import Path

import made_up
import memoir.bench
import pytest
from latency import records
from memoir.bench import analysis, journal
from memoir.bench.recording import Recording

from memoir import Error

SPEEDS = {"glibc": 2.0, "memoir": 1.0}
DATA = Path(__file__).parent / "data"


def test_a_run_reads_back_as_it_was_and_as_any_bench_s(tmp_path):
    folder = tmp_path / "r"
    with made_up.recording(SPEEDS, folder=folder) as made:
        made.save()
    for path in (folder, folder / "runs.jsonl", folder / "results.json"):
        back = records.read(path)
        assert (back.header, back.rows, back.members) == (
            made.result.header,
            made.result.rows,
            made.result.members,
        )
    overall = analysis.analyse(memoir.bench.read([folder])).overall["memoir"]
    assert overall.interval.ratio == pytest.approx(0.5, rel=0.02)
    assert len((folder / "results.csv").read_text().splitlines()) == 1 + len(back.rows)


def test_a_journal_cut_off_anywhere_keeps_all_that_came_before(tmp_path):
    with made_up.recording(SPEEDS, folder=tmp_path) as made:
        made.sync()
    path = tmp_path / journal.NAME
    content = path.read_bytes()
    for length in range(len(content.split(b"\n")[0]) + 1, len(content), 9973):
        path.write_bytes(content[:length])
        kept = records.read(tmp_path)
        whole = content[:length].count(b"\n") - 1
        assert len(kept.rows) + len(kept.members) == whole
        with Recording.resume(tmp_path) as again:
            assert len(again.result.rows) == len(kept.rows)
        assert path.read_bytes() == content[: content[:length].rfind(b"\n") + 1]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("r.json", "", "not a results.json"),
        ("r.json", "[1]", "not a results.json"),
        ("runs.jsonl", '{"memoir_bench": 1}\n', "not a bench of bench/torch/torch_latency.py"),
        ("runs.jsonl", "nonsense\n", "runs.jsonl:1: not a record"),
    ],
)
def test_another_file_is_refused_by_its_name(tmp_path, name, text, says):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(Error, match=says) as caught:
        records.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"design": made_up.DESIGN | {"seed": 3}}, "seed"),
        ({"machine": made_up.MACHINE | {"processor": "another"}}, "another machine"),
        (
            {"variants": {"glibc": made_up.VARIANTS["glibc"] | {"environment": {"A": "b"}}}},
            "another glibc",
        ),
    ],
)
def test_what_cannot_be_put_together_is_not_resumed(change, says):
    made = made_up.results(SPEEDS)
    with pytest.raises(Error, match=says):
        records.joined_header(made, made_up.header(**change), made_up.KEYS, Path("x"))


def test_a_resumed_run_says_what_both_did():
    made = made_up.results(SPEEDS)
    more = {"mimalloc": made_up.VARIANTS["glibc"] | {"says": "mimalloc"}}
    now = made_up.header(variants=more, design=made_up.DESIGN | {"replicates": 20})
    header = records.joined_header(made, now, [made_up.CellKey("dcgan", 1, 64, 1, 1)], Path("x"))
    assert list(header["variants"]) == [*made_up.VARIANTS, "mimalloc"]
    assert header["options"]["replicates"] == 20 and len(header["commands"]) == 2
    assert [one["name"] for one in header["grid"]["programs"]] == ["vgg16", "dcgan"]
