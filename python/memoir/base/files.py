# SPDX-License-Identifier: Apache-2.0
"""Every file that memoir writes, and every file that it opens because of its name beside another one.

Whoever may write to a folder may have put links, pipes and devices there, under any name that can be guessed. So a folder
is opened once, and names are looked up in it; new files are for their user alone until they are whole, in a folder of
ours that nobody else may look into, since whoever owns a folder may give a name in it to another file; then they get
their name and their rights at once. What is opened must be a regular file, never through a link.
tests/test_files_layer.py holds that nothing else in the package opens a file for writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import signal
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from memoir._core import Error
from memoir.base.threads import start_without_signals

Record = dict[str, Any]  # one JSON object of a file of lines
_unfinished: dict[str, Folder] = {}  # by their fresh names, the folders that they are in
# own_folder(): by their names, the folder above, their own, and the name of the file.
_own_folders: dict[str, tuple[Folder, Folder, str]] = {}
_PACKED = 1 << 28  # bytes of a file that its file system may have packed, however well
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGQUIT)
_told_by = -1  # the pipe that signals are written to
making = threading.RLock()  # held while one is made
before_finish: list[Callable[[], None]] = []  # called when an output is whole, before it gets its name

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe must not hold us
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)


class Folder:
    """A folder that is opened once: names in it mean the same, whatever becomes of its path. Use it with `with`.

    Methods raise OSError; its filename is the path as people know it. Not thread-safe.
    """

    def __init__(self, path: Path, *, follow: bool = True) -> None:
        """follow: False where `path` itself must not be a link. Raises OSError."""
        self._path = path
        self._file = os.open(
            path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        )

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def is_private(self) -> bool:
        """Whether it is this user's own, and nobody else may write to it or look into it."""
        status = os.fstat(self._file)
        return status.st_uid == os.geteuid() and not status.st_mode & 0o077

    def place(self, name: str) -> Path:
        """A path for libraries that open files by path: it leads to this folder even where the folder was moved."""
        here = Path(f"/proc/self/fd/{self._file}")
        return (here if here.exists() else self._path) / name

    def create(self, name: str) -> int:
        """A new file of mode 0600. FileExistsError where there is anything of that name, also a link to nowhere."""
        return self._open(name, _NEW, 0o600)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A regular file that is there. OSError (ELOOP) for a link, (EINVAL) for a pipe, a device, a socket or a folder.

        flags with O_CREAT: a file that is missing is made, of mode 0600.
        """
        file = self._open(name, flags | _THERE, 0o600)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a regular file", str(self._path / name))
        return file

    def names(self) -> list[str]:
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._file)
        try:
            return os.listdir(listing)
        finally:
            os.close(listing)

    def status(self, name: str) -> os.stat_result | None:
        """Of the name itself, not of what a link leads to; None where there is nothing of that name."""
        try:
            return os.stat(name, dir_fd=self._file, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Takes the name away, if it is there; a link, not what it leads to."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._file)

    def rename(self, name: str, to: str) -> None:
        os.replace(name, to, src_dir_fd=self._file, dst_dir_fd=self._file)

    @contextlib.contextmanager
    def own_folder(self, file: str) -> Iterator[Folder]:
        """A new folder in this one, for its user alone and for a file of that name. At the end both go."""
        name = fresh_name()
        with contextlib.ExitStack() as end:
            with making:
                os.mkdir(name, 0o700, dir_fd=self._file)
                try:
                    own = end.enter_context(Folder(self.place(name), follow=False))
                    own._path = self._path
                    if own.names():
                        raise OSError(errno.ENOTEMPTY, "somebody put another folder in the place of ours")
                except OSError:
                    with contextlib.suppress(OSError):
                        os.rmdir(name, dir_fd=self._file)
                    raise
                _own_folders[name] = self, own, file
            try:
                yield own
            finally:
                _vanish(name)
                _own_folders.pop(name, None)

    def finish(self, name: str, to: str, into: Folder, *, force: bool, private: bool = False) -> None:
        """Gives a new file of an own_folder() its name in the folder `into`; with `force` in place of what has it. Unless
        it is private, it gets the rights that the umask leaves. FileExistsError without `force`, where the name was taken
        meanwhile."""
        if not private and self.is_private:  # else it may be any file
            file = self.open(name)
            try:
                os.fchmod(file, 0o666 & ~_umask())
            finally:
                os.close(file)
        if not force:
            try:
                os.link(name, to, src_dir_fd=self._file, dst_dir_fd=into._file, follow_symlinks=False)
                return self.remove(name)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            os.close(into.create(to))  # a file system without links: the name is ours before the file has it
        os.replace(name, to, src_dir_fd=self._file, dst_dir_fd=into._file)

    def _open(self, name: str, flags: int, mode: int) -> int:
        try:
            return os.open(name, flags, mode, dir_fd=self._file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path / name)) from None


def fresh_name() -> str:
    """A name that nobody can have guessed."""
    return f".memoir-{secrets.token_hex(8)}"


@contextlib.contextmanager
def finished_output(path: Path, force: bool, *, private: bool = False) -> Iterator[Path]:
    """All or nothing: the name of a new file in the same folder, which becomes `path` when all went well.

    Whoever gets the name creates the file, and fails where there is one. private: it stays its user's alone.
    """
    try:
        name = fresh_name()
        with Folder(path.parent) as folder, _tidy_when_ended(), folder.own_folder(name) as own:
            _unfinished[name] = own
            try:
                yield own.place(name)
                for look in list(before_finish):
                    look()
                own.finish(name, path.name, folder, force=force, private=private)
            except Error as error:  # of a library that knows the file by its fresh name
                raise Error(re.sub(rf"\S*/{re.escape(name)}", lambda _: str(path), str(error))) from None
            finally:
                _unfinished.pop(name, None)
    except FileExistsError:
        raise Error(f"{path} exists already; pass -f to overwrite it") from None
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror}") from None


def unfinished_bytes() -> int:
    """Of the outputs that are not whole yet."""
    found = 0
    for name, folder in list(_unfinished.items()):
        with contextlib.suppress(OSError):
            status = folder.status(name)
            found += status.st_blocks * 512 if status is not None else 0
    return found


def remove_unfinished() -> None:
    """Those of finished_output(), for a process that ends here and now; it keeps `making` until then."""
    for name in list(_own_folders):
        with contextlib.suppress(OSError):
            _vanish(name)


@contextlib.contextmanager
def _tidy_when_ended() -> Iterator[None]:
    """Inside, signals that end the process do so as ever, and what is unfinished goes first; unless somebody handles them.
    A thread sees to that too: the main one handles none while a function of the core computes."""
    in_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in _ENDING if in_main and signal.getsignal(number) is signal.SIG_DFL]
    if not ours:
        yield
        return
    for number in ours:
        signal.signal(number, _end)
    try:
        with _told_at_once(ours):
            yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _told_at_once(ours: Collection[int]) -> Iterator[None]:
    """Calls _end() in a thread, whatever the main one does; for these signals alone, since that thread is told of all that
    have a handler. Nothing where somebody else is told of signals."""
    global _told_by
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if before >= 0:
        signal.set_wakeup_fd(before)
    _told_by = write if before < 0 else -1

    def wait() -> None:
        while (number := os.read(read, 1)[0]) != 0:
            if number in ours:
                _end(number)

    thread = threading.Thread(target=wait, name="memoir-signals", daemon=True)
    start_without_signals(thread)
    try:
        yield
    finally:
        if _told_by == write:
            signal.set_wakeup_fd(-1)
            _told_by = -1
        os.set_blocking(write, True)
        os.write(write, b"\0")
        thread.join()
        os.close(read)
        os.close(write)


def _end(number: int, _: object = None) -> None:
    """Ends the process by that signal. Any thread."""
    making.acquire()
    remove_unfinished()
    import ctypes

    ctypes.CDLL(None).signal(number, None)  # signal.signal() is the main thread's
    os.kill(os.getpid(), number)


def _in_child() -> None:
    """What a forked child is told must not reach its parent, whose outputs are not the child's."""
    if _told_by >= 0:
        signal.set_wakeup_fd(-1)
    _own_folders.clear()
    _unfinished.clear()
    making.release()


os.register_at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=_in_child)


def _vanish(name: str) -> None:
    """An own_folder() goes with its file. What has its name by now may be somebody's folder: nothing else is removed, and
    rmdir() takes what is empty."""
    if name not in _own_folders:  # of a process that forked us
        return
    above, own, file = _own_folders[name]
    for _ in range(10):  # another thread may make the file again
        own.remove(file)
        status, ours = above.status(name), os.fstat(own._file)
        if status is None or (status.st_dev, status.st_ino) != (ours.st_dev, ours.st_ino):
            return
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=above._file)


def write_output(path: Path, content: bytes, force: bool, *, private: bool = False) -> None:
    """All or nothing: to a file of the same folder first, which is then renamed. Raises memoir.Error."""
    with finished_output(path, force, private=private) as unfinished:
        write_new(unfinished, content)


def write_new(path: Path, content: bytes) -> None:
    """A new file of mode 0600. Raises OSError where anything has that name, and where the disk is full."""
    with open_new(path) as out:
        out.write(content)


def open_new(path: Path) -> BinaryIO:
    """The same, to be written."""
    return os.fdopen(os.open(path, _NEW, 0o600), "wb")


def open_beside(path: Path, flags: int = os.O_RDONLY) -> int:
    """A file that is opened because of its name beside another one: regular, not through a link. flags with O_CREAT: it
    is made where it is missing, of mode 0600. The descriptor is the caller's. Raises OSError."""
    with Folder(path.parent) as folder:
        return folder.open(path.name, flags)


def read_beside(path: Path, most: int) -> bytes:
    """At most so many bytes of a file that open_beside() opens. Raises OSError."""
    with os.fdopen(open_beside(path), "rb") as file:
        return file.read(most)


def read_regular(path: str | Path, most: int = -1) -> bytes:
    """Bytes of a file that a person named, or that another program did: links may lead to it, but it must be regular, so
    that no pipe or device holds us, and read as a whole it must be on the disk: one of holes would take what memory there
    is. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(file, "rb") as source:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most < 0 and status.st_size > max(64 * 512 * status.st_blocks, _PACKED):
            raise OSError(errno.EINVAL, "it is full of holes", str(path))
        return source.read(most)


def append_to(path: Path) -> int:
    """A file that grows a line at a time, and is made where it is missing, with the rights that the umask leaves. Neither a
    link nor a pipe. The descriptor is the caller's. Raises OSError."""
    with Folder(path.parent) as folder:
        if folder.status(path.name) is None:
            with contextlib.suppress(FileExistsError):
                fresh = folder.create(path.name)
                os.fchmod(fresh, 0o666 & ~_umask())
                os.close(fresh)
        return folder.open(path.name, os.O_WRONLY | os.O_APPEND)


def write_setting(path: Path, value: str) -> None:
    """To a file of the kernel's, such as one in /proc/sys. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_TRUNC | _THERE)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def make_folder(path: Path, *, private: bool = False) -> None:
    """The folder and those above it, where they are missing. private: for its user alone. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)


def _umask() -> int:
    """As the kernel says it: to ask os.umask() is to change it, for all threads."""
    try:
        found = re.search(r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1], 8) if found else 0o077
