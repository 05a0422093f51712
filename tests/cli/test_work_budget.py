# SPDX-License-Identifier: Apache-2.0
"""Commands over small files that ask for much: they end with a line, leave nothing behind, and go on with --yes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from native_trace import NativeTrace

from memoir.base import work_budget

NOTHING = 1 << 40  # less than that is allowed, whatever the bytes of the file add
# The command line with a small budget, so that the test is quick.
COMMAND = """
import sys
from memoir.base import work_budget
work_budget.EVERY, work_budget.SECONDS, work_budget.MEMORY = 0.001, {seconds}, {memory}
work_budget.OUTPUT = {output}
from memoir import cli
cli.main()
"""


def memoir(*words, seconds=8.0, memory=1 << 29, output=1 << 26, cwd=None) -> subprocess.CompletedProcess:
    start = COMMAND.format(seconds=seconds, memory=memory, output=output)
    return subprocess.run(
        [sys.executable, "-c", start, *map(str, words)], cwd=cwd, capture_output=True, text=True
    )


@pytest.fixture
def trace(tmp_path) -> Path:
    made = NativeTrace()
    frame = made.python("f", "f.py", 1)
    for i in range(40_000):  # so that none is done before the budget is looked at
        made.allocate(1, i + 1, 4096 + 64 * i, 16, made.stack(frame))
    path = tmp_path / "x.trace"
    path.write_bytes(made.bytes())
    return path


@pytest.mark.parametrize(
    "words",
    [("show", "-o", "x.html"), ("simulate", "--workers", "2"), ("plan",), ("export", "--to", "folded")],
    ids=" ".join,
)
def test_a_command_that_needs_more_than_its_budget_says_so(words, trace):
    found = memoir(words[0], "x.trace", *words[1:], seconds=-NOTHING, cwd=trace.parent)
    assert found.returncode == 2 and found.stderr.count("\n") == 1
    assert found.stderr.startswith("memoir: x.trace asks for more than ") and "--yes" in found.stderr
    assert [path.name for path in trace.parent.iterdir()] == ["x.trace"]


def test_with_yes_it_goes_on_and_memory_counts_too(trace):
    asked = memoir("show", "x.trace", memory=-NOTHING, cwd=trace.parent)
    assert asked.returncode == 2 and "of memory" in asked.stderr
    written = memoir("export", "x.trace", "--to", "chrome", output=-NOTHING, cwd=trace.parent)
    assert (
        written.returncode == 2 and "of output" in written.stderr and len(list(trace.parent.iterdir())) == 1
    )
    assert (
        memoir("show", "x.trace", "--yes", seconds=-NOTHING, memory=-NOTHING, cwd=trace.parent).returncode
        == 0
    )


def test_the_budget_grows_with_files_folders_and_what_is_allowed(tmp_path):
    (tmp_path / "a").write_bytes(bytes(1_000_000))
    with work_budget.within_budget([tmp_path]):
        budget = work_budget._active
        assert budget.size == 1_000_000 and budget.seconds == pytest.approx(work_budget.SECONDS + 10)
        work_budget.allow(5)
        with work_budget.outside():
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
        assert budget.seconds >= work_budget.SECONDS + 15.1
    assert work_budget._active is None
    work_budget.allow(5)  # without a budget it changes nothing
