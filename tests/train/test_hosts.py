# SPDX-License-Identifier: Apache-2.0
"""Machines on hosts instead of objects in memory: what docs/guides/beyond-memory.md says of it holds on other weeks."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "train"))

import hosts  # noqa: E402 (bench/train/hosts.py)


@pytest.mark.parametrize("seed", [11, 12])
def test_where_load_falls_lifetimes_empty_hosts_and_predictions_come_near(seed):
    found = {name: row["mean"] for name, row in hosts.compare(6000, seed, "bursts").items()}
    assert found["lifetimes known"] < 0.75 * found["best fit"]
    assert found["lifetimes predicted"] < 0.85 * found["best fit"]
    assert found["lifetimes shuffled"] > found["lifetimes predicted"]


@pytest.mark.parametrize("load", ["day", "bursts"])
def test_no_policy_runs_fewer_hosts_than_the_machines_fill(load):
    for name, row in hosts.compare(2000, 13, load).items():
        assert row["mean"] >= row["needed"] > 0, name


def test_where_load_hardly_falls_best_fit_wins():
    found = {name: row["mean"] for name, row in hosts.compare(4000, 14, "day").items()}
    assert found["best fit"] < found["lifetimes known"]
