# SPDX-License-Identifier: Apache-2.0
"""Threads that are born and die, each other's blocks, forks: all contents looked at (stress.cpp).

`make soak` goes on from here to a milliard of operations; ctest runs the same under the sanitizers."""

import json

import pytest

SETTINGS = [{}, {"background_from": "1MiB", "split_from": "1MiB", "sample": "16KiB"}, {"secure": "1"}]


def stress(compiled, under, settings, operations, seed):
    program = compiled("stress.cpp", "-std=c++20", "-O2")
    run = under([program, "--operations", operations, "--first-seed", seed], settings)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["done"] >= operations


@pytest.mark.parametrize("settings", SETTINGS)
def test_contents_are_kept(settings, compiled, under):
    stress(compiled, under, settings, 300_000, 1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 32))
def test_contents_are_kept_for_a_minute(seed, compiled, under):
    stress(compiled, under, SETTINGS[seed % len(SETTINGS)], 5_000_000, seed)
