# SPDX-License-Identifier: Apache-2.0
"""The intervals against known truth: simulated runs whose true ratio is given."""

import math

import numpy as np
import pytest
from memoir.bench import statistics
from memoir.bench.statistics import student

import memoir

TRUTH = 1.07
TRIALS = 4000


def noise(kind, rng, shape):
    """Multiplicative noise of one run, as logarithms."""
    if kind == "normal":
        return rng.normal(0.0, 0.03, shape)
    if kind == "skewed":  # a floor that is never beaten and a tail of slow runs
        return np.log1p(rng.gamma(1.5, 0.02, shape))
    assert kind == "spikes"  # every tenth run meets a neighbour
    return rng.normal(0.0, 0.02, shape) + (rng.random(shape) < 0.1) * rng.exponential(0.1, shape)


def simulated(kind, n, trials, rng, ratio=TRUTH):
    """Differences of logarithms of `trials` experiments of n blocks whose level drifts like a random walk."""
    drift = np.cumsum(rng.normal(0.0, 0.02, (trials, n)), axis=1)
    return (drift + noise(kind, rng, (trials, n)) + math.log(ratio)) - (drift + noise(kind, rng, (trials, n)))


def coverage(method, differences, truth=TRUTH, **options):
    _, low, high, _ = getattr(statistics, method)(differences, 0.95, **options)
    return np.mean((low <= math.log(truth)) & (math.log(truth) <= high))


@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize("n", [6, 10, 20, 30])
def test_the_default_interval_covers_what_it_says(kind, n):
    covered = coverage("paired_t", simulated(kind, n, TRIALS, np.random.default_rng(n)))
    assert abs(covered - 0.95) <= 0.02


@pytest.mark.parametrize("n", [6, 10, 20, 30])
def test_spikes_make_the_default_interval_careful_never_bold(n):
    covered = coverage("paired_t", simulated("spikes", n, TRIALS, np.random.default_rng(n)))
    assert 0.94 <= covered <= 0.98


@pytest.mark.parametrize("kind", ["normal", "skewed", "spikes"])
@pytest.mark.parametrize("n", [6, 10, 20, 30])
def test_the_studentised_bootstrap_never_covers_clearly_less(kind, n):
    covered = coverage("bootstrap_t", simulated(kind, n, 1000, np.random.default_rng(n)), resamples=999)
    assert 0.93 <= covered <= 0.99
    if kind == "normal" and n > 6:
        assert abs(covered - 0.95) <= 0.02


def test_the_percentile_bootstrap_covers_too_little_at_six_and_says_so():
    covered = coverage("percentile", simulated("normal", 6, 2000, np.random.default_rng(6)), resamples=999)
    assert 0.82 <= covered <= 0.90
    assert "covers less" in statistics.warning("percentile", 6)
    assert "covers less" in statistics.warning("percentile", 19)
    assert statistics.warning("percentile", 20) is None
    assert statistics.warning("paired_t", 6) is None
    assert "next to nothing" in statistics.warning("bootstrap_t", 5)
    assert statistics.warning("bootstrap_t", 6) is None
    assert "no interval" in statistics.warning("paired_t", 1)


@pytest.mark.parametrize("n", [6, 10, 20, 30])
def test_welch_covers_unpaired_groups_of_unequal_noise(n):
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(1000):
        a, b = rng.normal(0.0, 0.02, n), rng.normal(math.log(TRUTH), 0.05, n + 3)
        _, low, high, _ = statistics.welch_t(a, b)
        hits += low <= math.log(TRUTH) <= high
    assert abs(hits / 1000 - 0.95) <= 0.02


def test_a_against_a_shows_no_difference():
    """200 comparisons as 20 tables of 10 cells: at most 5 % of them may be called different. With the
    correction for many comparisons no more than about 5 % of whole tables hold any false difference."""
    rng = np.random.default_rng(20)
    false = 0
    for _ in range(20):
        cells = [
            statistics.compare(np.exp(a), np.exp(b))
            for a, b in (noise("normal", rng, (2, 10)) for _ in range(10))
        ]
        corrected = statistics.correct_many([cell.p_value for cell in cells])
        false += sum(statistics.differs(cell, p) for cell, p in zip(cells, corrected, strict=True))
    assert false <= 10

    _, low, high, p = statistics.paired_t(simulated("skewed", 10, 10_000, rng, ratio=1.0), 0.95)
    alone = np.mean((low > 0.0) | (high < 0.0))
    assert abs(alone - 0.05) <= 0.01
    tables = p.reshape(1000, 10)
    assert np.mean([(statistics.correct_many(table) <= 0.05).any() for table in tables]) <= 0.06


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_a_planted_slowdown_of_three_percent_is_found_at_thirty(kind):
    rng = np.random.default_rng(3)
    _, low, _, _ = statistics.paired_t(simulated(kind, 30, 1000, rng, ratio=1.03), 0.95)
    assert np.mean(low > 0.0) >= 0.9

    drift = rng.normal(0.0, 0.05, 30)
    baseline = 2.0 * np.exp(drift + noise(kind, rng, 30))
    slower = 2.0 * 1.03 * np.exp(drift + noise(kind, rng, 30))
    comparison = statistics.compare(baseline, slower)
    assert comparison.n == 30
    assert comparison.interval.low > 1.0
    assert statistics.differs(comparison, statistics.correct_many([comparison.p_value])[0])


def test_pairing_removes_what_falls_on_whole_blocks():
    rng = np.random.default_rng(5)
    level = np.exp(np.cumsum(rng.normal(0.0, 0.2, 10)))
    baseline, candidate = (
        level * np.exp(rng.normal(0, 0.01, 10)),
        1.05 * level * np.exp(rng.normal(0, 0.01, 10)),
    )
    paired = statistics.ratio_interval(baseline, candidate)
    unpaired = statistics.ratio_interval(baseline, candidate, method="welch_t")
    assert paired.low > 1.0
    assert unpaired.includes_one
    assert paired.half_width < unpaired.half_width / 5


def test_blocks_match_by_label_and_average_repeats():
    baseline, candidate = [1.0, 2.0, 4.0, 9.0], [8.0, 2.0, 2.0, 4.0]
    ratio, low, high = statistics.ratio_interval(baseline, candidate, blocks=([0, 1, 2, 7], [2, 0, 0, 1]))
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0))  # block 7 has no candidate; block 0 has two
    same = statistics.ratio_interval(baseline, candidate, blocks=["a", "a", "b", "b"])
    assert same.ratio == pytest.approx(math.sqrt(4 / math.sqrt(2) * math.sqrt(8) / 6))


def test_one_replicate_says_nothing():
    for method in statistics.METHODS:
        interval = statistics.ratio_interval([1.0], [2.0], method=method)
        assert interval == (2.0, 0.0, math.inf)
        assert interval.includes_one
        assert interval.half_width == math.inf


def test_constant_measurements_have_an_exact_ratio():
    for method in statistics.METHODS:
        comparison = statistics.compare([4.0] * 6, [2.0] * 6, method=method, resamples=199)
        assert comparison.interval == pytest.approx((0.5, 0.5, 0.5)), method
        assert comparison.p_value <= 0.05, method
        same = statistics.compare([4.0] * 6, [4.0] * 6, method=method, resamples=199)
        assert same.interval.includes_one, method
        assert same.p_value == pytest.approx(1.0), method


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: statistics.ratio_interval([], [1.0]), "baseline has no"),
        (
            lambda: statistics.ratio_interval([1.0], [0.0]),
            "candidate has a measurement that is not a positive",
        ),
        (lambda: statistics.ratio_interval([1.0], [math.nan]), "not a positive"),
        (lambda: statistics.ratio_interval([1.0, 2.0], [1.0]), "do not pair"),
        (lambda: statistics.ratio_interval([1.0], [1.0], blocks=([1], [2])), "no block has both"),
        (lambda: statistics.ratio_interval([1.0], [1.0], blocks=[1, 2]), "block labels"),
        (lambda: statistics.ratio_interval([1.0], [1.0], method="guess"), "unknown method"),
        (lambda: statistics.ratio_interval([1.0], [1.0], confidence=95), "between 0 and 1"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(memoir.Error, match=words):
        call()


def test_student_quantiles_are_those_of_the_tables():
    # two-sided 95 %: Abramowitz & Stegun, table 26.10
    for freedom, t in [
        (1, 12.706),
        (2, 4.303),
        (5, 2.571),
        (9, 2.262),
        (19, 2.093),
        (29, 2.045),
        (120, 1.980),
    ]:
        assert student.t_quantile(0.975, freedom) == pytest.approx(t, abs=6e-4)
        assert student.t_cdf(-t, freedom) == pytest.approx(0.025, abs=1e-4)
    assert student.t_quantile(0.025, 5) == -student.t_quantile(0.975, 5)
    assert student.t_cdf(math.inf, 3) == 1.0


def test_holm_by_hand():
    assert statistics.correct_many([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.correct_many([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert len(statistics.correct_many([])) == 0


def test_serial_normalised_is_the_study_s():
    times = [1.0, 3.0, 4.0, 10.0, 20.0, 5.0]
    threads = [1, 1, 4, 1, 4, 4]
    groups = [("a", 1), ("a", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 1)]
    result = statistics.serial_normalised(times, threads, groups)
    assert result[:5] == pytest.approx([0.5, 1.5, 2.0, 1.0, 2.0])
    assert math.isnan(result[5])


def test_throughput_is_of_all_and_of_each_thread():
    aggregate, marginal = statistics.throughput([16, 4], [4, 4], [8.0, 2.0])
    assert aggregate.tolist() == [2.0, 2.0]
    assert marginal.tolist() == [0.5, 2.0]


def test_outliers_are_marked():
    values = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 3.0]
    assert statistics.outliers(values).tolist() == [False] * 6 + [True]
    assert not statistics.outliers([1.0, 9.0]).any()
    assert not statistics.outliers([2.0] * 6).any()


def test_replicates_needed_follows_the_square_root():
    interval = statistics.Interval(1.0, 1 / 1.04, 1.04)
    assert statistics.replicates_needed(interval, 10, 0.02) in (40, 41)
    assert statistics.replicates_needed(interval, 10, 0.1) == 10
    assert statistics.replicates_needed(statistics.Interval(1.0, 0.0, math.inf), 1, 0.02) == 2


def test_mean_interval_is_students():
    mean, low, high = statistics.mean_interval([1.0, 2.0, 3.0])
    assert (mean, high - mean, mean - low) == pytest.approx(
        (2.0, 4.302653 / math.sqrt(3), 4.302653 / math.sqrt(3))
    )
    assert statistics.mean_interval([2.0]) == (2.0, -math.inf, math.inf)
