# SPDX-License-Identifier: Apache-2.0
"""bench/results.py: figures out of what benches print, a budget, a second call that goes on, what changed beyond noise."""

import importlib.util
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("results_program", ROOT / "bench" / "results.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
make = program.writer()

PRINTED = """building
| program | CPU s | recorded |
|---|---:|---:|
| `python` | 0.20 | **1.18** [1.11, 1.26] |
| other | 1,234 | 1.0047, 1.0036 |

all 3 programs
  processor  sampled / alone 0.995 [0.963, 1.028]
"""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["python", "CPU s"], ("0.20", None, None)),
        (["python", "recorded"], ("1.18", "1.11", "1.26")),
        (["other", "CPU s"], ("1234", None, None)),
        (["other", "recorded", Decimal(1)], ("1.0036", None, None)),
        (r"alone ([\d.]+ \[[\d.]+, [\d.]+\])", ("0.995", "0.963", "1.028")),
        (["third", "recorded"], None),
        (["python", "none such"], None),
        (["python", "CPU s", Decimal(1)], None),
        ("(no such words)", None),
    ],
)
def test_a_figure_is_found_with_its_digits(where, said):
    found = program.pick(PRINTED, where)
    assert found == (said and tuple(one and Decimal(one) for one in said))


def test_what_changed_beyond_noise():
    old = {"value": Decimal("1.10"), "low": Decimal("1.05"), "high": Decimal("1.15")}
    assert program.verdict(old, Decimal("1.10"), None, None) is None
    assert program.verdict(old, Decimal("1.12"), Decimal("1.08"), Decimal("1.16")) == "within noise"
    assert program.verdict(old, Decimal("1.30"), Decimal("1.25"), Decimal("1.35")) == "changed"
    assert "noise" in program.verdict({"value": Decimal(3)}, Decimal(4), None, None)


@pytest.mark.parametrize("door", make.DOORS)
def test_steps_name_benches_figures_and_measurements(door):
    results = make.load(door)
    text = (make.RESULTS / "data" / f"{door}.json").read_text()
    assert make.dump(results) == text  # so that a run changes the lines of what it made, and no others
    assert results["remake"]
    for step in results["remake"]:
        assert (ROOT / step["command"][0]).is_file()
        assert step["measured"] in results["measured"] and step["replicates"]
        for name in [*step["picks"], *step.get("means", {})]:
            assert name in results["figures"], name


def door_of(folder, **steps):
    """A copy of a door's results whose steps are these programs."""
    results = make.load("bench")
    results["remake"] = [
        {
            "step": name,
            "measured": "equal",
            "replicates": "2",
            "command": [str(command), "{folder}"],
            "picks": {f"false_{name}": r"false: (\d+)"},
        }
        for name, command in steps.items()
    ]
    folder.mkdir()
    (folder / "bench.json").write_text(make.dump(results))


def test_a_slow_bench_is_stopped_and_gone_on_with(tmp_path):
    """The first call makes what fits into its budget; the second runs only what is left."""
    quick, slow = tmp_path / "quick.py", tmp_path / "slow.py"
    quick.write_text(f"open({str(tmp_path / 'calls')!r}, 'a').write('x')\nprint('false: 5')\n")
    slow.write_text(
        "import os, subprocess, sys, time\n"
        f"if not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "    subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('false: 7')\n"
    )
    data = tmp_path / "data"
    door_of(data, memoir=quick, hyperfine=slow)
    words = [
        sys.executable,
        ROOT / "bench/results.py",
        "bench",
        "--data",
        data,
        "--state",
        tmp_path / "state",
    ]
    first = subprocess.run([*words, "--budget", "4s"], capture_output=True, text=True, timeout=300)
    assert first.returncode == 3, first.stdout + first.stderr
    assert "hyperfine: out of time" in first.stdout and "not ended: hyperfine" in first.stdout
    figures = make.parse((data / "bench.json").read_text())["figures"]
    assert figures["false_memoir"]["value"] == 5 and figures["false_hyperfine"]["value"] == 3

    (tmp_path / "go").touch()
    second = subprocess.run([*words, "--budget", "2min"], capture_output=True, text=True, timeout=300)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "memoir: ended before" in second.stdout and (tmp_path / "calls").read_text() == "x"
    assert "false_hyperfine: 7, was 3" in second.stdout
    results = make.parse((data / "bench.json").read_text())
    figure = results["figures"]["false_hyperfine"]
    made = results["measured"][figure["of"]]
    assert figure["value"] == 7 and made["commit"] and made["machine"] and made["date"]
    # what this run did not make keeps its own measurement
    assert results["figures"]["false_pyperf"]["of"] == "equal" and "equal" in results["measured"]
    assert not (tmp_path / "state/bench").exists()


def test_a_bench_that_fails_changes_nothing(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("print('false: 9')\nraise SystemExit(1)\n")
    door_of(tmp_path / "data", memoir=broken)
    before = (tmp_path / "data/bench.json").read_text()
    code = program.main(["bench", "--data", str(tmp_path / "data"), "--state", str(tmp_path / "state")])
    assert code == 3 and (tmp_path / "data/bench.json").read_text() == before


def test_a_door_is_remade_for_real(tmp_path):
    """The planners on two of minimalloc's instances, a second of work."""
    data = tmp_path / "data"
    data.mkdir()
    results = make.load("plan")
    results["remake"] = [step for step in results["remake"] if step["step"] == "minimalloc"]
    results["remake"][0]["command"].append("--smoke")
    (data / "plan.json").write_text(make.dump(results))
    assert program.main(["plan", "--data", str(data), "--state", str(tmp_path / "state")]) == 0
    made = make.parse((data / "plan.json").read_text())
    figure = made["figures"]["faster"]
    assert figure["value"] > 1 and made["measured"][figure["of"]]["commit"]


def test_a_budget_is_written_with_its_unit():
    assert program.seconds("90s") == 90 and program.seconds("20min") == program.seconds("20m") == 1200
    done = subprocess.run(
        [sys.executable, ROOT / "bench/results.py", "plan", "--budget", "20"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "90s, 20min or 2h" in done.stderr


def test_no_step_of_that_name():
    done = subprocess.run(
        [sys.executable, ROOT / "bench/results.py", "plan", "--only", "planer"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "planners" in done.stderr


def test_whole_numbers_and_digits_are_kept():
    text = make.dump({"figures": {"x": {"value": Decimal("1.00")}}, "remake": [{"a": [Decimal(3)]}]})
    assert '"value": 1.00' in text and make.dump(make.parse(text)) == text
    assert json.loads(text)["remake"][0]["a"] == [3]


def test_a_mean_is_made_of_what_was_measured_together():
    """Where a program is not here, its figure and the means that it is part of stay as they are."""
    printed = "| program | x |\n|---|---|\n| a | 2.00 |\n| b | 8.00 |\n"
    step = {
        "step": "s",
        "measured": "m",
        "replicates": "1",
        "picks": {"a": ["a", "x"], "b": ["b", "x"], "c": ["c", "x"]},
        "means": {"both": ["a", "b"], "ratio": [["a", "b"], ["b", "a"]], "all": ["a", "b", "c"]},
    }
    results = {
        "figures": {
            name: {"what": name, "value": Decimal("1.00"), "of": "m"}
            for name in ("a", "b", "c", "both", "ratio", "all")
        },
        "measured": {"m": {"date": "then", "programs": "two"}},
    }
    when = {"date": "now", "machine": "here", "load": "0", "commit": "1"}
    lines = "\n".join(program.take(results, step, printed, when))
    figures = results["figures"]
    assert str(figures["both"]["value"]) == "4.00" and figures["both"]["low"] < 4 < figures["both"]["high"]
    assert figures["ratio"]["value"] == 1 and figures["all"]["value"] == figures["c"]["value"] == 1
    assert figures["c"]["of"] == "m" and figures["a"]["of"] == "m, now"
    assert "not in what s printed: c" in lines and "all: kept" in lines
