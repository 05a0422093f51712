# SPDX-License-Identifier: Apache-2.0
"""Where addresses, mappings, or what the system grants run out (room.c): nothing fails that need not."""

import pytest


@pytest.fixture(scope="module")
def room(compiled):
    return compiled("room.c")


def holds(run):
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("settings", [{}, {"secure": "1"}], ids=["default", "secure"])
def test_many_large_blocks_leave_mappings_for_others(settings, room, under):
    holds(under([room, "large_blocks", 30000, 600_000], settings))


@pytest.mark.full
@pytest.mark.parametrize("size", [600_000, 1_500_000, 3_000_000])
def test_so_do_140_000(size, room, under):
    holds(under([room, "large_blocks", 140_000, size]))


def test_a_program_without_mappings_allocates_and_frees(room, under):
    holds(under([room, "no_mappings"]))


@pytest.mark.parametrize("limit", ["address_space", "data"])
def test_phases_of_any_size_fit_into_what_one_of_them_needs(limit, room, under):
    holds(under([room, limit, 200]))


@pytest.mark.full
def test_addresses_do_not_run_out(room, under):
    holds(under([room, "addresses", 280]))
