# SPDX-License-Identifier: Apache-2.0
"""The replay that says whether two classes pay."""

from dataclasses import replace

import numpy as np
import pytest
from made_profiles import server
from memoir.lifetimes import RECORDS
from memoir.train import replay


def curve(*live):
    points = np.zeros(len(live), RECORDS["points"])
    points["live"], points["clock"] = live, np.arange(len(live)) * 100
    points["time"] = np.arange(len(live)) * 10
    return points


def test_it_lasts_from_the_first_large_fall_until_the_next_rise():
    peak, end = replay._window(curve(0, 50, 100, 95, 20, 10, 12, 90, 100, 5))
    assert (peak, end) == (200, 700)
    assert replay._window(curve(0, 10, 20, 30)) == (0, np.inf)  # nothing falls
    assert replay._window(curve(5)) == (0, np.inf)


def test_objects_of_a_sample_do_not_live_and_die_together():
    random = np.random.default_rng(3)
    contexts = np.repeat([4, 9], 50)
    begins = np.tile(np.arange(50) * 1000.0, 2)
    ends = begins + np.where(contexts == 4, 10.0, 20_000.0)
    which = np.repeat(np.arange(100), 40)
    born, dies = replay._spread(contexts, begins, ends, which, random)
    of = contexts[which]
    for context, lived in ((4, 10.0), (9, 20_000.0)):
        own = np.sort(born[of == context])
        assert np.diff(own).max() < 300 and len(np.unique(own)) > 1990
        assert np.median((dies - born)[of == context]) == pytest.approx(lived, rel=0.1)
    assert (dies - born)[of == 4] == pytest.approx(10)


def test_a_small_heap_saves_nothing():
    made = server()
    long = np.arange(100) % 4 == 0
    assert replay.gain(made.profile(), long, tau=2.0) == (0, 1)
    assert not replay.pays(0, 1)


def test_a_large_heap_is_replayed():
    made = replace(server(), peak=32 << 20, allocated=1 << 28, text=bytearray())
    profile = made.profile()
    long = np.arange(100) % 4 == 0
    (first, part), (again, _) = (replay.gain(profile, long, tau=2.0) for _ in range(2))
    assert part == 1
    assert -1 < first < 1 and first == again
