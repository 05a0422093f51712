# SPDX-License-Identifier: Apache-2.0
"""Cells that stay alive between their turns: workers that are asked for passes, servers that are put under load.

Where experiment.py starts a process for every run, a session holds several members at once, each under an
allocator of its own, and gives them turns. Only one is busy at a time; the others wait.

    session 0    open   A B C      started, ready, warmed up; one that cannot is left out, and a row says why
      block 0    turn   B A C      every member once, in an order of the block's own: what disturbs the
      block 1    turn   A C B      machine for longer than a turn falls on all of them, and cancels when paired
                 close  A B C      however the turns ended; what each saw of itself becomes a member's record
    session 1    fresh processes, the same again

A turn is a row of the results, as a run of a command is: its `wall` is the seconds of one unit of its work (a
pass, a request), and `turn` holds all that the member said. Runs are paired by session and replicate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from memoir.base.files import Record
from memoir.bench.grid import Cell, shuffled
from memoir.bench.process.workers import Failure
from memoir.bench.recording import Recording

FEWEST_BLOCKS = 3  # of a session, even when its time is over


class Member(Protocol):
    """One cell kept alive. A Failure from any call ends its part in the session; close() is not called then."""

    cell: Cell

    def open(self) -> dict[str, Any]:
        """Starts what is to be measured, waits until it is ready, warms it up; returns what was seen."""

    def turn(self) -> dict[str, Any]:
        """Measures once. Returns the row's own fields: `wall` in seconds at least, and further quantities."""

    def close(self) -> dict[str, Any]:
        """Ends it; returns what was seen."""


class Session:
    """Members that are alive together. Use it as a context manager: all of them are closed at its end."""

    def __init__(
        self,
        recording: Recording,
        number: int,
        on_failure: Callable[[Cell, Failure], None] = lambda cell, failure: None,
    ) -> None:
        self._recording = recording
        self._number = number
        self._on_failure = on_failure
        self._members: dict[Cell, Member] = {}
        self._replicate = 0
        self.opened: dict[Cell, dict[str, Any]] = {}  # what each member that could be opened said

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for cell, member in self._members.items():
            try:
                closed = member.close()
            except Failure as failure:
                self._fail(cell, failure)
                continue
            self._recording.add_member(cell, self._number, opened=self.opened[cell], closed=closed)

    def open(self, member: Member) -> None:
        """Takes a member in, or says in a row why it cannot be opened."""
        try:
            self.opened[member.cell] = member.open()
        except Failure as failure:
            self._fail(member.cell, failure)
            return
        self._members[member.cell] = member

    def block(self, replicate: int, label: str) -> bool:
        """One turn for every member, in the order that the label gives; False when none could take it."""
        self._replicate = replicate
        rows = []
        for position, cell in enumerate(shuffled(list(self._members), label)):
            started = time.time()
            try:
                measured = self._members[cell].turn()
            except Failure as failure:
                self._fail(cell, failure)
                del self._members[cell]
                continue
            rows.append(turn_row(cell, self._number, replicate, position, measured, started))
        self._recording.add(*rows)
        self._recording.sync()
        return bool(rows)

    def _fail(self, cell: Cell, failure: Failure) -> None:
        self._on_failure(cell, failure)
        self._recording.add(failure_row(cell, self._number, self._replicate, failure))


def top_up(
    recording: Recording,
    members: Sequence[Member],
    replicates: int,
    rounds: int = 1,
    label: str = "",
    in_time: Callable[[], bool] = lambda: True,
    room: Callable[[Sequence[Record]], bool] = lambda opened: True,
    on_failure: Callable[[Cell, Failure], None] = lambda cell, failure: None,
    on_short: Callable[[Cell], None] = lambda cell: None,
) -> None:
    """Brings every member's cell to so many replicates, in sessions; what the recording has counts.

    The members are compared with each other: their cells are equal in all but the allocator.

    rounds     fresh processes so many times, the replicates shared out among them
    label      of the random order, together with the block's number
    in_time    False: no further block, but FEWEST_BLOCKS of each cell; no further round
    room       whether one more member can be opened, told what the open ones said. Those that found no room
               get a session of their own (on_short gets the first). The first member is in every session,
               since only members of one session can be compared.
    """
    for nth in range(1, rounds + 1):
        goal = replicates * nth // rounds
        pending = [member for member in members if recording.done(member.cell) < goal]
        while pending:
            group = [members[0], *(member for member in pending if member is not members[0])]
            taken = []
            number = recording.next_session(members[0].cell)
            with Session(recording, number, on_failure) as session:
                for member in group:
                    if len(session.opened) > 1 and not room(list(session.opened.values())):
                        on_short(member.cell)
                        break
                    taken.append(member)
                    session.open(member)
                have = min(recording.done(member.cell) for member in taken if member in pending)
                for replicate in range(have, goal):
                    if replicate >= FEWEST_BLOCKS and not in_time():
                        break
                    if not session.block(replicate, f"{label}/{replicate}"):
                        break
            pending = [member for member in pending if member not in taken]
        if not in_time():
            return


def turn_row(
    cell: Cell, session: int, replicate: int, position: int, measured: dict[str, Any], started: float
) -> Record:
    """One line of the results file: a turn that counts."""
    return {
        **cell.to_dict(),
        "session": session,
        "replicate": replicate,
        "position": position,
        "started": round(started, 3),
        "status": "ok",
        **measured,
        "metrics": measured.get("metrics", {}),
    }


def failure_row(cell: Cell, session: int, replicate: int, failure: Failure) -> Record:
    """A member that could not go on: a result too. Nothing was timed."""
    where = {"session": session, "replicate": replicate}
    how: Record = {"status": str(failure), "wall": None, "metrics": {}, "tail": failure.last_lines}
    return {**cell.to_dict(), **where, **how}
