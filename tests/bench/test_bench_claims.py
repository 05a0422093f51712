# SPDX-License-Identifier: Apache-2.0
"""What a report asserts holds for the report as a whole."""

import math

import numpy as np
import pytest
from equal_allocators import false_reports, report
from memoir.bench import analysis, answer, scaling, statistics, values
from memoir.bench.changes import changes
from memoir.bench.results import Result
from memoir.bench.statistics.claims import Family
from memoir.bench.verdicts import differences
from test_bench_results import simulated


def test_reports_of_equal_allocators_assert_nothing():
    """`make soak` does thousands. One seed: this either passes or it does not."""
    assert false_reports(120, seed=11) <= 6


def test_without_the_correction_most_of_them_would():
    rng, alone = np.random.default_rng(11), 0
    for _ in range(40):
        found = analysis.analyse_all(report(rng))
        pairs = [line.comparison for a in found.values() for line in a.lines() if line.comparison]
        alone += any(not pair.interval.includes_one for pair in pairs)
    assert alone >= 15


def test_two_thirds_of_the_grid_do_not_hide_a_real_difference():
    found = analysis.analyse_all(simulated({"base": 1.0, "slow": 1.06}, n=20, programs=tuple("pqrstu")))
    assert found["wall"].overall["slow"].verdict == "slower" and found["wall"].best == "base"
    assert {line.verdict for line in found["wall"].lines()} <= {"baseline", "slower", "unclear"}
    assert "slower" in {line.verdict for line in found["wall"].lines()}


@pytest.mark.parametrize("seed", range(8))
def test_a_winner_and_an_unclear_verdict_never_contradict_each_other(seed):
    names = {"base": 1.0, "a": 0.97, "b": 0.985}
    found = analysis.analyse(simulated(names, n=10, seed=seed, programs=("p", "q")))
    for group, lines in found.groups.items():
        winner = found.winners[group]
        for line in lines:
            if winner is not None and line.comparison is not None and "base" in (winner, line.cell.allocator):
                assert line.verdict in ("faster", "slower")
            if winner == line.cell.allocator and line.comparison is not None:
                assert line.verdict == "faster"


def test_holm_with_weights_by_hand():
    # p / w: 0.02, 0.04, 0.2; weights left: 1, 0.5, 0.25
    found = statistics.correct_many([0.01, 0.01, 0.05], [0.5, 0.25, 0.25])
    assert found == pytest.approx([0.02, 0.02, 0.05])
    assert statistics.correct_many([0.01, 0.2], [1, 1]) == pytest.approx(statistics.correct_many([0.01, 0.2]))


def test_half_of_the_level_belongs_to_the_headlines():
    family = Family()
    for i in range(100):
        family.add(i, 0.5)
    family.add("overall", 0.01, headline=True)
    assert family.corrected()["overall"] == pytest.approx(0.02) and family.cost("overall") == 2
    assert family.cost(3) == 200


def test_equal_means_are_called_the_same_only_when_that_is_shown():
    tight = analysis.analyse_all(simulated({"base": 1.0, "twin": 1.0}, n=30, noise=0.004))["wall"]
    assert tight.overall["twin"].same and tight.overall["twin"].verdict == "no difference shown"
    loose = analysis.analyse_all(simulated({"base": 1.0, "twin": 1.0}, n=6, noise=0.05))["wall"]
    assert not loose.overall["twin"].same
    beyond = analysis.analyse_all(simulated({"base": 1.0, "other": 1.03}, n=30, noise=0.004))["wall"]
    assert not beyond.overall["other"].same


def test_steps_are_no_certainty():
    """Three pages more, three times over, is what chance does every few benches."""
    result = simulated({"base": 1.0, "other": 1.0}, n=3)
    for row in result.rows:
        row["minor_faults"] = 500 + (row["allocator"] == "other")
    found = analysis.analyse(result, "minor_faults")
    assert not differences({"minor_faults": found})
    result = simulated({"base": 1.0, "other": 1.0}, n=10)
    for row in result.rows:
        row["peak_rss"] = 4096 * (1000 + 500 * (row["allocator"] == "other"))
    assert analysis.analyse(result, "peak_rss").overall["other"].verdict == "more"


@pytest.mark.parametrize("method", ["bootstrap_t", "percentile"])
def test_bootstraps_of_runs_that_were_not_interleaved_are_unpaired(method):
    """Values that pair perfectly by position: only an unpaired interval is wide."""
    result = simulated({"base": 1.0, "other": 1.0}, n=12, noise=1e-6, interleaved=False)
    (line,) = [x for x in analysis.analyse(result, method=method).groups[("p", 1, 1, ())] if x.comparison]
    assert line.comparison.interval.half_width > 0.02
    paired = simulated({"base": 1.0, "other": 1.0}, n=12, noise=1e-6)
    (line,) = [x for x in analysis.analyse(paired, method=method).groups[("p", 1, 1, ())] if x.comparison]
    assert line.comparison.interval.half_width < 1e-4


@pytest.mark.parametrize("method", ["bootstrap_t", "percentile"])
def test_unpaired_bootstraps_cover_what_they_say(method):
    rng, hits = np.random.default_rng(4), 0
    for trial in range(300):
        a, b = rng.normal(0.0, 0.02, 20), rng.normal(math.log(1.07), 0.04, 20)
        _, low, high, _ = statistics.unpaired_bootstrap(a, b, method, resamples=399, seed=trial)
        hits += low <= math.log(1.07) <= high
    assert 0.90 <= hits / 300 <= 0.985


def growing(slopes, n=12, seed=3):
    """Times over threads: each allocator's grows by its own factor with every doubling."""
    rng, rows = np.random.default_rng(seed), []
    for threads in (1, 2, 4):
        for r in range(n):
            for name, factor in slopes.items():
                wall = factor ** math.log2(threads) * math.exp(rng.normal(0, 0.01))
                row = {"program": "p", "allocator": name, "threads": threads, "load": 1, "work": threads}
                row |= {"parameters": {}, "replicate": r, "status": "ok", "wall": wall, "metrics": {}}
                rows.append(row | {"started": 100.0 + r})
    return Result({"interleaved": True}, rows)


def test_who_scales_better_is_found_by_how_much():
    result = growing({"base": 1.10, "flat": 1.00, "same": 1.10})
    found = analysis.analyse_all(result)
    growths = {one.allocator: one for one in found["wall"].growths}
    ratio, low, high = growths["flat"].comparison.interval
    assert low < 1.0 / 1.1 < high and ratio < 0.95 and growths["flat"].corrected_p < 0.001
    assert growths["same"].comparison.interval.includes_one
    text = " ".join(answer.sentences(result, found))
    assert "With each doubling of threads, flat gains" in text and "same gains" not in text


def test_growth_is_no_matter_of_level():
    """Twice as slow at every thread count is not worse scaling."""
    result = growing({"base": 1.1, "slow": 1.1})
    for row in result.rows:
        row["wall"] *= 2.0 if row["allocator"] == "slow" else 1.0
    (one,) = scaling.growths(result, "base", values.Comparer("paired_t", 0.95, True))
    assert one.comparison.interval.includes_one


def test_the_answer_says_who_by_how_much_and_at_what_memory():
    result = simulated({"system": 1.0, "quick": 0.8}, n=20)
    for row in result.rows:
        row["peak_rss"] = (1 + 0.3 * (row["allocator"] == "quick")) * 4096 * (1000 + row["replicate"])
    (text,) = answer.sentences(result, analysis.analyse_all(result))[:1]
    assert (
        text.startswith("Quick is faster than system: 20 % less time [")
        and "at 30 % more peak memory" in text
    )


def test_memory_that_is_known_is_said_where_time_is_not():
    result = simulated({"system": 1.0, "twin": 1.0}, n=8, noise=0.05)
    for row in result.rows:
        row["peak_rss"] = (1 + 0.3 * (row["allocator"] == "twin")) * 4096 * (1000 + row["replicate"])
    (text,) = answer.sentences(result, analysis.analyse_all(result))[:1]
    assert "is not known yet" in text and "; twin runs at 30 % more peak memory [" in text


def test_the_answer_says_the_same_or_what_it_would_take():
    def text(noise, n):
        result = simulated({"system": 1.0, "twin": 1.0}, n=n, noise=noise)
        for row in result.rows:
            row["started"] = 10.0 * row["replicate"]
        return answer.sentences(result, analysis.analyse_all(result))[0]

    assert "is the same as system within 2.0 %" in text(0.004, 30)
    found = text(0.05, 8)
    assert "is not known yet: about" in found and "more replicates (" in found and "min)" in found
    assert "six replicates or more" in text(0.05, 1)
    assert answer.sentences(simulated({"a": 1.0}), analysis.analyse_all(simulated({"a": 1.0}))) == []


def test_as_many_replicates_as_the_answer_asks_for_are_about_enough():
    import re

    few = simulated({"system": 1.0, "twin": 1.0}, n=8, noise=0.02, seed=5)
    text = answer.sentences(few, analysis.analyse_all(few))[0]
    more = int(re.search(r"about (\d+) more", text)[1])
    enough = simulated({"system": 1.0, "twin": 1.0}, n=8 + 2 * more, noise=0.02, seed=6)
    assert "is the same" in answer.sentences(enough, analysis.analyse_all(enough))[0]


def test_changes_are_corrected_over_all_quantities_and_limits_are_one_sided():
    before, after = simulated({"a": 1.0, "b": 1.0}), simulated({"a": 1.1, "b": 1.0}, seed=9)
    found = changes(before, after, ["wall", "cpu"], beyond=lambda quantity: 0.02)
    assert {c.exceeds_p <= 0.05 for c in found["wall"] if c.cell.allocator == "a"} == {True}
    assert {c.exceeds_p <= 0.05 for c in found["wall"] if c.cell.allocator == "b"} == {False}
    alone = changes(before, after, ["wall"])["wall"]
    assert all(x.corrected_p >= y.corrected_p for x, y in zip(found["wall"], alone, strict=True))
    faster = changes(after, before, ["wall"], beyond=lambda quantity: -0.02)["wall"]
    assert {c.exceeds_p <= 0.05 for c in faster if c.cell.allocator == "a"} == {True}
