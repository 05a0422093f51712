# SPDX-License-Identifier: Apache-2.0
"""run_suites.py, which compares what test suites of real programs say: what it reads, and what counts as different."""

import shutil
from pathlib import Path

import pytest
from run_suites import MODES, differing, parse, run
from suite_sources import COMMANDS
from suites import SUITES

SAYS = {
    "redis": ("[\x1b[0;32;49mok\x1b[0m]: SADD (7 ms)\n[err]: SREM\n", {"SADD": "ok", "SREM": "err"}),
    "python": (
        "test_a (test.test_x.T.test_a) ... ok\ntest_b (test.test_x.T.test_b)\nWhat it is. ... FAIL\n",
        {"test_a (test.test_x.T.test_a)": "ok", "test_b (test.test_x.T.test_b)": "FAIL"},
    ),
    "git": ("t1.sh ok 1 - this\nt1.sh not ok 2 - that\n", {"t1.sh": "ok", "t1.sh #2": "not ok"}),
    "tcl": ("a.test:\tTotal\t2\tPassed\t2\n", {"a.test": "Total\t2\tPassed\t2"}),
    "php": ("TEST 1/2 [a.phpt]\rPASS Of it [zend/a.phpt] \n", {"zend/a.phpt": "PASS"}),
}


@pytest.mark.parametrize("name", SAYS)
def test_output_is_read(name):
    text, results = SAYS[name]
    assert parse(SUITES[name], text) == results


def test_every_suite_has_its_commands():
    commands = COMMANDS.read_text()
    for name, suite in SUITES.items():
        assert f"run_{name}() {{" in commands
        assert (f"prepare_{name}() {{" in commands) == suite.prepares


def test_what_a_plain_run_says_too_is_no_difference():
    plain = [{"a": "ok", "b": "ok", "c": "ok"}, {"a": "ok", "b": "failed", "c": "ok"}]
    assert differing(plain, [{"a": "ok", "b": "failed", "c": "ok"}]) == {}
    assert differing(plain, [{"a": "failed", "b": "ok"}, {"a": "ok", "b": "ok"}]) == {"c": ["ok", "not run"]}


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd here")
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_suite_says_the_same(mode, tmp_path):
    (tmp_path / "source").mkdir()
    shutil.copy(__file__, tmp_path / "source")
    plain, _ = run("zstd", SUITES["zstd"], "plain", tmp_path, tmp_path / "source", None)
    ours, figures = run("zstd", SUITES["zstd"], mode, tmp_path, tmp_path / "source", None)
    assert len(plain) == 16 and differing([plain], [ours]) == {}
    if mode == "record":
        assert figures["unreadable"] == [] and figures["events"] > 1000
    assert Path(tmp_path / f"zstd.{mode}.log").exists()
