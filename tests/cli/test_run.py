# SPDX-License-Identifier: Apache-2.0
"""memoir run, around real programs."""

import os
import signal
import subprocess
import sys

import pytest

from memoir import Error, malloc

try:
    LIBRARY = str(malloc.library())
except Error as error:
    pytest.skip(str(error), allow_module_level=True)


def run(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "memoir", "run", *map(str, words)], capture_output=True, text=True, **options
    )


def test_the_program_has_the_malloc_and_its_exit_status_is_ours():
    done = run("--", "sh", "-c", "grep -c libmemoir_malloc /proc/self/maps; exit 7")
    assert done.returncode == 7
    assert int(done.stdout) > 0


def test_a_signal_is_passed_on():
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_print_is_a_path_that_can_be_preloaded():
    assert run("--print").stdout == LIBRARY + "\n"


def test_settings_are_listed_and_reach_the_program():
    listed = run("--settings").stdout
    assert "tau=2" in listed and "split=true" in listed
    show = "import os; print(os.environ['MEMOIR_MALLOC'])"
    done = run("--set", "stats", "--set", "tau=4,split=0", "--", sys.executable, "-c", show)
    assert done.stdout == "stats=true,tau=4,split=0\n"
    assert "memoir: malloc: held" in done.stderr


def test_an_unknown_setting_is_refused_before_the_program_runs():
    done = run("--set", "tua=2", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no setting 'tua'" in done.stderr


def test_the_environment_keeps_its_settings(monkeypatch):
    monkeypatch.setenv("MEMOIR_MALLOC", "huge=0")
    done = run("--set", "tau=2", "--", "sh", "-c", "echo $MEMOIR_MALLOC")
    assert done.stdout == "huge=0,tau=2\n"


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("tua=3", "'tua=3' is not a setting"),
        ("tau=x", "'tau=x' must be a number above 0"),
        ("tau=-1,sample=9", "'tau=-1' must be a number above 0"),
        ("cache=99999999999999999999GiB", "must be bytes"),
        (",,,=,", "'=' is not a setting"),
        ("a" * 5000, "is not a setting"),
    ],
)
def test_a_bad_variable_is_reported_and_the_program_runs(variable, said):
    environment = {**os.environ, "LD_PRELOAD": LIBRARY, "MEMOIR_MALLOC": variable}
    done = subprocess.run(["/bin/echo", "ran"], env=environment, capture_output=True, text=True)
    assert done.stdout == "ran\n"
    assert said in done.stderr


def test_missing_static_and_setuid_programs_are_refused_in_a_sentence(tmp_path):
    assert "no program" in run("--", "no-such-program").stderr
    source = tmp_path / "x.c"
    source.write_text("int main(void) { return 0; }")
    static = tmp_path / "static_"
    if subprocess.run(["cc", "-static", source, "-o", static], capture_output=True).returncode == 0:
        done = run("--", static)
        assert done.returncode == 2 and "statically linked" in done.stderr
    if os.getuid() == 0:
        other = tmp_path / "other"
        subprocess.run(["cc", source, "-o", other], check=True)
        os.chown(other, 1, 1)
        other.chmod(0o4755)
        done = run("--", other)
        assert done.returncode == 2 and "setuid" in done.stderr


def test_no_program_is_an_error():
    assert run().returncode == 2
