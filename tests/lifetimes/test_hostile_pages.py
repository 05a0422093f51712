# SPDX-License-Identifier: Apache-2.0
"""`memoir attach` to a process that does with its page what it likes; folders of pages that are somebody else's."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from memoir.lifetimes.running import RunningProcess
from memoir.lifetimes.sampling import IMAGE_BEGIN, MAGIC, VERSION

from memoir import Error
from memoir.record import native

# Has a page as the recorder makes it, and answers; then it cuts the file short, or fills it.
TARGET = f"""
import mmap, os, struct, sys, time
path = f"{{sys.argv[1]}}/{{os.getpid()}}"
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.ftruncate(file, {IMAGE_BEGIN} + (1 << 20))
page = mmap.mmap(file, 4096)
struct.pack_into("<QIIII", page, 0, {MAGIC:#x}, {VERSION}, os.getpid(), 1, 1)
print("up", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    asked, answered = struct.unpack_from("<II", page, 16)
    if asked != answered:
        if sys.argv[2] == "before":
            os.ftruncate(file, 0)
            time.sleep(30)
        struct.pack_into("<I", page, 20, asked)
        if sys.argv[2] == "after":
            os.ftruncate(file, 16)
            time.sleep(30)
        if sys.argv[2] == "garbage":
            os.pwrite(file, os.urandom(1 << 20), {IMAGE_BEGIN})
    time.sleep(0.01)
"""


@pytest.mark.parametrize("how", ["before", "after", "garbage"])
def test_a_page_that_its_process_cuts_short(how, tmp_path):
    with subprocess.Popen([sys.executable, "-c", TARGET, tmp_path, how], stdout=subprocess.PIPE) as target:
        target.stdout.readline()
        # In a process of its own: SIGBUS would end it.
        attach = [sys.executable, "-m", "memoir", "attach", str(target.pid), "--lifetimes", "--for", "1s"]
        done = subprocess.run(attach, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        target.kill()
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    if how != "garbage":
        assert "cut its control page short" in done.stderr


def test_a_page_must_be_a_file(tmp_path):
    """A mapping may be named like anything; what has that name now may be a pipe."""
    script = (
        "import mmap, os, sys; path = f'{sys.argv[1]}/{os.getpid()}'\n"
        "file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600); os.ftruncate(file, 4096); page = mmap.mmap(file, 4096)\n"
        "os.rename(path, path + '.old'); os.mkfifo(path + '.old' + '.1', 0o600); os.rename(path + '.old', path)\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        target.stdout.readline()
        path = tmp_path / str(target.pid)
        path.unlink()
        with pytest.raises(Error, match="not preloaded"):
            RunningProcess(target.pid)
        os.mkfifo(path, 0o600)
        with pytest.raises(Error, match="not preloaded"):
            RunningProcess(target.pid)
        target.stdin.close()


def test_stale_pages_of_a_folder_that_is_somebody_else_s(tmp_path):
    """A link where the user's folder should be, or a folder that others may write to: its files stay."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    name, victim = f"memoir-{os.geteuid()}", tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / str(gone.pid)).write_text("mine")
    (tmp_path / name).symlink_to(victim)
    assert native.remove_stale(tmp_path) == 0 and (victim / str(gone.pid)).exists()
    (tmp_path / name).unlink()
    victim.rename(tmp_path / name)
    (tmp_path / name).chmod(0o777)
    assert native.remove_stale(tmp_path) == 0
    (tmp_path / name).chmod(0o700)
    for other in ("notes", f"{os.getpid()}", "12.txt"):
        (tmp_path / name / other).write_text("")
    assert native.remove_stale(tmp_path) == 1
    assert {path.name for path in (tmp_path / name).iterdir()} == {"notes", f"{os.getpid()}", "12.txt"}


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_folder_that_another_user_made_first(kind):
    """The process has a page all the same, in a folder of its own that goes away with it."""
    library, user = native.library(), 54_321 + len(kind)  # a folder for each
    if not all(folder.stat().st_mode & 1 for folder in library.parents):
        pytest.skip("other users cannot read the library here")
    folder = Path(f"/dev/shm/memoir-{user}")
    if os.path.lexists(folder):
        pytest.skip(f"{folder} is there already")
    {"folder": folder.mkdir, "link": lambda: folder.symlink_to("/tmp"), "file": folder.touch}[kind]()
    try:
        command = ["sh", "-c", "read x", "allocates"]
        environment = {"LD_PRELOAD": str(library), "PATH": os.environ["PATH"]}
        with subprocess.Popen(
            command, user=user, group=user, env=environment, stdin=subprocess.PIPE
        ) as process:
            for _ in range(200):
                time.sleep(0.05)
                try:
                    running = RunningProcess(process.pid)
                    break
                except Error as error:
                    said = str(error)
            else:
                pytest.fail(said)
            assert running.path.parent.name.startswith(f"{folder.name}-") and running.path.parent.exists()
            own = Path("/dev/shm") / running.path.parent.name
            assert own.stat().st_uid == user and own.stat().st_mode & 0o777 == 0o700
            process.stdin.close()
            process.wait()
            assert not own.exists()
        assert folder.is_dir() or kind == "file"
    finally:
        folder.rmdir() if kind == "folder" else folder.unlink()


def test_another_file_of_the_page_s_name_is_left_alone(tmp_path):
    """The folder may be the process's own, and another file may have the name at any moment."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir(), theirs.mkdir()
    with subprocess.Popen([sys.executable, "-c", TARGET, theirs, "no"], stdout=subprocess.PIPE) as target:
        target.stdout.readline()
        content = (theirs / str(target.pid)).read_bytes() + bytes(1000)
        (mine / str(target.pid)).write_bytes(content)
        (mine / str(target.pid)).chmod(0o600)
        running = RunningProcess(target.pid)
        theirs.rename(tmp_path / "moved")
        mine.rename(theirs)
        with contextlib.suppress(Error), running:  # there are no samples
            running.sample(0.2, 4096)
        target.kill()
    assert (theirs / str(target.pid)).read_bytes() == content
