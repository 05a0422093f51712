# SPDX-License-Identifier: Apache-2.0
"""Which cells there are, and the order of the turns."""

from collections import Counter

from latency.schedule import CellKey, matrix, passes_for, turns

KEY = CellKey("resnet50", 1, 128, 1, 1)


def test_the_matrix_holds_every_cell_once_and_callers_have_one_thread_each():
    keys = matrix(["a", "b"], [1, 4], [128], [1, 2], [1, 8])
    assert len(keys) == len(set(keys)) == 2 * 2 * (2 + 1)
    assert {(key.threads, key.callers) for key in keys} == {(1, 1), (2, 1), (1, 8)}
    assert [key.net for key in keys] == ["a"] * 6 + ["b"] * 6


def test_without_a_single_caller_threads_do_not_multiply_the_cells():
    assert [key.callers for key in matrix(["a"], [1], [128], [1, 2], [2, 4])] == [2, 4]


def test_turns_are_shuffled_anew_in_every_block_and_repeat_for_a_seed():
    names = list("abcdefgh")
    orders = [turns(names, 7, KEY, block) for block in range(200)]
    assert all(sorted(order) == names for order in orders)
    assert orders == [turns(names, 7, KEY, block) for block in range(200)]
    assert orders != [turns(names, 8, KEY, block) for block in range(200)]
    firsts = Counter(order[0] for order in orders)
    assert set(firsts) == set(names) and max(firsts.values()) < 50  # 25 expected; 50 is 5 sigma away


def test_a_turn_lasts_about_a_quarter_of_a_second():
    assert passes_for(10e6) == 25
    assert passes_for(3e9) == 1
    assert passes_for(1e3) == 200
