# SPDX-License-Identifier: Apache-2.0
"""Orders, environments, sessions, derived values, disturbances, memory over time, histograms, journals."""

import json
import math
from collections import Counter

import memoir.bench
import numpy as np
import pytest
from memoir.bench import disturbance, expressions, journal
from memoir.bench.experiment import Experiment
from memoir.bench.grid import Grid, Metric, Program, balanced_square, fill
from memoir.bench.options import Options
from memoir.bench.process import histogram, memory
from memoir.bench.process.allocators import Allocator
from memoir.bench.results import Result
from test_bench_results import simulated

import memoir


def grid(allocators, **axes):
    return Grid((Program("p", ("x",)),), tuple(Allocator(f"a{i}") for i in range(allocators)), **axes)


@pytest.mark.parametrize("size", range(1, 9))
def test_squares_are_balanced(size):
    rows = balanced_square(size)
    places = Counter((place, number) for row in rows for place, number in enumerate(row))
    follows = Counter((a, b) for row in rows for a, b in zip(row, row[1:], strict=False))
    assert set(places.values()) == {len(rows) // size} and len(places) == size * size
    assert len(follows) == size * (size - 1) and len(set(follows.values())) <= 1


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", [1, 99])
def test_each_allocator_stands_in_each_place_equally_often(size, seed):
    one = grid(size, threads=(1, 2, 4))
    for session in (0, 1):
        places = Counter()
        for replicate in range(2 * size):
            order = one.order(seed, replicate, session)
            assert sorted(map(repr, order)) == sorted(map(repr, one.cells()))
            seen = Counter()
            for cell in order:
                places[cell.group, cell.allocator, seen[cell.group]] += 1
                seen[cell.group] += 1
            groups = [cell.group for cell in order]
            assert sum(a != b for a, b in zip(groups, groups[1:], strict=False)) == 2  # side by side
        assert set(places.values()) == {2}
    assert one.order(seed, 0, 0) != one.order(seed, 0, 1)


def test_seeds_are_drawn_and_recorded():
    seeds = {Options().seed for _ in range(5)}
    assert len(seeds) == 5 and None not in seeds
    experiment = Experiment(grid(2), Options())
    assert experiment.header()["options"]["seed"] == experiment.seed


def test_all_runs_of_a_replicate_have_as_large_an_environment(built):
    """The size that the kernel copies above the stack, as the program itself sees it; it differs between replicates."""
    script = f"{built / 'asks'} > /dev/null; echo size: $(cat /proc/self/environ /proc/self/cmdline | wc -c)"
    allocators = f"system,a-rather-long-name=system,stub={built / 'stub.so'},x={built / 'stub.so'},SOME_VARIABLE=with-a-value"
    result = memoir.bench.run(
        allocators,
        ["sh", "-c", script],
        threads=[1, 16],
        replicates=3,
        warmup=0,
        metrics=[Metric("size", "size: (.*)")],
    )
    sizes = {}
    for row in result.rows:
        sizes.setdefault(row["replicate"], set()).add(row["metrics"]["size"])
    assert [len(found) for found in sizes.values()] == [1, 1, 1], sizes
    assert len(set.union(*sizes.values())) > 1
    assert len({row["padding"] for row in result.rows}) > 1


def test_sessions_are_what_intervals_are_of(built, tmp_path):
    result = memoir.bench.run(
        f"system,stub={built / 'stub.so'}", [str(built / "asks")],
        replicates=2, sessions=3, warmup=1, output=tmp_path / "x",
    )  # fmt: skip
    assert Counter((row["session"], row["replicate"]) for row in result.rows) == {
        (s, r): 2 for s in range(3) for r in range(2)
    }
    (line,) = [line for line in memoir.bench.analyse(result).lines() if line.comparison]
    assert line.n == 6 and line.comparison.n == 3


def test_what_differs_between_sessions_widens_intervals():
    """In every session b is off by another 3 %: the same in all of its replicates. Replicates alone know nothing of it."""
    rng, rows = np.random.default_rng(1), []
    for session in range(5):
        offset = rng.normal(0, 0.03)
        for r in range(10):
            for name in ("a", "b"):
                wall = math.exp(rng.normal(0, 0.002) + (offset if name == "b" else 0))
                row = {
                    "program": "p",
                    "allocator": name,
                    "threads": 1,
                    "load": 1,
                    "work": 1,
                    "parameters": {},
                }
                rows.append(
                    row | {"replicate": r, "session": session, "status": "ok", "wall": wall, "metrics": {}}
                )
    alone = memoir.bench.analyse(Result({"interleaved": True}, rows)).overall["b"].interval
    both = (
        memoir.bench.analyse(Result({"interleaved": True, "options": {"sessions": 5}}, rows))
        .overall["b"]
        .interval
    )
    assert both.half_width > 3 * alone.half_width and both.includes_one


@pytest.mark.parametrize(
    "text, value",
    [("threads*load", "6"), ("sqrt(work*100)", "24.4949"), ("ceil(sqrt(work*100))", "25"), ("2**3", None),
     ("max(threads, size)", "7"), ("10/4", "2.5"), ("7//2", "3"), ("-threads % 5", "3"), ("log2(0)", None),
     ("__import__('os')", None), ("threads.real", None), ("1/0", None), ("name", None), ("(", None), ("True", None),
     ("exp2(99999)", None), ("nope", None)],
)  # fmt: skip
def test_derived_values(text, value):
    values = {"threads": "2", "load": "3", "work": "6", "size": "7", "name": "x"}
    if value is None:
        with pytest.raises(memoir.Error, match="{="):
            expressions.evaluate(text, values)
    else:
        assert expressions.evaluate(text, values) == value
        assert fill(["a", f"-n{{={text}}}x{{threads}}"], values) == ["a", f"-n{value}x2"]


def measured(n=24, effect=lambda r, place: 0.0, rho=0.0, seed=0):
    rng, rows, last = np.random.default_rng(seed), [], 0.0
    for r in range(n):
        last = rho * last + rng.normal(0, 0.01)
        for place, name in enumerate(("a", "b") if r % 2 else ("b", "a")):
            wall = math.exp(effect(r, place) + rng.normal(0, 0.002) + (last if name == "b" else 0))
            row = {"program": "p", "allocator": name, "threads": 1, "load": 1, "work": 1, "parameters": {}}
            rows.append(
                row | {"replicate": r, "position": place, "status": "ok", "wall": wall, "metrics": {}}
            )
    return Result({"interleaved": True}, rows)


def test_what_disturbs_a_bench_is_named():
    assert disturbance.warnings(measured()) == []
    (place,) = disturbance.warnings(measured(effect=lambda r, place: 0.05 * place))
    assert "each later place within a replicate makes a run" in place and "% slower" in place
    (drift,) = disturbance.warnings(measured(effect=lambda r, place: -0.01 * r))
    assert "from the first replicate to the last all runs became" in drift and "% faster" in drift
    alike = disturbance.warnings(measured(n=60, rho=0.9))[-1]
    assert "neighbouring replicates are alike" in alike and "--sessions" in alike


def test_quiet_benches_are_rarely_warned_about():
    assert sum(bool(disturbance.warnings(measured(seed=seed))) for seed in range(150)) <= 5


def test_memory_becomes_numbers():
    samples = [[0.0, 100, 90, 0, 0, 0, 0], [1.0, 300, 200, 0, 50, 0, 10], [3.0, 200, 150, 0, 0, 0, 40]]
    assert memory.numbers(samples) == {}  # too few
    samples[1:1] = [[0.4, 100, 90, 0, 0, 0, 0], [0.6, 100, 90, 0, 0, 0, 0]]
    found = memory.numbers(samples, memory.marks_of("x\nphase: fill\nphase drain\n", samples), settled=True)
    assert found["rss_peak"] == 300 and found["rss_mean"] == pytest.approx((100 + 2 * 300) / 3)
    assert found["rss_after_fill"] == 200 and found["pss_settled"] == 150 and found["lazy_peak"] == 50
    assert "huge_peak" not in found and "swap_mean" not in found
    assert memory.numbers([]) == {}
    many = [[i, i % 97, 0, 0, 0, 0, 0] for i in range(5000)]
    thin = memory.thinned(many)
    assert len(thin) == memory.KEPT and max(sample[1] for sample in thin) == 96


def test_the_memory_of_any_command_is_sampled(built):
    code = (
        "import time; x = b'x' * (60 << 20); time.sleep(0.4); print('phase full', flush=True); time.sleep(0.3); "
        "del x; time.sleep(0.5); print('phase empty', flush=True); time.sleep(0.3)"
    )
    import sys

    result = memoir.bench.run(
        "system", [sys.executable, "-S", "-c", code], replicates=2, warmup=0, memory=True
    )
    for row in result.rows:
        assert row["rss_after_full"] - row["rss_after_empty"] > 50 << 20
        assert 60 << 20 < row["rss_peak"] <= row["largest_rss"] + (1 << 20)
        assert row["rss_after_empty"] < row["rss_mean"] < row["rss_peak"]
        assert 5 < len(row["samples"]) <= memory.KEPT
    assert "rss_mean" in memoir.bench.analyse_all(result)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1 50\n2 40\n3 9\n10 1\n", [1, 2, 3, 10]),
        ("usec,count\n1,50\n2,40\n3,9\n10,1\n", [1, 2, 3, 10]),
        ("\n".join(map(str, range(1, 1001))), [500, 900, 990, 999]),
        ("   Value   Percentile   TotalCount 1/(1-Percentile)\n\n 1.0 0.5 5 2.0\n 3.0 0.9 9 10\n 7.0 1.0 10 inf\n#[Mean = 1]\n",
         [1, 3, 7, 7]),
    ],
)  # fmt: skip
def test_histograms_become_percentiles(tmp_path, text, expected):
    (tmp_path / "h").write_text(text)
    assert histogram.percentiles(tmp_path / "h", (50, 90, 99, 99.9)) == expected


def test_a_histogram_of_nothing_is_named(tmp_path):
    (tmp_path / "h").write_text("hello\n")
    for path in (tmp_path / "h", tmp_path / "nowhere"):
        with pytest.raises(memoir.Error, match=f"histogram {path}"):
            histogram.percentiles(path, (50,))


def test_a_changed_bit_of_a_journal_is_refused(tmp_path):
    path = tmp_path / journal.NAME
    log = journal.Journal(path)
    log.append({"memoir_bench": journal.VERSION, "x": [1.5, math.nan]}, *simulated({"base": 1.0}, n=2).rows)
    log.close()
    content = path.read_bytes()
    header, rows = journal.read(path)
    assert header == {"memoir_bench": 1, "x": [1.5, None]} and len(rows) == 4
    accepted = []
    for at in range(0, len(content) - 1, 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        try:
            journal.read(path)
        except memoir.Error as error:
            assert str(error).startswith(f"{path}:")
            continue
        accepted.append(at)
    assert accepted == []


def test_journals_without_checksums_stay_readable_and_go_on(tmp_path):
    path = tmp_path / journal.NAME
    rows = simulated({"base": 1.0}, n=1).rows
    old = "".join(json.dumps(record) + "\n" for record in ({"memoir_bench": 1, "grid": {}}, *rows))
    path.write_text(old)
    assert journal.read(path)[1] == rows
    log = journal.Journal(path)
    log.append(rows[0])
    log.close()
    assert journal.read(path)[1] == [*rows, rows[0]]
    assert path.read_bytes().startswith(old.encode())


def test_what_cannot_be_in_a_row_is_refused(tmp_path):
    row = simulated({"base": 1.0}, n=1).rows[0]
    for name, value in (
        ("wall", "1"),
        ("threads", "two"),
        ("replicate", None),
        ("allocator", 5),
        ("wall", True),
    ):
        (tmp_path / journal.NAME).write_bytes(
            journal.line_of({"memoir_bench": 1}) + journal.line_of({**row, name: value})
        )
        with pytest.raises(memoir.Error, match=f"run 1 has {name}"):
            journal.read(tmp_path / journal.NAME)
