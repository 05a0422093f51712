# SPDX-License-Identifier: Apache-2.0
"""examples/demo.py: the page of `make demo` begins with what the commands printed. (The commands have tests of their own.)"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LATENCY = """| allocator | memoir's latency / its (95 %) | its p99.9 / median |
| --------- | ----------------------------- | ------------------ |
| glibc     | 0.731 [0.702, 0.761]          | 1.19               |
| jemalloc  | 0.689                         | 1.00               |
| memoir    |                               | 1.17               |
"""
MEMORY = """allocator    cycle     live     full  huge %  settled  / live   MiB
system           1     15.2    165.3       0    140.1    9.22
system           2     15.2    165.3       0    141.1    9.28
memoir           1     15.2    170.3      80     30.1    1.98
memoir           2     15.2    170.3      80     28.4    1.87
"""


@pytest.fixture(scope="module")
def demo():
    where = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


def said(*words) -> str:
    return subprocess.run(
        [sys.executable, "-m", "memoir", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_page_begins_with_the_answers(demo, tmp_path):
    demo.failed_snapshot(tmp_path / "failed.pickle")
    problem = ROOT / "tests/data/planning/minimalloc/K.1048576.csv"
    doors = demo.answers(
        LATENCY,
        MEMORY,
        said("oom", "--no-caps", tmp_path / "failed.pickle"),
        said("plan", problem, "--capacity", 1048576),
    )
    assert [figure for _, figure, _ in doors] == [
        "0.731 [0.702, 0.761]",
        "28 of 141 MiB",
        'memoir.torch.use_pool("memoir")',
        "1,048,576 bytes",
    ]
    text = demo.page(doors, "".join(f'<h2 id="door{number}">x</h2>' for number in range(1, 5)))
    for number in range(1, 5):
        assert text.count(f'href="#door{number}"') == text.count(f'id="door{number}"') == 1
    assert "use_pool(&quot;memoir&quot;)" in text and "prefers-color-scheme: dark" in text


def test_a_command_that_prints_something_else_has_no_figure(demo):
    doors = demo.answers(LATENCY.replace("glibc", "another"), MEMORY, "", "")
    assert [figure for _, figure, _ in doors] == ["see below", "28 of 141 MiB", "see below", "see below"]
    assert demo.answers(LATENCY.replace(" [0.702, 0.761]", ""), "", "", "")[0][1] == "0.731"
