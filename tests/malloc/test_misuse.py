# SPDX-License-Identifier: Apache-2.0
"""The checked build (secure=1): what it finds of misuse.c, and that good programs run under it as under the other."""

import os
import signal
import subprocess
import sys

import pytest
from test_conformance import CASES

from memoir import Error, malloc

SECURE = {"secure": "1"}
DAMAGED = "written to while it was free, or freed twice"
FREED = "freed already"
NO_BLOCK = "not the start of a block that was handed out"
# What each kind ends with. None: a page that cannot be touched, so SIGSEGV.
FOUND = {
    "twice": FREED,
    "twice_with_others_between": FREED,
    "twice_much_later": FREED,
    "twice_written_between": DAMAGED,
    "twice_on_two_threads": FREED,
    "twice_of_another_thread": FREED,
    "twice_when_all_is_free": FREED,
    "twice_after_trim": FREED,
    "twice_middle": FREED,
    "twice_large": FREED,
    "realloc_of_freed": "memoir: realloc(",
    "inside_small": NO_BLOCK,
    "inside_small_by_eight": NO_BLOCK,
    "inside_small_by_one": NO_BLOCK,
    "inside_kilobytes": NO_BLOCK,
    "inside_middle": "inside a block, not at its start",
    "inside_large": "not a block of this heap",
    "realloc_inside": "memoir: realloc(",
    "on_the_stack": "not a block of this heap",
    "in_static_memory": "not a block of this heap",
    "in_a_mapping": "not a block of this heap",
    "far_beyond": "not a block of this heap",
    "never_handed_out": "memoir: free(",
    "smaller_than_its_free_says": "smaller than the size that its free names",
    "after_free_first_word": DAMAGED,
    "after_free_second_word": DAMAGED,
    "after_free_one_bit": DAMAGED,
    "after_free_link_to_elsewhere": DAMAGED,
    "after_free_by_another_thread": DAMAGED,
    "after_free_large": None,
    "past_the_end_into_a_free_block": DAMAGED,
    "one_bit_past_the_end": DAMAGED,
    "past_the_end_of_large": None,
    "before_the_start_of_large": None,
}
# Only what watches every access sees these.
NOT_SEEN = {"past_the_end_into_a_used_block", "after_free_third_word", "read_after_free"}


@pytest.fixture(scope="module", autouse=True)
def checked():
    try:
        return malloc.library(secure=True)
    except Error as error:
        pytest.skip(str(error))


def test_every_kind_is_listed(compiled):
    said = subprocess.run([compiled("misuse.c")], capture_output=True, text=True).stdout.split()
    assert set(said) == FOUND.keys() | NOT_SEEN


@pytest.mark.parametrize("kind", FOUND)
def test_found(kind, compiled, under):
    run = under([compiled("misuse.c"), kind], SECURE)
    line = FOUND[kind]
    assert "missed" not in run.stdout
    if line is None:
        assert run.returncode == -signal.SIGSEGV
        return
    assert run.returncode == -signal.SIGABRT, run.stderr
    [said] = run.stderr.splitlines()
    assert said.startswith("memoir: ") and line in said, said


def test_keys_differ_from_run_to_run(compiled, under):
    """One kind many times: whether it is found does not hang on the keys or the order."""
    program = compiled("misuse.c")
    for _ in range(25):
        run = under([program, "one_bit_past_the_end"], SECURE)
        assert run.returncode == -signal.SIGABRT and DAMAGED in run.stderr


@pytest.mark.parametrize("case", CASES)
def test_good_programs(case, conformance, under):
    run = under([conformance, case], SECURE)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("case", ["new", "nothrow", "aligned", "handler", "containers"])
def test_operators(case, compiled, under):
    run = under([compiled("operators.cpp"), case], SECURE)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "settings", [{}, SECURE, SECURE | {"background": "0"}, SECURE | {"split_from": "1MiB"}]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_operations_keep_all_contents(seed, settings, compiled, under):
    run = under([compiled("operations.c"), str(seed), "60000"], settings)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("kept ")


def test_blocks_come_in_another_order_each_time(compiled, under):
    orders = {under([compiled("operations.c"), "order"], SECURE).stdout for _ in range(5)}
    assert len(orders) > 1
    distances = {int(one) for order in orders for one in order.split()}
    assert len(distances) > 1  # in the other library each lies right behind the one before


def test_a_large_program(under):
    work = "import json, re; print(len(json.loads(json.dumps([{str(i): [i] * 9} for i in range(30000)]))))"
    run = under([sys.executable, "-X", "utf8", "-c", work], SECURE)
    assert (run.returncode, run.stdout) == (0, "30000\n"), run.stderr


def test_the_plain_library_says_where_the_checks_are(under):
    environment = malloc.environment() | {malloc.VARIABLE: "secure=1"}
    run = subprocess.run(["true"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0
    [line] = run.stderr.splitlines()
    assert "libmemoir_malloc_secure.so" in line and "memoir run --set secure" in line


def test_the_setting_chooses_the_library(checked):
    plain = str(malloc.library())
    assert malloc.environment({}, {})["LD_PRELOAD"] == plain
    assert malloc.environment({"secure": "1"}, {})["LD_PRELOAD"] == str(checked)
    assert malloc.environment({"secure": "0"}, {})["LD_PRELOAD"] == plain
    assert malloc.environment({"tau": "3"}, {malloc.VARIABLE: "secure"})["LD_PRELOAD"] == str(checked)
    # A program under the one starts another under the other: never both.
    inside = malloc.environment({}, {"LD_PRELOAD": f"{plain}:/else.so"})
    assert malloc.environment({"secure": "on"}, inside)["LD_PRELOAD"] == f"{checked}:/else.so"


@pytest.mark.parametrize("order", [["--set", "secure", "--print"], ["--print", "--set", "secure=1"]])
def test_memoir_run_prints_the_library_that_is_chosen(order, checked):
    words = [sys.executable, "-m", "memoir", "run", *order]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == f"{checked}\n", done.stderr
