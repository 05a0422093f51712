# SPDX-License-Identifier: Apache-2.0
"""From results with known truth to ratios, verdicts, tables and pictures."""

from pathlib import Path

import made_up
import pytest
from latency import figures
from latency.goals import goals
from latency.report import brief, findings, full, write_report
from latency.summary import read_summary, summarise
from memoir.bench.grid import cell_of
from memoir.bench.process.workers import Failure
from memoir.bench.sessions import failure_row

MIB = made_up.MIB
FAST = {"glibc": 1.5, "jemalloc_1mb": 2.0, "tcmalloc": 1.2, "memoir": 1.0}
SLOW = FAST | {"memoir": 1.3}


def verdict(summary, start):
    return next(goal for goal in goals(summary) if goal.text.startswith(start))


def test_ratios_are_the_true_ones_though_every_block_drifts_by_a_third():
    summary = summarise(made_up.results(FAST))
    assert summary.candidate == "memoir"
    assert len(summary.cells) == 4
    for cell in summary.cells:
        assert cell.best_other == "tcmalloc"
        for name, speed in FAST.items():
            if name != "memoir":
                ratio = cell.ratio(name)
                assert ratio.ratio == pytest.approx(1.0 / speed, rel=0.03)
                assert ratio.high / ratio.low < 1.06
    assert summary.means["jemalloc_1mb"].ratio == pytest.approx(0.5, rel=0.02)


def test_goals_are_met_when_they_are():
    summary = summarise(made_up.results(FAST))
    tail, *rest = sorted(goals(summary), key=lambda goal: not goal.text.startswith("p99.9"))
    assert tail.met is not None  # whose tail is shorter is left to the noise
    assert [goal.text for goal in rest if not goal.met] == []
    assert len(rest) == 8


def test_a_slower_cell_is_listed_with_its_numbers():
    goal = verdict(summarise(made_up.results(SLOW)), "on no cell")
    assert goal.met is False
    assert len(goal.misses) == 4
    assert "vgg16 1x128 1 thread" in goal.misses[0] and "of tcmalloc's" in goal.misses[0]
    assert "not significant" not in goal.misses[0]


def test_an_even_cell_is_neither_faster_nor_slower():
    goal = verdict(summarise(made_up.results({"glibc": 1.0, "memoir": 1.0})), "on no cell")
    assert goal.met
    assert goal.measured == "faster on 0, even on 4, slower on 0 cells"


def test_more_memory_than_the_smallest_other_is_a_miss():
    peaks = {"memoir": 122 * MIB, "tcmalloc": 130 * MIB}
    goal = verdict(summarise(made_up.results(FAST, peaks)), "process peak")
    assert goal.met is False
    assert "122.0 MiB against 120.0 MiB" in goal.misses[0]
    assert verdict(summarise(made_up.results(FAST, {"memoir": 120 * MIB + 4096})), "process peak").met


def test_different_outputs_and_failures_are_misses():
    results = made_up.results(FAST)
    key = made_up.KEYS[0]
    for member in results.members:
        if cell_of(member) == key.under("memoir"):
            member["closed"]["output"] = "another"
    results.rows.append(failure_row(key.under("mimalloc"), 0, 0, Failure("killed by SIGSEGV")))
    summary = summarise(results)
    assert verdict(summary, "outputs").misses == (key.label,)
    assert "mimalloc: killed by SIGSEGV" in verdict(summary, "no allocator fails").misses[0]
    assert "killed by SIGSEGV" in full(summary, results.header, [])


def test_without_memoir_the_thesis_baseline_is_compared_and_no_goal_is_claimed():
    summary = summarise(made_up.results({"glibc": 1.0, "jemalloc_1mb": 2.0}))
    assert summary.candidate == "jemalloc_1mb"
    assert goals(summary) == []
    assert summary.means["glibc"].ratio == pytest.approx(2.0, rel=0.03)
    assert "jemalloc_1mb / best other" in brief(summary)


def test_a_report_holds_every_cell_and_its_pictures(tmp_path):
    results = made_up.results(FAST)
    summary = summarise(results)
    written = write_report(summary, results.header, tmp_path / "report")
    names = {path.name for path in written}
    assert names == {
        "report.md",
        "summary.json",
        "figure_4_1.png",
        "memory_by_size.png",
        "callers.png",
        "both_ends.png",
    }
    for path in written:
        assert path.stat().st_size > 500
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "report").iterdir()} == names  # nothing temporary is left
    text = (tmp_path / "report" / "report.md").read_text()
    for cell in summary.cells:
        assert text.count(cell.key.label.removeprefix("vgg16 ")) >= 5
    assert "Skipped: mimalloc: not found." in text
    assert read_summary(tmp_path / "report" / "summary.json") == summary
    assert read_summary(tmp_path / "report" / "report.md") is None


COMMITTED = sorted((Path(__file__).parents[2] / "bench/torch/reports").glob("*/summary.json"))


@pytest.mark.parametrize("folder", [path.parent for path in COMMITTED], ids=lambda folder: folder.name)
def test_the_reports_in_the_docs_follow_from_their_summaries(folder):
    """To the letter, but for their head: how it was measured is in no summary."""
    summary = read_summary(folder / "summary.json")
    assert summary.to_json() + "\n" == (folder / "summary.json").read_text()
    names = [name for name, _ in figures.DRAWINGS]
    pictures = [path for name in names if (path := folder / f"{name}.png").exists()]
    report = (folder / "report.md").read_text()
    assert findings(summary, pictures) + "\n" == report[report.index("## Over all cells") :]
