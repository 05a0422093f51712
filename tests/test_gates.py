# SPDX-License-Identifier: Apache-2.0
"""What .ci/run promises of itself: docs/contributing/gates.md has its table, budgets fit, failures stop it, and skips
are said."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load(path: str, name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gates = load(".ci/gates.py", "gates")
fuzz = load("fuzz/run.py", "run")


def test_the_docs_have_the_table_of_gates():
    text = (ROOT / "docs" / "contributing" / "gates.md").read_text()
    written = text.split("<!-- .ci/run --list -->\n")[1].split("\n<!-- end -->")[0]
    assert written == gates.table()


def test_the_default_gates_fit_into_25_minutes():
    assert sum(gate.budget for gate in gates.GATES if not gate.full) <= gates.LIMIT == 1500
    assert next(gate.budget for gate in gates.GATES if gate.name == "test") <= 480


def test_every_fuzzer_has_small_seeds_and_a_line_in_the_docs():
    text = (ROOT / "fuzz" / "README.md").read_text()
    assert len(fuzz.names()) >= 7
    for name in fuzz.names():
        seeds = list((ROOT / "fuzz" / "seeds" / name).iterdir())
        assert seeds and all(seed.stat().st_size <= 16 * 1024 for seed in seeds), name
        assert f"`{name}`" in text


def test_the_bench_journals_fuzzer_finds_nothing():
    program = ROOT / "fuzz" / "bench_journal_fuzz.py"
    seeds = ROOT / "fuzz" / "seeds" / "bench_journal_fuzz"
    done = subprocess.run(
        [sys.executable, program, "--rounds", "3000", seeds], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 mutations, no crash" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "100% tests passed, 0 tests failed out of 18",
        "Total Test time (real) =  61.57 sec",
        "913 passed, 81 skipped, 14 warnings in 192.13s (0:03:12)",
        "1 failed, 913 passed, 81 skipped in 192.13s (0:03:12)",
        "All checks passed!",
        "152 files already formatted",
        "Success: no issues found in 93 source files",
        "8 of 8 fuzzers found nothing",
        "14 ok, 2 skipped, 0 failed in 61 s",
    ],
)
def test_the_runners_last_lines_are_kept(line):
    assert gates.SUMMARY.fullmatch(line)


def run_gates(monkeypatch, tmp_path, capsys, steps, *arguments):
    """main() with made-up gates; (exit status, what it printed)."""
    made_up = tuple(gates.Gate(name, f"does {name}", budget, function) for name, budget, function in steps)
    monkeypatch.setattr(gates, "GATES", made_up)
    monkeypatch.setattr(gates, "ROOT", tmp_path)
    monkeypatch.setattr(gates, "LOGS", tmp_path / "build" / "gates")
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    return gates.main(), capsys.readouterr().out


def says(text, code=0):
    return lambda: iter([[sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]])


def lacks():
    raise gates.Missing("no unicorn here")
    yield


def test_the_last_lines_name_every_gate(monkeypatch, tmp_path, capsys):
    steps = [("test", 1000, says("3 passed in 1.2s")), ("horn", 9, lacks), ("late", 0, says("late"))]
    status, text = run_gates(monkeypatch, tmp_path, capsys, steps)
    assert status == 0
    last = text.split("=== what the runners said")[1]
    assert "test         3 passed in 1.2s" in last
    assert "skipped: no unicorn here" in last
    assert "passed, over its budget" in last
    assert (tmp_path / "build/gates/test.log").read_text() == "3 passed in 1.2s\n"


def test_a_gate_that_fails_stops_the_run(monkeypatch, tmp_path, capsys):
    steps = [("test", 9, says("1 failed in 1.0s", 3)), ("after", 9, says("never"))]
    status, text = run_gates(monkeypatch, tmp_path, capsys, steps)
    assert status == 1
    assert "ended with 3; build/gates/test.log" in text
    assert "not run: a gate before it failed" in text
    assert "never" not in text


def test_a_gate_that_fails_does_not_stop_one_that_keeps_going(monkeypatch, tmp_path, capsys):
    steps = [("test", 9, says("no", 1)), ("after", 9, says("still here"))]
    status, text = run_gates(monkeypatch, tmp_path, capsys, steps, "--keep-going")
    assert status == 1
    assert "\nstill here\n" in text


def test_a_gate_that_is_not_there_is_named():
    done = subprocess.run([ROOT / ".ci" / "run", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no gate nothing" in done.stderr


def test_every_mutant_still_finds_the_text_that_it_changes():
    for mutant in load("tests/mutants.py", "mutants").MUTANTS:
        text = (ROOT / "src" / "memoir" / mutant.file).read_text()
        assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file}"
        assert (ROOT / "tests" / mutant.test.removeprefix("test_")).is_dir(), mutant.name


def test_a_gate_that_compiles_waits_for_a_machine_that_is_quick_enough():
    slow = gates.Outcome(gates.Gate("test", "", 480, says("")), "passed", seconds=1200.0)
    assert gates.pace([]) == 1 and gates.pace([slow]) == 2.5
    compiled = {gate.name for gate in gates.GATES if gate.compiles and not gate.full}
    assert compiled == {"address", "fuzz", "thread"}
