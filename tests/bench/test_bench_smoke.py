# SPDX-License-Identifier: Apache-2.0
"""bench/README.md names every program of bench/ and how it is run in small; bench/smoke.py runs them."""

import importlib.util
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memoir.bench import suite

BENCH = Path(__file__).resolve().parents[2] / "bench"
spec = importlib.util.spec_from_file_location("smoke", BENCH / "smoke.py")
smoke = importlib.util.module_from_spec(spec)
spec.loader.exec_module(smoke)

TABLE = """
| `works.py` | something | `memoir --version` | |
| `fails.py` | something | `memoir plan nowhere.trace` | |
| `lacks.py` | something | `memoir simulate` | nothing |
| `again.py` | something | `memoir --version` | |
"""


def programs() -> set[str]:
    """What can be started: scripts and sources with a main, and the probe that is preloaded."""
    python = [path for path in BENCH.rglob("*.py") if 'if __name__ == "__main__"' in path.read_text()]
    native = [
        path
        for path in (*BENCH.rglob("*.cc"), *BENCH.rglob("*.c"))
        if re.search(r"^int main\(", path.read_text(), re.M)
    ]
    found = {str(path.relative_to(BENCH)) for path in (*python, *native)} - {"smoke.py"}
    return found | {"harness/proof.cc"}


def test_every_program_is_in_the_table_and_every_row_is_there():
    rows = smoke.table()
    named = {row.program for row in rows}
    assert len(named) == len(rows)
    assert named == programs() | {"../python/memoir/bench/process/redis_cycles.py"}
    assert all((BENCH / row.program).exists() for row in rows)
    assert {need for row in rows for need in row.needs} == set(smoke.NEEDS)
    assert {row.command for row in rows} >= {f"bench-{pattern} --smoke" for pattern in suite.PATTERNS}


def test_every_row_s_program_is_found():
    for row in smoke.table():
        words = smoke.arguments_of(row.command)
        assert Path(words[0]).exists() and (
            words[0] != sys.executable or words[1] == "-m" or Path(words[1]).exists()
        )


def test_one_that_fails_is_said_and_ends_with_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(smoke.NEEDS, "nothing", lambda: "nothing is here")
    (tmp_path / "README.md").write_text(TABLE)
    monkeypatch.setattr(sys, "argv", ["smoke.py", "--table", str(tmp_path / "README.md")])
    assert smoke.main() == 1
    out = capsys.readouterr().out
    assert re.search(r"^ok +[0-9.]+ s  memoir --version$", out, re.M)
    assert re.search(r"^FAILED +[0-9.]+ s  memoir plan nowhere.trace\n    exit code 2\n", out, re.M)
    assert "skipped           memoir simulate: nothing is here" in out
    assert "1 ok, 1 skipped, 1 failed" in out


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    file = tmp_path / "still there"
    shell = shlex.quote(f"while true; do touch {shlex.quote(str(file))}; sleep 0.1; done")
    assert smoke.run(f"memoir-launch --report 1 -- sh -c {shell}", timeout=2.0)[1] == "not done after 2 s"
    file.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not file.exists()


def test_words_choose_commands():
    command = [sys.executable, BENCH / "smoke.py", "bench-churn", "instances"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "2 ok, 0 skipped, 0 failed" in done.stdout, done.stdout
    none = subprocess.run([*command[:2], "nonesuch"], capture_output=True, text=True)
    assert none.returncode == 2 and "no command of the table" in none.stderr


@pytest.mark.parametrize("script", ["plan/instances.py", "compare/overhead.py", "record/snapshot_import.py"])
def test_a_benchmark_runs_in_small(script):
    done = subprocess.run([sys.executable, BENCH / script, "--smoke"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
