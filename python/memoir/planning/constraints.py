# SPDX-License-Identifier: Apache-2.0
"""What a problem can say beyond lifetimes, sizes and alignments, in files and at the command line;
docs/reference/constraints.md has examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memoir import _core
from memoir._core import Error


@dataclass(frozen=True)
class Arena:
    """One of several arenas. A plan costs, for each buffer, its weight times the cost of its arena."""

    name: str
    capacity: int | None = None  # bytes; None: no limit
    cost: int = 0

    def as_tuple(self) -> tuple[str, int | None, int]:
        for what, value in (("capacity", self.capacity), ("cost", self.cost)):
            if value is not None and not 0 <= value < 2**62:
                raise Error(f"the arena {self.name} has the {what} {value}: it must be 0 to 2^62")
        return self.name, self.capacity, self.cost


@dataclass(frozen=True)
class Rules:
    """What is said of a problem in addition to its arrays, as memoir.plan() takes it."""

    arenas: Sequence[Arena]
    forbid: Sequence[tuple[Any, ...]]
    banks: tuple[int, int] | None
    conflicts: Any
    replan: Any
    moves: int | None
    locality: bool

    def any(self) -> bool:
        given = (self.banks, self.conflicts, self.replan, self.moves)
        return bool(len(self.arenas) or len(self.forbid) or self.locality) or any(
            one is not None for one in given
        )


def start(
    problem: _core.Problem, csv: _core.CsvProblem | None, arenas: Sequence[Arena]
) -> _core.ConstrainedProblem:
    """What a file says: `problem` is the CSV's (or a trace's), perhaps with more alignment."""
    choices = [arena.as_tuple() for arena in arenas]
    if csv is None:
        return _core.ConstrainedProblem(problem, choices)
    out = _core.ConstrainedProblem(csv, choices)
    out.set_alignments(problem)
    return out


def common(
    out: _core.ConstrainedProblem,
    *,
    forbid: Sequence[tuple[Any, ...]] = (),
    banks: tuple[int, int] | None = None,
    moves: int | None = None,
    locality: bool = False,
) -> None:
    """What is not per buffer and needs no ids: from memoir.plan() and from the command line alike."""
    for one in forbid:
        *arena, begin, end = one
        if not 0 <= begin < end < 2**63:
            raise Error(f"the forbidden range {begin}:{end} is empty, inverted or beyond 2^63")
        out.forbid(arena[0] if arena else None, begin, end)
    if banks is not None:
        count, width = banks
        if count < 2 or width < 1:
            raise Error(f"banks {count}:{width}: there must be 2 or more, of 1 byte or more each")
        out.set_banks(count, width)
    if moves is not None:
        if moves < 0:
            raise Error(f"moves must be 0 or more, not {moves}")
        out.set_moves(moves)
    if locality:
        out.set_locality()
