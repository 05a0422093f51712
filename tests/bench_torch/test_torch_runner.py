# SPDX-License-Identifier: Apache-2.0
"""The measuring loop, with workers that only pretend: groups by memory, deaths, budgets, fresh processes."""

import math
import time

import latency.runner
import pytest
from latency.results import Results
from latency.runner import Design, Runner
from latency.schedule import FEWEST_BLOCKS, CellKey
from latency.session import Failure
from latency.summary import summarise
from made_up import HEADER

MIB = 1 << 20
KEY = CellKey("dcgan", 1, 64, 1, 1)
NAMES = ["glibc", "jemalloc_1mb", "tcmalloc", "memoir"]


class PretendedWorker:
    """Answers as a worker would; `faults` says how many requests of a kind a variant survives."""

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
    """Measures KEY once: (its cell, the variants in the order in which they were opened, what was said)."""
    monkeypatch.setattr(latency.runner, "Worker", PretendedWorker)

    def run(design, faults=None, results=None, deadline=math.inf):
        PretendedWorker.faults, PretendedWorker.opened = faults or {}, []
        results, said = results or Results(None, HEADER), []
        with Runner(design, NAMES, results, said.append, []) as runner:
            runner.start()
            runner.measure(KEY, deadline)
        return results.cells[KEY], PretendedWorker.opened, said

    return run


def test_every_variant_takes_part_in_every_block(measure):
    cell, opened, _ = measure(Design(replicates=5))
    assert [set(block["runs"]) for block in cell["blocks"]] == [set(NAMES)] * 5
    assert cell["passes"] == 25  # of 10 ms
    assert opened[0] == "memoir" and sorted(opened) == sorted(NAMES)
    assert len({tuple(block["runs"]) for block in cell["blocks"]}) > 1  # the order changes


def test_when_memory_is_short_groups_share_the_candidate(measure, monkeypatch):
    monkeypatch.setattr(latency.runner, "available_memory", lambda: 0)
    cell, opened, said = measure(Design(replicates=4))
    assert opened == ["memoir", "glibc", "memoir", "jemalloc_1mb", "memoir", "tcmalloc"]
    assert all(len(block["runs"]) == 2 and "memoir" in block["runs"] for block in cell["blocks"])
    assert "memory is short" in said[0]
    results = Results(None, HEADER)
    results.cells[KEY] = cell
    comparisons = summarise(results).cells[0].comparisons
    assert {name: one.n for name, one in comparisons.items()} == dict.fromkeys(NAMES[:3], 4)


def test_one_that_cannot_open_does_not_stop_the_others(measure):
    cell, _, said = measure(Design(replicates=4), {("tcmalloc", "open"): 0})
    assert [set(block["runs"]) for block in cell["blocks"]] == [set(NAMES) - {"tcmalloc"}] * 4
    assert cell["failures"] == [
        {"session": 0, "variant": "tcmalloc", "what": "killed by SIGSEGV", "last_lines": ["the last line"]}
    ]
    assert said == ["    tcmalloc failed on dcgan 1x64 1 thread: killed by SIGSEGV"]


def test_one_that_dies_half_way_keeps_what_it_did(measure):
    cell, _, _ = measure(Design(replicates=4), {("memoir", "run"): 1 + 2})  # the warm-up and two turns
    assert ["memoir" in block["runs"] for block in cell["blocks"]] == [True, True, False, False]
    assert {worker["variant"] for worker in cell["workers"]} == set(NAMES) - {"memoir"}


def test_a_spent_budget_leaves_the_fewest_blocks(measure):
    cell, _, _ = measure(Design(replicates=30), deadline=time.monotonic())
    assert len(cell["blocks"]) == FEWEST_BLOCKS


def test_resuming_tops_up_and_rounds_use_fresh_workers(measure):
    results = Results(None, HEADER)
    measure(Design(replicates=3), results=results)
    cell, opened, _ = measure(Design(replicates=8, rounds=2), results=results)
    assert [block["block"] for block in cell["blocks"]] == list(range(8))
    assert [block["session"] for block in cell["blocks"]] == [0] * 3 + [1] + [2] * 4
    assert len(opened) == 2 * len(NAMES)
    again, opened, _ = measure(Design(replicates=8, rounds=2), results=results)
    assert opened == [] and again["blocks"] == cell["blocks"]
