# SPDX-License-Identifier: Apache-2.0
import pytest
from memoir.bench.grid import Cell, Grid, Program, environment, fill, placeholders
from memoir.bench.process.allocators import Allocator

import memoir

ALLOCATORS = (Allocator("a"), Allocator("b"))


def grid(*command, **axes):
    return Grid((Program("p", command or ("x",)),), ALLOCATORS, **axes)


def test_the_grid_has_every_combination_once():
    cells = grid(threads=(1, 4), loads=(1, 2, 3), parameters=(("size", ("s", "m")),)).cells()
    assert len(cells) == len(set(cells)) == 2 * 2 * 3 * 2
    assert {cell.work for cell in cells if cell.threads == 4} == {4, 8, 12}


def test_each_replicate_has_an_order_of_its_own_that_the_seed_decides():
    one = grid(threads=tuple(range(1, 9)))
    first, again, second = one.order(7, 0), one.order(7, 0), one.order(7, 1)
    assert first == again != second
    assert one.order(8, 0) != first
    assert sorted(map(repr, first)) == sorted(map(repr, second)) == sorted(map(repr, one.cells()))


def test_allocators_meet_every_place_equally_often():
    one = grid(threads=(1, 2, 3, 4))
    places = {"a": 0, "b": 0}
    for replicate in range(400):
        for position, cell in enumerate(one.order(1, replicate)):
            places[cell.allocator] += position
    assert abs(places["a"] - places["b"]) < 0.05 * sum(places.values())


def test_placeholders_are_filled_and_doubled_braces_kept():
    command = ("run", "--jobs={work}", "{threads}x{load}", "{{print}}", "a{size}", "{ }", "{}")
    assert placeholders(command) == ["work", "threads", "load", "size"]
    values = Cell("p", "a", 2, 3, (("size", "big"),)).values(0)
    assert fill(command, values) == ["run", "--jobs=6", "2x3", "{print}", "abig", "{ }", "{}"]


def test_the_environment_says_the_same():
    cell = Cell("p", "a", 2, 3, (("size", "big"),))
    variables = environment(cell, 5, threads_given=True)
    assert variables["OMP_NUM_THREADS"] == variables["MEMOIR_THREADS"] == "2"
    assert (variables["MEMOIR_LOAD"], variables["MEMOIR_WORK"], variables["MEMOIR_SIZE"]) == ("3", "6", "big")
    assert (variables["MEMOIR_ALLOCATOR"], variables["MEMOIR_REPLICATE"]) == ("a", "5")
    assert "OMP_NUM_THREADS" not in environment(cell, 5, threads_given=False)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: grid("run", "{size}"), r"no axis fills \{size\} in the command: add --param size="),
        (lambda: grid(threads=(0,)), "--threads 0: must be 1 or more"),
        (lambda: grid(loads=(1, -2)), "--load -2: must be 1 or more"),
        (lambda: grid(threads=(2, 2)), "axis threads names a value twice"),
        (lambda: grid(parameters=(("Size", ("a",)),)), "use small letters"),
        (lambda: grid(parameters=(("load", ("a",)),)), "has a meaning already"),
        (lambda: grid(parameters=(("x", ()),)), "axis x has no values"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(memoir.Error, match=words):
        make()
