# SPDX-License-Identifier: Apache-2.0
"""Which cells there are."""

from latency.cells import CellKey, matrix, passes_for


def test_the_matrix_holds_every_cell_once_and_callers_have_one_thread_each():
    keys = matrix(["a", "b"], [1, 4], [128], [1, 2], [1, 8])
    assert len(keys) == len(set(keys)) == 2 * 2 * (2 + 1)
    assert {(key.threads, key.callers) for key in keys} == {(1, 1), (2, 1), (1, 8)}
    assert [key.net for key in keys] == ["a"] * 6 + ["b"] * 6


def test_without_a_single_caller_threads_do_not_multiply_the_cells():
    assert [key.callers for key in matrix(["a"], [1], [128], [1, 2], [2, 4])] == [2, 4]


def test_a_cell_of_the_bench_says_which_cell_it_is():
    for key in matrix(["a"], [1, 4], [128], [1, 2], [1, 8]):
        cell = key.under("memoir")
        assert CellKey.of(cell) == key and cell.allocator == "memoir"
    assert CellKey("a", 1, 128, 1, 8).under("x").work == 8  # eight callers make eight passes at a time
    assert len({key.under("x").group for key in matrix(["a"], [1], [128], [1, 2], [1, 8])}) == 3


def test_a_turn_lasts_about_a_quarter_of_a_second():
    assert passes_for(10e6) == 25
    assert passes_for(3e9) == 1
    assert passes_for(1e3) == 200
