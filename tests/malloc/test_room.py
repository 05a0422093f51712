# SPDX-License-Identifier: Apache-2.0
"""Where addresses, mappings, or what the system grants run out (room.c): nothing fails that need not."""

import os
from pathlib import Path

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


@pytest.mark.parametrize("milliseconds", [0, 1500], ids=["at once", "after a purge"])
def test_a_program_without_mappings_allocates_and_frees(milliseconds, room, under):
    holds(under([room, "no_mappings", milliseconds]))


@pytest.mark.parametrize("limit", ["address_space", "data"])
def test_phases_of_any_size_fit_into_what_one_of_them_needs(limit, room, under):
    holds(under([room, limit, 200]))


def test_a_program_lives_in_a_quarter_more_than_its_live_bytes(room, under):
    for _ in range(3):  # on busy cores the background may be held up where it has the upkeep's lock
        run = under([room, "resident", 120], {"limit": "150MiB"})
        if run.returncode == 0:
            break
    holds(run)


def group_of(limit):
    """A control group of so many bytes, if this process may make one: the file that a process enters it by."""
    for root, name, enter in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "cgroup.procs"),
        ("/sys/fs/cgroup", "memory.max", "cgroup.procs"),
    ):
        group = Path(root) / f"memoir-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        return group, group / enter
    pytest.skip("no control group can be made here")


@pytest.mark.full  # it makes a control group of the machine
def test_and_in_a_control_group_of_that_size(room, under):
    group, enter = group_of(150 << 20)
    try:
        holds(under(["sh", "-c", 'echo $$ > "$1" && exec "$2" resident 120', "sh", enter, room]))
    finally:
        group.rmdir()


def test_many_threads_hold_little(room, under):
    holds(under([room, "many_threads", 1000]))


def test_without_a_background_thread_memory_goes_back(room, under):
    holds(under([room, "load_drops"], {"background": "0"}))


def test_a_refused_thread_is_tried_again(room, under):
    run = under([room, "refused_thread"], {"stats": "1"})
    if run.returncode == 77:
        pytest.skip(run.stdout)
    holds(run)


@pytest.mark.full
def test_addresses_do_not_run_out(room, under):
    holds(under([room, "addresses", 280]))
