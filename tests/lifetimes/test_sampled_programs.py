# SPDX-License-Identifier: Apache-2.0
"""Real programs under the sampler: what they did is known, and so what a profile must say of them."""

import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memoir.lifetimes import BYTES, CENSORED, FREED, Lifetimes
from memoir.lifetimes.sampling import Collector, ControlPage

from memoir.record import native

try:
    LIBRARY = native.library()
except native.Error as error:
    pytest.skip(str(error), allow_module_level=True)

EVERY = 16 * 1024


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is here")
    path = tmp_path_factory.mktemp("program") / "program"
    source = Path(__file__).with_name("program.c")
    subprocess.run(
        [compiler, "-O1", "-fno-builtin", "-o", str(path), str(source), "-pthread", "-Wl,--build-id"],
        check=True,
    )
    return path


@pytest.fixture
def sampled(program, memoir_cli, tmp_path):
    """Runs the program under `memoir record --lifetimes`: (profile, exit status)."""

    def run(*words, every=EVERY):
        output = tmp_path / "x.lifetimes"
        arguments = ("record", "--lifetimes", "--every", every, "-f", "-o", output, "--", program, *words)
        status, _, error = memoir_cli(*arguments)
        assert output.exists(), error
        return Lifetimes.open(output), status

    return run


def all_of(profile, function):
    """The numbers of the contexts whose innermost frame is in that function: one for each place in it."""
    return [number for number in range(len(profile)) if profile.stack(number)[:1] == [function]]


def of(profile, function):
    """The only one of them."""
    (number,) = all_of(profile, function)
    return number


def within(estimate, truth, samples):
    """Five standard deviations of an estimate from that many samples."""
    return abs(float(estimate) - truth) <= 5 * truth / float(samples) ** 0.5


def test_what_a_program_did_is_what_its_profile_says(sampled):
    profile, status = sampled("brief", 200_000, "keep", 300)
    assert status == 7
    brief, keep = of(profile, "brief"), of(profile, "keep")
    samples = profile.contexts["estimates"]["samples"]
    assert within(profile.objects(FREED)[brief], 200_000, samples[brief, FREED])
    assert within(profile.bytes(CENSORED)[keep], 300 * 100_000, samples[keep, CENSORED])
    assert profile.share_freed(brief) == 1 and profile.share_freed(keep) == 0
    assert profile.moments(BYTES)["most"][brief] == 0  # nothing was allocated before each was freed
    assert profile.contexts["least_size"][keep] == profile.contexts["most_size"][keep] == 100_000
    assert profile.contexts["height"][keep] > 0
    assert profile.stack(keep)[1] == "main" and not profile.contexts["flags"].any()
    run = profile.runs[0]
    assert run["allocated"] == pytest.approx(200_000 * 64 + 300 * 100_000, rel=0.01)
    assert (run["lost"], run["missed_frees"]) == (0, 0)
    live = profile.points["live"]
    assert within(live.max(), 300 * 100_000, samples[keep, CENSORED])


def test_a_profile_without_names_is_given_them_later(program, memoir_cli, tmp_path):
    with Collector(EVERY) as collector:
        subprocess.run([program, "keep", "30"], env=collector.environment, check=False)
    profile = collector.lifetimes()
    assert not all_of(profile, "keep") and profile.stack(0)[0].startswith("program+0x")
    profile.write(tmp_path / "x.lifetimes")
    status, out, _ = memoir_cli("symbolize", tmp_path / "x.lifetimes")
    assert status == 0 and "addresses" in out
    assert all_of(Lifetimes.open(tmp_path / "x.lifetimes"), "keep")


def test_objects_that_another_thread_frees(sampled):
    profile, _ = sampled("hand", 2_000, every=1)
    rows = profile.contexts[all_of(profile, "hand")]
    assert sorted(rows["estimates"]["samples"][:, FREED]) == [1, 2_000]  # the array of them, too
    assert sorted(rows["freed_elsewhere"]) == [0, 2_000]
    pairs = profile.pairs[profile.pairs["size"] == 10_000]
    assert (pairs["allocated_by"] != pairs["freed_by"]).all()


def test_a_threads_first_object_may_be_the_c_librarys(sampled):
    profile, status = sampled("ask", every=1)
    assert status == 7 and len(all_of(profile, "brief")) == 1


def test_realloc_frees_one_object_and_allocates_another(sampled):
    profile, _ = sampled("grow", 500, every=1)
    estimates = profile.contexts["estimates"]["samples"][of(profile, "grow")]
    assert list(estimates) == [500, 0]


def test_children_are_a_part_of_the_profile(sampled, program):
    profile, _ = sampled("keep", 10, "fork", 20, "fork", 30, every=1)
    assert profile.totals["runs"] == 3
    in_parent_and_children = profile.contexts["estimates"]["samples"][all_of(profile, "keep"), CENSORED]
    assert sorted(in_parent_and_children) == [10, 50]
    assert {profile.program(run) for run in range(3)} == {str(program.resolve())}


def test_a_program_that_becomes_another_keeps_its_samples(program):
    with Collector(1) as collector:
        words = f"import os, subprocess; os.execv({str(program)!r}, ['program', 'keep', '12'])"
        subprocess.run([sys.executable, "-c", words], env=collector.environment, check=False)
    profile = collector.lifetimes()
    names = [Path(profile.program(run)).name for run in range(2)]
    assert sorted(names)[0] == "program" and sorted(names)[1].startswith("python")
    assert not collector.unreadable and not collector.folder.exists()


def test_an_exec_that_fails_changes_nothing(sampled):
    profile, _ = sampled("keep", 10, "exec", "keep", 20, every=1)
    samples = profile.contexts["estimates"]["samples"][all_of(profile, "keep"), CENSORED]
    assert sum(samples) == 30 and profile.totals["runs"] == 1


def test_a_kill_loses_nothing(sampled):
    profile, status = sampled("keep", 40, "grow", 50, "die", "keep", 50, every=1)
    assert status == 128 + signal.SIGKILL
    samples = profile.contexts["estimates"]["samples"].sum(axis=0)
    assert samples[CENSORED] >= 40 and samples[FREED] >= 49


def test_a_limit_on_files_costs_samples_and_never_the_program(program):
    with Collector(1) as collector:
        limited = ["sh", "-c", f"ulimit -f 8; exec {program} keep 100 brief 1000"]
        done = subprocess.run(limited, env=collector.environment, check=False)
    assert done.returncode == 7
    profile = collector.lifetimes()
    assert str(program) not in [profile.program(run) for run in range(len(profile.runs))]


def test_a_limit_on_files_is_said(tmp_path, program):
    record = [
        sys.executable,
        "-m",
        "memoir",
        "record",
        "--lifetimes",
        "-o",
        "x.lifetimes",
        "--",
        program,
        "keep",
        "9",
    ]
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *record]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 7 and "nothing was sampled: the limit on the size of files" in done.stderr


def test_what_cannot_be_sampled_is_said_before_it_starts(memoir_cli, tmp_path, program):
    (tmp_path / "x.lifetimes").touch()
    record = ("record", "--lifetimes", "-o", tmp_path / "x.lifetimes")
    assert "exists already" in memoir_cli(*record, "--", program)[2]
    assert (
        "no folder" in memoir_cli("record", "--lifetimes", "-o", tmp_path / "a/x.lifetimes", "--", program)[2]
    )
    assert "--every" in memoir_cli("record", "--every", "1KiB", "--", program)[2]
    assert "bytes between" in memoir_cli(*record, "-f", "--every", "0", "--", program)[2]


# --- on a running process ---


class Running:
    """The program, waiting in `busy` or `say`."""

    def __init__(self, program, *words, preload=True):
        environment = {**os.environ, "LD_PRELOAD": str(LIBRARY)} if preload else None
        self.process = subprocess.Popen(
            [str(program), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(b"\n", timeout=60)
        assert self.process.returncode == 7


def test_a_running_program_is_sampled_and_let_go(program, memoir_cli, tmp_path):
    with Running(program, "keep", "50", "busy") as running:
        for number in range(2):
            output = tmp_path / f"{number}.lifetimes"
            status, _, error = memoir_cli(
                "attach", running.pid, "--lifetimes", "--for", "300ms", "--every", "4KiB", "-o", output
            )
            assert status == 0, error
            profile = Lifetimes.open(output)
            assert of(profile, "brief") >= 0 and profile.totals["samples"] > 50
            run = profile.runs[0]
            assert run["process"] == running.pid and 250 <= run["milliseconds"] < 60_000
            # What was there before is not known.
            assert profile.contexts["estimates"]["samples"].sum() == run["samples"]
        first = Lifetimes.open(tmp_path / "0.lifetimes")
        assert tuple(first.runs[0]["id"]) != tuple(profile.runs[0]["id"])
        page = Path(f"/dev/shm/memoir-{os.getuid()}/{running.pid}")
        assert page.stat().st_mode & 0o777 == 0o600 and page.parent.stat().st_mode & 0o777 == 0o700
        assert page.stat().st_blocks * 512 < 256 * 1024  # the memory of the samples was given back
        assert ControlPage(page).mode == 0
    assert not page.exists()


def test_no_number_in_the_page_enters_a_mode_that_has_not_begun(program):
    """What is asked was 0 for a moment, and every mode that was not on had 0 for its number."""
    with Running(program, "busy") as running:
        page = Path(f"/dev/shm/memoir-{os.getuid()}/{running.pid}")
        with (
            open(page, "r+b") as file,
            mmap.mmap(file.fileno(), mmap.PAGESIZE) as shared,
            memoryview(shared) as whole,
            whole.cast("I") as words,
        ):
            for number in (7, 0, 1, 0, 2**32 - 1, 0):
                words[4] = number  # asked
                for _ in range(2000):
                    if words[5] == number:  # answered
                        break
                    time.sleep(0.01)
                assert words[5] == number
            for turn in range(20_000):
                words[4] = turn % 3


def test_everything_of_a_running_program_is_recorded_for_a_while(program, memoir_cli, tmp_path):
    with Running(program, "busy") as running:
        output = tmp_path / "x.trace"
        status, _, error = memoir_cli("attach", running.pid, "--for", "200ms", "-o", output)
        assert status == 0, error
        size = output.stat().st_size
        assert size > 4096
        _, shown, _ = memoir_cli("show", output)
        assert "Not freed when the recording ended" in shown and "incomplete" not in shown
        status, _, error = memoir_cli("attach", running.pid, "--for", "200ms", "-o", tmp_path / "y.trace")
        assert status == 2 and "once already" in error


def test_a_program_that_allocates_nothing_meanwhile_is_said_to(program, memoir_cli, tmp_path):
    with Running(program, "say") as running:
        arguments = ("--lifetimes", "--for", "100ms", "-o", tmp_path / "x.lifetimes")
        status, _, error = memoir_cli("attach", running.pid, *arguments)
        assert status == 2 and "allocated nothing in 0.1 s" in error
        assert not (tmp_path / "x.lifetimes").exists()


def test_a_program_without_the_recorder_is_told_how_to_start_it(program, memoir_cli):
    with Running(program, "say", preload=False) as running:
        status, _, error = memoir_cli("attach", running.pid, "--lifetimes", "--for", "1s")
        assert status == 2 and len(error.splitlines()) == 1
        assert f"LD_PRELOAD={LIBRARY} {program} say" in error
    assert "there is no process" in memoir_cli("attach", running.pid, "--lifetimes", "--for", "1s")[2]
    assert "not a time" in memoir_cli("attach", running.pid, "--for", "soon")[2]
