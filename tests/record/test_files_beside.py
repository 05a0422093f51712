# SPDX-License-Identifier: Apache-2.0
"""What lies beside a trace may be anybody's: nothing of it is followed, waited for, overwritten or removed."""

import contextlib
import os
import stat
import subprocess
import sys

import pytest
from memoir._core import Error, Trace

from memoir.record import native

ROW = "{}\t1\t1\tfork\n"


@pytest.fixture
def plant(tmp_path):
    """Puts something of a kind at a name in tmp_path; no test changes what is precious."""
    precious = tmp_path / "precious"
    precious.write_text("mine")

    def put(name: str, kind: str) -> None:
        path = tmp_path / name
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(precious)
        elif kind == "dangling":
            path.symlink_to(tmp_path / "nowhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.write_text(kind)

    yield put
    assert precious.read_text() == "mine" and not (tmp_path / "nowhere").exists()


NO_INDEX = ("fifo", "link", "dangling", "folder", "device", "a book's index, 12\n", ROW.format("precious"),
            ROW.format("../x.1.trace"), ROW.format("/etc/passwd"), ROW.format("x.1.trace").replace("1\tfork", "1"),
            ROW.format("x.one.trace"), ROW.format("y.1.trace"), ROW.format("x.1.trace") + "\udcff\n")  # fmt: skip


@pytest.mark.parametrize("kind", NO_INDEX)
def test_what_is_no_list_of_traces_is_left_alone(kind, plant, tmp_path):
    if "\udcff" in kind:
        (tmp_path / "x.index").write_bytes(kind.encode(errors="surrogateescape"))
    else:
        plant("x.index", kind)
    for force in (False, True):
        with pytest.raises(Error, match=r"x.index: is not a list of traces.*choose another name"):
            native.check_free(tmp_path / "x.trace", force)
    with contextlib.suppress(OSError):  # not a file
        assert {path.name for path, _ in native.listed(tmp_path / "x.trace")} <= {"x.1.trace"}


def test_force_removes_an_earlier_recording_and_nothing_else(plant, tmp_path):
    trace = tmp_path / "x.trace"
    (tmp_path / "x.1.trace").write_bytes(native.MAGIC + bytes(56))
    (tmp_path / "x.2.trace").write_text("a letter")
    plant("x.3.trace", "link")
    plant("x.4.trace", "fifo")
    plant("x.5.trace", "folder")
    (tmp_path / "x.6.trace").write_bytes(native.MAGIC)  # of another recording: no line names it
    kept = {"precious", "x.2.trace", "x.3.trace", "x.4.trace", "x.5.trace", "x.6.trace"}
    (tmp_path / "x.index").write_text("".join(ROW.format(f"x.{number}.trace") for number in range(1, 6)))
    with pytest.raises(Error, match=r"x.index: exists already.*-f overwrites"):
        native.check_free(trace, False)
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "x.1.trace", "x.index"}
    native.check_free(trace, True)
    native.remove_earlier(trace)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_record_removes_nothing_unasked(record, plant, tmp_path):
    plant("x.index", ROW.format("precious"))
    before = {path.name for path in tmp_path.iterdir()}
    for options in ((), ("-f",)):
        done = record("true", options=options)
        assert done.returncode == 2 and "is not a list of traces" in done.stderr
        assert "Traceback" not in done.stderr and {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_an_unfinished_name_that_others_took(kind, record, plant, tmp_path):
    plant("x.trace.part", kind)
    done = record("true")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "x.trace").is_symlink() and Trace.open(str(tmp_path / "x.trace")).complete


@pytest.mark.parametrize("how", ["ln -s precious x.index", "mkfifo x.index"])
def test_an_index_that_others_make_while_the_program_runs(how, record, plant, tmp_path):
    done = record("sh", "-c", f"{how}; /bin/true; /bin/true; exit 3", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr and "x.index" in done.stderr


def test_a_child_s_name_that_others_took(record, plant, tmp_path):
    """A forked child of that number finds a link where its trace should be: it takes the next name."""
    plant("x.trace.link", "link")
    program = "ln -s precious x.$$.trace; exec /bin/true"
    done = record("sh", "-c", f"sh -c '{program}'; :", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_traces_are_their_user_s_alone_and_hold_no_passwords(record, tmp_path):
    old = os.umask(0o022)
    try:
        secret = "hunter22secret"
        done = record("sh", "-c", f": --password={secret} --api-key '{secret}'; /bin/true", "--token", secret)
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    files = [path for path in tmp_path.iterdir() if path.name.startswith("x.")]
    assert len(files) >= 3
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    command = Trace.open(str(tmp_path / "x.trace")).meta("command")
    assert secret not in command and command.startswith("sh -c : --password=*** --api-key '***'; ")
    done = record("sh", "-c", f": --password={secret}", options=("-f", "--keep-arguments"))
    assert done.returncode == 0, done.stderr
    assert secret in Trace.open(str(tmp_path / "x.trace")).meta("command")


def test_an_output_of_another_user_s_folder_is_not_followed(tmp_path):
    """The page of a trace is written beside it: no name of an unfinished file can be guessed."""
    victim, out = tmp_path / "victim", tmp_path / "o.html"
    victim.write_text("mine")
    script = (
        "import os, sys; from pathlib import Path; from memoir.base.files import write_output\n"
        "here = Path(sys.argv[1])\n"
        "(here / f'.o.html.{os.getpid()}').symlink_to(here / 'victim')\n"
        "write_output(here / 'o.html', b'page', force=False)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert victim.read_text() == "mine" and out.read_bytes() == b"page" and not out.is_symlink()


def test_the_program_s_status_is_ours_whatever_becomes_of_the_page(record, tmp_path):
    (tmp_path / "pages").mkdir()
    done = record("sh", "-c", "rm -r pages; exit 7", options=("--page", "pages/p.html"), cwd=tmp_path)
    assert done.returncode == 7 and "pages/p.html: cannot be written" in done.stderr
