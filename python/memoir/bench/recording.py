# SPDX-License-Identifier: Apache-2.0
"""A result that grows while a bench runs, and the folder that keeps it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Folder, Record, make_folder
from memoir.bench import journal, trust
from memoir.bench.grid import Cell, Group, cell_of
from memoir.bench.journal import MEMBER, NAME, Journal
from memoir.bench.lock import Lock
from memoir.bench.results import Result

KEPT = (NAME, "results.json", "results.csv")  # what makes a folder one of a bench
# What else a report writes into it.
PICTURES = ("times", "ratios", "scaling", "run-order", "serial-normalised-by-allocator", "serial-normalised-by-load",
            "memory-against-time", "live-and-resident", "memory-over-time")  # fmt: skip
WRITTEN = (
    *KEPT,
    *(f".{name}.before" for name in KEPT),  # what -f sets aside
    "tables.md",
    "report.html",
    *(f"{name}.{kind}" for name in PICTURES for kind in ("svg", "png")),
)


class Recording:
    """Rows in memory, and in the folder's journal where there is a folder. Not thread-safe.

    Use it as a context manager: the journal is on the disk when the block ends, however it ends.
    """

    def __init__(self, result: Result, folder: Path | None = None, lock: Lock | None = None) -> None:
        """Goes on in the folder's journal; begin() and resume() are how to get there."""
        self.result = result
        self.folder = folder
        self._lock = lock
        self._new = self._made = self._settled = False  # begun here; in a folder that was not there; has rows
        self._aside: list[str] = []  # what -f set aside
        self._done: Counter[Cell] = Counter()
        self._sessions: dict[Group, int] = {}  # by Cell.group: the number of the next one
        self._count(*result.rows, *result.members)
        self._journal = Journal(folder / NAME) if folder else None

    @classmethod
    def begin(
        cls, header: Record, folder: Path | None = None, force: bool = False, notes: list[str] | None = None
    ) -> Recording:
        """A new bench in a folder that holds none, or in memory only. `notes` is kept, not copied."""
        result = Result(header, [], [] if notes is None else notes)
        recording = cls(result) if folder is None else cls._begin_in(folder, result, force)
        recording._new = True
        try:
            recording.change_header(header)
        except OSError as error:  # a full disk: nothing has begun
            recording.discard()
            raise Error(f"{error.filename}: cannot be written: {os.strerror(error.errno or 0)}") from None
        return recording

    @classmethod
    def _begin_in(cls, folder: Path, result: Result, force: bool) -> Recording:
        made = not folder.exists()
        check_output(folder, force)
        _make(folder)
        with contextlib.ExitStack() as undo:
            if made:
                undo.callback(_remove_folder, folder)
            lock = Lock(folder)
            undo.callback(lock.release)
            aside = output_folder(folder, force)  # which checks again, now that nobody else can begin
            undo.callback(_give_back, folder, aside)
            recording = cls(result, folder, lock)
            undo.pop_all()
        recording._made, recording._aside = made, aside
        return recording

    @classmethod
    def resume(cls, folder: Path, notes: list[str] | None = None) -> Recording:
        """What a folder's journal holds, to go on with. Raises memoir.Error for what is not a journal."""
        path = folder / NAME
        if not path.is_file():
            raise Error(f"--resume {folder}: no {NAME} in it")
        lock = Lock(folder)
        try:
            header, rows, members = journal.read_all(path)
            journal.cut_torn_line(path)
            return cls(Result(header, rows, [] if notes is None else notes, members), folder, lock)
        except BaseException:
            lock.release()
            raise

    def discard(self) -> None:
        """Gives up a bench that has just begun and measured nothing; what -f set aside is there again."""
        with contextlib.suppress(OSError):
            self.close()
        if self.folder is None or not self._new or self.result.rows:
            return
        with Folder(self.folder) as folder:
            folder.remove(NAME)
        _give_back(self.folder, self._aside)
        if self._made:
            _remove_folder(self.folder)

    def settle(self) -> None:
        """From here on the new bench counts: what -f set aside is given up. The first row does this too."""
        self._settled = True
        if self.folder is not None:
            give_up(self.folder, self._aside)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def change_header(self, header: Record) -> None:
        """From here on this header counts: readers take the last one of a journal."""
        if self.folder is not None:
            header = header | {"signature": trust.sign(header, self.folder)}
        self.result.header = header
        if self._journal:
            self._journal.append(header)

    def add(self, *rows: Record) -> None:
        """Rows that belong together are given together: a crash keeps all of them or the first ones."""
        self.result.rows.extend(rows)
        if not self._settled and rows:
            self.settle()
        self._count(*rows)
        if self._journal and rows:
            self._journal.append(*rows)

    def add_member(self, cell: Cell, session: int, **seen: Record) -> None:
        """What a member saw of itself: `opened` before its first turn, `closed` after its last."""
        self.keep_members({"record": MEMBER, **cell.to_dict(), "session": session, **seen})

    def keep_members(self, *members: Record) -> None:
        """Members' records as a journal has them."""
        self.result.members.extend(members)
        self._count(*members)
        if self._journal and members:
            self._journal.append(*members)

    def done(self, cell: Cell) -> int:
        """How many runs of a cell count."""
        return self._done[cell]

    def next_session(self, cell: Cell) -> int:
        """A number that no session of this cell, or of one that it is compared with, has."""
        return self._sessions.get(cell.group, 0)

    def sync(self) -> None:
        """What was added so far outlives a crash of the machine."""
        if self._journal:
            self._journal.sync()

    def close(self) -> None:
        try:
            if self._journal:
                self._journal.close()
                self._journal = None
        finally:
            if self._lock:
                self._lock.release()
                self._lock = None

    def save(self) -> None:
        """Writes results.json and results.csv into the folder, if there is one."""
        if self.folder:
            self.result.save(self.folder)

    def _count(self, *records: Record) -> None:
        for record in records:
            cell = cell_of(record)
            self._done[cell] += record.get("status") == "ok"
            following = 1 + record.get("session", 0)
            self._sessions[cell.group] = max(following, self._sessions.get(cell.group, 0))


def check_output(path: Path, force: bool) -> None:
    """Raises memoir.Error when a bench is there already, something that is not a folder, or nothing can be written."""
    if path.exists() and not path.is_dir():
        raise Error(f"{path} is a file; a bench writes a folder")
    if not force and any(os.path.lexists(path / name) for name in (NAME, "results.json")):
        raise Error(f"{path} holds a bench already: use --resume {path} to go on, -o for another, or -f")
    for name in WRITTEN if not force else ():
        if os.path.lexists(path / name):
            raise Error(
                f"{path / name} exists already, and a bench writes one: choose another folder with -o, or -f"
            )
    there = path.absolute()
    while not there.exists():
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror}") from None


def output_folder(path: Path, force: bool) -> list[str]:
    """Makes the folder of a new bench; with `force` an old bench in it is set aside, until give_up(). The names of what is."""
    check_output(path, force)
    _make(path)
    aside: list[str] = []
    try:
        with Folder(path) as folder:
            for name in KEPT:
                if folder.status(name) is not None:
                    folder.rename(name, f".{name}.before")
                    aside.append(name)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    return aside


def give_up(path: Path, aside: list[str]) -> None:
    """Removes what output_folder() set aside."""
    with Folder(path) as folder:
        for name in aside:
            folder.remove(f".{name}.before")


def _give_back(path: Path, aside: list[str]) -> None:
    with Folder(path) as folder:
        for name in aside:
            folder.rename(f".{name}.before", name)


def _remove_folder(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _make(path: Path) -> None:
    try:
        make_folder(path)
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror}") from None
