# SPDX-License-Identifier: Apache-2.0
"""Why nothing fits, and what to recompute or offload: against looking through everything on small problems."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from memoir._core import Problem
from memoir.planning.budget import Option, choose, fit_budget, fit_options
from memoir.planning.sections import Sections
from memoir.planning.why import applied, explain

import memoir
from memoir import _core

DATA = Path(__file__).parents[1] / "data" / "planning"


def problem_of(rows):
    return Problem(
        *(np.array(column, np.uint64) for column in zip(*rows, strict=True)), np.ones(len(rows), np.uint64)
    )


def random_problem(random, count, ticks=8, bytes=6):
    lower = [random.randrange(ticks) for _ in range(count)]
    return problem_of([(at, at + random.randint(1, ticks), random.randint(1, bytes)) for at in lower])


def live(problem, tick):
    return [i for i in range(len(problem)) if problem.lower[i] <= tick < problem.upper[i]]


def test_the_smallest_set_is_no_larger_than_any():
    generator = random.Random(1)
    for _ in range(60):
        problem = random_problem(generator, generator.randint(2, 7))
        capacity = _core.load(problem) - generator.randint(1, 4)
        if capacity < 0:
            continue
        why = explain(problem, capacity, 0.05)
        size = problem.size
        fewest = min(
            count
            for tick in range(int(problem.upper.max()))
            for count in range(1, len(problem) + 1)
            for chosen in itertools.combinations(live(problem, tick), count)
            if sum(int(size[i]) for i in chosen) > capacity
        )
        assert len(why.buffers) == fewest and why.smallest
        assert set(why.buffers) <= set(live(problem, why.tick))
        assert why.needed == sum(int(size[i]) for i in why.buffers) > capacity
        for change in (*why.changes, *why.together):
            assert 0 < change.bytes <= size[change.buffer]
        assert all(applied(problem, [change], capacity, 0.5) for change in why.changes)


def test_several_shrink_where_nothing_can_be_let_go():
    problem = problem_of([(0, 2, 5), (0, 2, 5), (2, 4, 5), (2, 4, 6)])
    why = explain(problem, 9, 60)
    assert not why.changes and {change.kind for change in why.together} == {"shrink"}
    assert [(change.buffer // 2, change.bytes) for change in why.together] == [(0, 1), (1, 2)]
    assert applied(problem, why.together, 9, 60)
    assert explain(problem_of([(0, 2, 1)] * 9), 8).together == ()  # what has one byte cannot shrink


def test_minimallocs_a_is_told_how_it_fits():
    problem = _core.read_csv(str(DATA / "minimalloc" / "A.1048576.csv")).problem
    why = explain(problem, 1_000_000, 300)
    assert not why.changes and why.together
    assert why.tried["let go together"] == 1 and why.summary()["tried"] == why.tried
    assert applied(problem, why.together, 1_000_000, 60)
    assert explain(problem, 1_000_000, 0).together == ()  # whatever its size, it keeps to its time


def test_one_byte_less_to_shrink_is_not_enough():
    why = explain(problem_of([(0, 9, 4), (3, 7, 3), (4, 6, 2)]), 7, 0.5)
    (least, *_) = [change for change in why.changes if change.kind == "shrink"]
    assert least.bytes == 2 and why.needed == 9
    kinds = {change.kind for change in why.changes}
    assert kinds == {"shrink", "end earlier", "begin later", "let go"}


def test_where_no_change_of_one_will_do_several_are_named():
    # two peaks that share no buffer
    why = explain(problem_of([(0, 5, 4), (1, 4, 4), (1, 4, 4), (10, 15, 4), (11, 14, 4), (11, 14, 4)]), 8, 60)
    assert not why.changes and len(why.buffers) == 3
    assert {change.buffer // 3 for change in why.together} == {0, 1}


def test_sets_that_interlock_without_any_tick_too_full():
    # Aligned to 4, two buffers of 5 and 1 byte need 8 + 1: the load is 6.
    rows = [(0, 4, 5), (0, 4, 1), (0, 2, 1), (6, 9, 3)]
    plain = problem_of(rows)
    problem = plain.aligned_to(4)
    assert _core.load(problem) == 7
    why = explain(problem, 9, 0.5)
    assert why.tick is None and set(why.buffers) == {0, 1, 2} and why.needed > 9
    assert why.minimal


def test_nothing_is_said_where_nothing_is_proven():
    assert explain(problem_of([(0, 4, 4), (2, 6, 4)]), 8, 0.2) is None


def brute(problem, budget, options):
    """The least cost of any options."""
    ticks = int(problem.upper.max())
    base = np.zeros(ticks, int)
    for lower, upper, size in zip(problem.lower, problem.upper, problem.size, strict=True):
        base[int(lower) : int(upper)] += int(size)
    best = None
    for mask in range(1 << len(options)):
        chosen = [option for k, option in enumerate(options) if mask >> k & 1]
        pairs = itertools.combinations(chosen, 2)
        if any(a.buffer == b.buffer and a.lower < b.upper and b.lower < a.upper for a, b in pairs):
            continue
        left = base.copy()
        for option in chosen:
            left[option.lower : option.upper] -= int(problem.size[option.buffer])
        cost = sum(option.cost for option in chosen)
        if left.max() <= budget and (best is None or cost < best):
            best = cost
    return best


def random_options(generator, problem, count):
    out = []
    for _ in range(count):
        buffer = generator.randrange(len(problem))
        lower, upper = int(problem.lower[buffer]), int(problem.upper[buffer])
        begin = generator.randint(lower, upper - 1)
        out.append(
            Option(buffer, begin, generator.randint(begin + 1, upper), "recompute", generator.randint(0, 9))
        )
    return out


def test_the_choice_is_the_cheapest_there_is():
    generator, impossible = random.Random(2), 0
    for _ in range(120):
        problem = random_problem(generator, generator.randint(2, 8))
        options = random_options(generator, problem, generator.randint(0, 8))
        budget = max(0, _core.load(problem) - generator.randint(0, 8))
        best, found = brute(problem, budget, options), choose(problem, budget, options)
        impossible += best is None
        assert (found is None) == (best is None)
        if found is not None:
            assert found.cost == best == found.lower_bound
    assert 20 < impossible < 110


def test_a_budget_is_kept_by_the_plan():
    generator, kept = random.Random(3), 0
    for _ in range(15):
        problem = random_problem(generator, 30, ticks=20, bytes=50)
        options = [
            Option(
                i, int(problem.lower[i]) + 1, int(problem.upper[i]) - 1, "recompute", float(problem.size[i])
            )
            for i in range(len(problem))
            if problem.upper[i] - problem.lower[i] > 2
        ]
        budget = int(_core.load(problem) * 0.8)
        found = fit_options(problem, budget, options, 0.4)
        if found.proven_infeasible:
            continue
        assert found.lower_bound_cost <= found.cost == sum(option.cost for option in found.chosen)
        assert found.fits == (found.result.arena_size <= budget)
        kept += found.fits
    assert kept >= 5


def fits(problem, options, budget):
    gaps = [(option.buffer, option.lower, option.upper, 0, 0) for option in options]
    said = {name: getattr(problem, name) for name in ("lower", "upper", "size")}
    said |= {"gaps": np.array(gaps)} if gaps else {}
    found = memoir.plan(said, "exact", capacity=budget, deadline=20, threads=1)
    assert found.fits or found.proven_infeasible
    return found.fits


def test_small_budgets_are_decided_by_plans_and_not_by_the_load():
    """What is chosen fits and costs the least of all choices whose plan fits; where none does, that is said."""
    generator, feasible, beyond_load = random.Random(4), 0, 0
    for _ in range(60):
        problem = random_problem(generator, generator.randint(3, 7), ticks=10, bytes=8)
        options = []
        for i, (lower, upper) in enumerate(zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)):
            if upper - lower > 3 and generator.random() < 0.8:
                until = generator.randint(lower + 2, upper - 1)
                options.append(Option(i, lower + 1, until, "recompute", float(generator.randrange(20))))
        budget = max(1, _core.load(problem) - generator.randint(1, 7))
        costs = [
            sum(option.cost for option in some)
            for count in range(len(options) + 1)
            for some in itertools.combinations(options, count)
            if fits(problem, some, budget)
        ]
        found = fit_options(problem, budget, options, 5.0)
        if not costs:
            assert not found.fits and found.proven_infeasible
            continue
        feasible += 1
        assert found.fits and found.optimal and found.cost == min(costs) == found.lower_bound_cost
        choice = choose(problem, budget, options)
        beyond_load += choice is not None and choice.cost < found.cost
    assert feasible > 8 and beyond_load > 0


def test_offloading_takes_both_ways():
    columns = ([0, 4], [20, 10], [8, 4])
    found = fit_budget(columns, 8, idle=[(0, 1, 19)], bandwidth=4)
    (option,) = found.chosen
    assert (option.how, option.lower, option.upper, option.cost) == ("offload", 3, 17, 4.0)
    assert found.fits and found.optimal and found.result.arena_size == 8
    # The way out and back takes longer than it is idle.
    assert fit_budget(columns, 8, idle=[(0, 4, 10)], bandwidth=2).proven_infeasible
    cheaper = fit_budget(columns, 8, idle=[(0, 1, 19)], recompute=[1, None], bandwidth=4)
    assert [option.how for option in cheaper.chosen] == ["recompute"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"idle": [(5, 1, 2)]}, "idle names buffer 5"),
        ({"idle": [(0, 1, 99)]}, "leaves its lifetime"),
        ({"idle": [(0, 1, 3)], "recompute": [1]}, "recompute has 1 elements for 2 buffers"),
        ({"idle": [(0, 1, 3)], "recompute": [-1, 0]}, "costs -1 to recompute"),
        ({"idle": [], "bandwidth": 0}, "bandwidth must be more than 0"),
    ],
)
def test_bad_budgets(more, message):
    with pytest.raises(memoir.Error, match=message):
        fit_budget(([0, 4], [20, 10], [8, 4]), 8, **more)


def test_peaks_cover_every_section():
    generator = random.Random(4)
    for _ in range(50):
        sections = Sections.of(random_problem(generator, 9))
        peaks = [set(sections.live(section).tolist()) for section in sections.peaks(-1)]
        for section in range(len(sections.loads)):
            assert any(set(sections.live(section).tolist()) <= peak for peak in peaks)
