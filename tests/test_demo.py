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


def test_a_wide_interval_says_that_the_machine_is_busy(demo):
    doors = demo.answers(LATENCY, MEMORY, "", "")
    assert "busy" not in doors[0][2]
    doors = demo.answers(LATENCY.replace("[0.702, 0.761]", "[0.211, 3.782]"), MEMORY, "", "")
    assert "busy" in doors[0][2] and doors[0][1] == "0.731 [0.211, 3.782]"
    assert not demo.is_wide("0.731")


def test_a_command_shows_its_answer_and_returns_everything(demo, capsys):
    text = demo.call(
        "memoir plan tests/data/planning/minimalloc/K.1048576.csv --capacity 1048576", r"^auto |^fits"
    )
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3 and shown[0].startswith("$ memoir plan") and "1,048,576" in shown[1]
    assert "no plan is smaller than" in text


def test_the_terminal_gets_thirty_lines(demo, capsys, monkeypatch, tmp_path):
    """With what the commands printed on one machine."""
    printed = {
        "show out/resnet50.trace": "  379 allocations of 979 MiB in 13.4 s\n  peak: 56.0 MiB live\n"
        + "other\n" * 50,
        "plan out": "auto  58,720,256\nbump  1,026,773,700\n" + "other  1\n" * 20,
        "torch_latency": LATENCY
        + "| outputs equal those of plain PyTorch bit for bit | on 1 of 1 cells | met |\n",
        "malloc.py": MEMORY,
        "oom": '  asked  64 MiB\n  held  800 MiB\nA placement could have served it\n  memoir.torch.use_pool("memoir")\n',
        "K.1048576": "auto  1,048,576  1.00 MiB  +0  7.50 ms  optimal\nfits the capacity\n",
    }

    class Printed:
        def __init__(self, program, **_):
            line = " ".join(map(str, program))
            self.stdout = next((text for part, text in printed.items() if part in line), "").splitlines(True)

        def wait(self):
            return 0

    monkeypatch.setattr(demo, "OUT", tmp_path)
    monkeypatch.setattr(demo, "record", lambda: None)
    monkeypatch.setattr(demo.subprocess, "Popen", Printed)
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    assert 20 <= len(lines) <= 36, len(lines)
    assert "other" not in "".join(lines) and (tmp_path / "demo.html").read_text().count("other") == 70
