# SPDX-License-Identifier: Apache-2.0
"""The measuring loop, with processes that only pretend: groups by memory, deaths, budgets, fresh processes."""

import math
import time

import latency.runner
import pytest
from latency.cells import CellKey
from latency.records import by_cell
from latency.runner import Design, Processes, Runner
from latency.summary import summarise
from made_up import header
from memoir.bench.process.workers import Failure
from memoir.bench.recording import Recording
from memoir.bench.sessions import FEWEST_BLOCKS

MIB = 1 << 20
KEY = CellKey("dcgan", 1, 64, 1, 1)
NAMES = ["glibc", "jemalloc_1mb", "tcmalloc", "memoir"]


class PretendedProcess:
    """Answers as a process would; `faults` says how many requests of a kind a variant survives."""

    faults: dict = {}
    opened: list = []
    alive = True

    def __init__(self, variant, timeout):
        self.variant, self._asked = variant, {}

    def greet(self, libraries):
        pass

    def prove(self):
        return {"versions": {"torch": "2"}}

    def stop(self):
        pass

    def ask(self, do, **request):
        self._asked[do] = self._asked.get(do, 0) + 1
        if self._asked[do] > self.faults.get((self.variant.name, do), math.inf):
            raise Failure("killed by SIGSEGV", ["the last line"])
        memory = {"anonymous": 0, "shared": 0, "peak_anonymous": 100 * MIB}
        if do == "open":
            self.opened.append(self.variant.name)
            return {"opened": memory}
        if do == "run":
            used = dict.fromkeys(("minor", "major", "user_us", "system_us", "anonymous", "wall_ns"), 1)
            return used | {"ns": [10_000_000] * request["passes"], "made": request["passes"]}
        return memory | {"output": "same"}


@pytest.fixture
def measure(monkeypatch):
    """Measures KEY once: (its rows, the variants in the order in which they were opened, what was said)."""
    monkeypatch.setattr(latency.runner, "AllocatorProcess", PretendedProcess)

    def run(design, faults=None, recording=None, deadline=math.inf):
        PretendedProcess.faults, PretendedProcess.opened = faults or {}, []
        recording, said = recording or Recording.begin(header()), []
        with Processes(design, NAMES, []) as processes:
            processes.start()
            Runner(design, processes, recording, said.append).measure(KEY, deadline)
        return recording.result, PretendedProcess.opened, said

    return run


def blocks(result):
    """The variants of every block, in the order of their turns."""
    found = {}
    for row in result.rows:
        if row["status"] == "ok":
            found.setdefault((row["session"], row["replicate"]), []).append(row["allocator"])
    return found


def test_every_variant_takes_part_in_every_block(measure):
    result, opened, _ = measure(Design(replicates=5))
    assert [set(names) for names in blocks(result).values()] == [set(NAMES)] * 5
    assert {len(row["turn"]["ns"]) for row in result.rows} == {25}  # of 10 ms
    assert {row["wall"] for row in result.rows} == {0.01}
    assert opened[0] == "memoir" and sorted(opened) == sorted(NAMES)
    assert len({tuple(names) for names in blocks(result).values()}) > 1  # the order changes


def test_when_memory_is_short_groups_share_the_candidate(measure, monkeypatch):
    monkeypatch.setattr(latency.runner.machine, "memory_available", lambda: 0)
    result, opened, said = measure(Design(replicates=4))
    assert opened == ["memoir", "glibc", "memoir", "jemalloc_1mb", "memoir", "tcmalloc"]
    assert len(blocks(result)) == 3 * 4
    assert all(len(names) == 2 and "memoir" in names for names in blocks(result).values())
    assert "memory is short" in said[0]
    comparisons = summarise(result).cells[0].comparisons
    assert {name: one.n for name, one in comparisons.items()} == dict.fromkeys(NAMES[:3], 4)


def test_one_that_cannot_open_does_not_stop_the_others(measure):
    result, _, said = measure(Design(replicates=4), {("tcmalloc", "open"): 0})
    assert [set(names) for names in blocks(result).values()] == [set(NAMES) - {"tcmalloc"}] * 4
    (failed,) = result.failures
    assert (failed["allocator"], failed["status"], failed["tail"]) == (
        "tcmalloc",
        "killed by SIGSEGV",
        ["the last line"],
    )
    assert by_cell(result)[KEY].failures == {"tcmalloc": "killed by SIGSEGV"}
    assert said == ["    tcmalloc failed on dcgan 1x64 1 thread: killed by SIGSEGV"]


def test_one_that_dies_half_way_keeps_what_it_did(measure):
    result, _, _ = measure(Design(replicates=4), {("memoir", "run"): 1 + 2})  # the warm-up and two turns
    assert ["memoir" in names for names in blocks(result).values()] == [True, True, False, False]
    assert {member["allocator"] for member in result.members} == set(NAMES) - {"memoir"}


def test_a_spent_budget_leaves_the_fewest_blocks(measure):
    result, _, _ = measure(Design(replicates=30), deadline=time.monotonic())
    assert len(blocks(result)) == FEWEST_BLOCKS


def test_resuming_tops_up_and_rounds_use_fresh_processes(measure):
    recording = Recording.begin(header())
    measure(Design(replicates=3, passes=7), recording=recording)
    result, opened, _ = measure(Design(replicates=8, rounds=2), recording=recording)
    assert list(blocks(result)) == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4), (2, 5), (2, 6), (2, 7)]
    assert {len(row["turn"]["ns"]) for row in result.rows} == {7}  # as many passes as at first
    assert len(opened) == 2 * len(NAMES)
    count = len(result.rows)
    again, opened, _ = measure(Design(replicates=8, rounds=2), recording=recording)
    assert opened == [] and len(again.rows) == count
