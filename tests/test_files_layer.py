# SPDX-License-Identifier: Apache-2.0
"""Files are made and written in one place: memoir/base/files.py for Python, src/memoir/base/files.cc for the core. And what
that place promises, against hostile folders."""

import ast
import errno
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memoir import Error
from memoir.base import files

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "memoir"
LAYER = {PACKAGE / "base" / "files.py", ROOT / "src/memoir/base/files.cc", ROOT / "src/memoir/base/files.h"}
WRITING_METHODS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "mkdir"}
WRITING_CALLS = {
    "os": {"mkdir", "makedirs", "mkfifo", "mknod", "link", "symlink", "rename", "renames", "replace", "truncate", "creat"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
    "tempfile": {"NamedTemporaryFile", "mktemp"},
}  # fmt: skip
# Modes of open(), and flags of os.open(), that write.
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}
NULL = "devnull"


def writes(call: ast.Call) -> str | None:
    """What a call does that only the layer may do."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = (
        function.value.id
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        else ""
    )
    flags = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
    if owner in WRITING_CALLS and name in WRITING_CALLS[owner]:
        return f"{owner}.{name}"
    if isinstance(function, ast.Attribute) and name in WRITING_METHODS:
        return f".{name}"
    if owner == "os" and name == "open":
        return "os.open for writing" if flags & WRITING_FLAGS and NULL not in flags else None
    if name in ("open", "fdopen") and owner != "os":
        place = 1 if isinstance(function, ast.Name) or name == "fdopen" else 0
        words = [
            *call.args[place : place + 1],
            *(keyword.value for keyword in call.keywords if keyword.arg == "mode"),
        ]
        modes = [
            word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)
        ]
        if any(re.fullmatch(r"[rbt]*[wax+][rwaxbt+]*", mode) for mode in modes):
            return f"{name}({modes})"
    return None


def test_no_other_python_writes_files():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path in LAYER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (what := writes(node)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {what}")
    assert not found, "use memoir.base.files:\n" + "\n".join(found)


def test_the_search_finds_what_it_is_for():
    for text in ("open('x', 'w')", "p.open(mode='r+b')", "p.write_text('')", "os.open(p, os.O_RDWR)",
                 "shutil.copyfile(a, b)", "os.replace(a, b)", "os.open(p, os.O_WRONLY | os.O_CREAT)"):  # fmt: skip
        assert writes(ast.parse(text).body[0].value), text
    for text in ("open('x')", "p.open('rb')", "os.open(p, os.O_RDONLY)", "text.replace('a', 'b')"):
        assert not writes(ast.parse(text).body[0].value), text


WRITING_C = re.compile(r"\b(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND)\b")
WRITING_C_CALLS = re.compile(
    r"\b(ofstream|fstream|creat|mkostemp|mkstemp|freopen)\b\s*\(?|fopen\([^)]*\"[wa]|[^_]fopen64"
)


def test_no_other_part_of_the_core_writes_files():
    """A flag that writes may only be given to open_beside(), which checks what it opens; control_page.cc's own call has
    O_EXCL and O_NOFOLLOW, in a folder that is its user's alone."""
    found = []
    for path in sorted(
        [*(ROOT / "src").rglob("*.cc"), *(ROOT / "src").rglob("*.h"), *PACKAGE.rglob("*.cpp")]
    ):
        if path in LAYER:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = "" if line.startswith("#include") else line.split("//")[0]
            safe = "open_beside(" in code or "O_NOFOLLOW" in code
            if (WRITING_C.search(code) and not safe) or WRITING_C_CALLS.search(code):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "use memoir/base/files.h:\n" + "\n".join(found)


WAITING_C = re.compile(r"\bifstream\b|\bfopen\(|\bO_RDONLY\b")


def test_no_part_of_the_core_waits_for_a_pipe_that_somebody_named():
    found = []
    for path in sorted(
        [*(ROOT / "src").rglob("*.cc"), *(ROOT / "src").rglob("*.h"), *PACKAGE.rglob("*.cpp")]
    ):
        if path in LAYER:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split(" //")[0]
            # the kernel's own files, those of the layer, and those that say that they do not wait
            safe = '"/proc/' in code or "open_beside(" in code or "O_NONBLOCK" in code
            safe |= path.name == "memory_limit.cc" and "/sys/fs/cgroup" in path.read_text()
            if WAITING_C.search(code) and not safe:
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "use memoir/base/whole_file.h or files.h:\n" + "\n".join(found)


# --- what the layer promises ---


@pytest.fixture(params=["link", "dangling", "fifo", "folder", "socket", "file"])
def planted(request, tmp_path):
    """Puts one of these at a path; and a victim, which nothing may change."""
    victim = tmp_path / "victim"
    victim.write_text("precious")

    def plant(path: Path) -> str:
        if request.param == "link":
            path.symlink_to(victim)
        elif request.param == "dangling":
            path.symlink_to(tmp_path / "nowhere")
        elif request.param == "fifo":
            os.mkfifo(path)
        elif request.param == "folder":
            path.mkdir()
        elif request.param == "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(path))
        else:
            path.write_text("theirs")
        return str(request.param)

    yield plant
    assert victim.read_text() == "precious" and not (tmp_path / "nowhere").exists()


def in_time(function):
    """Its result, unless it waits."""
    result = []

    def run() -> None:
        try:
            result.append(function())
        except (OSError, Error) as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert result, "it hangs"
    return result[0]


def test_an_output_takes_the_place_of_what_is_there(planted, tmp_path):
    out = tmp_path / "out"
    kind = planted(out)
    done = in_time(lambda: files.write_output(out, b"new", force=False))
    assert isinstance(done, Error) and "exists already" in str(done)
    done = in_time(lambda: files.write_output(out, b"new", force=True))
    if kind == "folder":
        assert isinstance(done, Error) and out.is_dir()
    else:
        assert done is None and not out.is_symlink() and out.read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "victim"}


def test_what_is_opened_by_its_name_is_a_file(planted, tmp_path):
    path = tmp_path / "beside"
    kind = planted(path)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND):
        done = in_time(lambda flags=flags: files.open_beside(path, flags))
        assert isinstance(done, int if kind == "file" else OSError), (kind, done)
        if isinstance(done, int):
            os.close(done)
    done = in_time(lambda: files.append_to(path))
    assert isinstance(done, int if kind == "file" else OSError)
    done = in_time(lambda: files.write_new(path, b"x"))
    assert isinstance(done, FileExistsError)


def test_an_output_is_its_user_s_alone_until_it_is_whole(tmp_path):
    old = os.umask(0o022)
    try:
        for private, mode in ((False, 0o644), (True, 0o600)):
            out = tmp_path / f"out{private}"
            with files.finished_output(out, False, private=private) as fresh:
                files.write_new(fresh, b"half")
                assert stat.S_IMODE(fresh.stat().st_mode) == 0o600 and not out.exists()
            assert stat.S_IMODE(out.stat().st_mode) == mode
        os.umask(0o077)
        files.write_output(tmp_path / "narrow", b"", False)
        assert stat.S_IMODE((tmp_path / "narrow").stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_nobody_else_can_put_another_file_in_the_place_of_an_output(tmp_path, monkeypatch):
    """Who owns the folder may rename what is in it, a private file of its user's too, and would see that published."""
    tmp_path.chmod(0o777)
    old = os.umask(0o022)
    try:
        with files.finished_output(tmp_path / "out", False) as fresh:
            files.write_new(fresh, b"new")
            (own,) = tmp_path.iterdir()
            assert own.is_dir() and stat.S_IMODE(own.stat().st_mode) == 0o700
            assert [path.name for path in own.iterdir()] == [fresh.name]
        monkeypatch.setattr(files.Folder, "is_private", False)  # as if another folder had its place
        files.write_output(tmp_path / "swapped", b"new", False)
        assert stat.S_IMODE((tmp_path / "swapped").stat().st_mode) == 0o600
        assert {path.name for path in tmp_path.iterdir()} == {"out", "swapped"}
    finally:
        os.umask(old)


@pytest.mark.parametrize("full", [False, True])
def test_another_folder_in_the_place_of_ours_stays(full, tmp_path):
    """Who owns the folder may rename the one that we made, and put one of its user's in its place."""
    keep = tmp_path / "keep"
    keep.mkdir(0o700)
    if full:
        (keep / "thesis.tex").write_text("precious")
    with files.finished_output(tmp_path / "out", False) as fresh:
        files.write_new(fresh, b"new")
        (own,) = tmp_path.glob(".memoir-*")
        own.rename(tmp_path / "moved")
        keep.rename(own)
    assert own.is_dir() and (not full or (own / "thesis.tex").read_text() == "precious")
    assert (tmp_path / "out").read_bytes() == b"new" and list((tmp_path / "moved").iterdir()) == []


def test_a_folder_that_is_not_ours_gets_no_file(tmp_path, monkeypatch):
    (tmp_path / "keep").mkdir(0o700)
    (tmp_path / "keep/thesis.tex").write_text("precious")
    monkeypatch.setattr(os, "mkdir", lambda name, *_, **__: (tmp_path / "keep").rename(tmp_path / name))
    with pytest.raises(Error, match="in the place of ours"):
        files.write_output(tmp_path / "out", b"new", False)
    (own,) = tmp_path.iterdir()
    assert [path.name for path in own.iterdir()] == ["thesis.tex"]


def test_what_ends_here_and_now_leaves_nothing(tmp_path):
    with pytest.raises(Error), files.finished_output(tmp_path / "out", False) as fresh:
        files.write_new(fresh, b"half")
        files.remove_unfinished()
        assert list(tmp_path.iterdir()) == []
        files.write_new(fresh, b"again")  # another thread, which does not know yet


def test_no_half_file_stays(tmp_path):
    with pytest.raises(KeyError), files.finished_output(tmp_path / "out", False) as fresh:
        files.write_new(fresh, b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Error, match="nowhere/out: cannot be written: No such file"):
        files.write_output(tmp_path / "nowhere" / "out", b"", True)


def test_names_are_looked_up_in_the_folder_that_was_opened(tmp_path):
    """Who may write above it puts another folder in its place meanwhile."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with files.finished_output(here / "out", False) as fresh:
        here.rename(tmp_path / "moved")
        here.symlink_to(there)
        files.write_new(fresh, b"whole")
    assert (tmp_path / "moved" / "out").read_bytes() == b"whole" and list(there.iterdir()) == []


def test_a_file_system_without_links_has_outputs_too(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    files.write_output(tmp_path / "out", b"new", False)
    assert (tmp_path / "out").read_bytes() == b"new"
    with pytest.raises(Error, match="exists already"):
        files.write_output(tmp_path / "out", b"newer", False)
    assert (tmp_path / "out").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1


def test_names_are_not_guessed(tmp_path):
    names = set()
    for _ in range(100):
        with files.finished_output(tmp_path / "out", True) as fresh:
            names.add(fresh.name)
            files.write_new(fresh, b"")
    assert len(names) == 100 and all(str(os.getpid()) not in name or len(name) == 24 for name in names)
    again = "from memoir.base import files; print(files.fresh_name())"
    assert (
        subprocess.run([sys.executable, "-c", again], capture_output=True, text=True).stdout.strip()
        not in names
    )


@pytest.mark.parametrize(
    "waiting", ["sys.stdin.read()", "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"]
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_a_command_that_is_ended_leaves_no_half_file(number, waiting, tmp_path):
    """At once, also while something computes that is not Python."""
    program = f"""
import hashlib, sys
from pathlib import Path
from memoir.base.files import finished_output
with finished_output(Path("whole"), force=False) as unfinished:
    unfinished.write_bytes(bytes(1000))
    print("up", flush=True)
    {waiting}
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n" and list(tmp_path.iterdir())
        process.send_signal(number)
        try:
            assert process.wait(60) == -number
        finally:
            process.kill()
    assert not list(tmp_path.iterdir())


def test_a_forked_child_leaves_its_parent_s_output_alone(tmp_path):
    """It may end in any way: by a signal, by itself, or out of the middle."""
    for ending in ("os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(0)", "raise ValueError"):
        program = f"""
import os, signal, sys
from pathlib import Path
from memoir.base.files import finished_output, write_output
with finished_output(Path("whole"), force=True) as unfinished:
    unfinished.write_bytes(bytes(1000))
    if (child := os.fork()) == 0:
        write_output(Path("child"), b"", force=True)
        {ending}
    os.waitpid(child, 0)
"""
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.DEVNULL)
        assert done.returncode == 0
        assert {path.name for path in tmp_path.iterdir()} == {"whole", "child"}


def test_a_program_s_own_handler_of_a_signal_is_the_one_that_runs(tmp_path):
    program = """
import os, signal, time
from pathlib import Path
from memoir.base.files import finished_output
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
with finished_output(Path("whole"), force=False) as unfinished:
    unfinished.write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # in which a thread would end it
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"handled\n") and (tmp_path / "whole").exists()
