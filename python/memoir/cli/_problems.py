# SPDX-License-Identifier: Apache-2.0
"""The files that hold a problem or a plan, told apart by how they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memoir import _core
from memoir._core import Error

if TYPE_CHECKING:
    from memoir.planning import PlanResult

PLAN_MAGIC = b"\x89memoirP"
TRACE_MAGIC = b"\x89memoirT"


def magic_of(path: str) -> bytes:
    """The first eight bytes; Error when the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(8)
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None


class CsvSource:
    """A problem from CSV; writes either kind of output."""

    def __init__(self, path: str):
        self.path = path
        self.csv = _core.read_csv(path)
        self.problem = self.csv.problem
        self.meta: dict[str, object] = {}
        self.notes: list[str] = []

    def write(self, suffix: str, problem: _core.Problem, result: PlanResult) -> bytes:
        """`problem` is this source's, perhaps with more alignment."""
        if suffix == ".csv":
            names = getattr(result, "arena_names", ())
            if len(names) > 1:
                return self.csv.write(result.plan, result.arenas, list(names))
            return self.csv.write(result.plan)
        return _core.record_problem(problem, result.plan, result.maker).to_bytes()


class TraceSource:
    """A problem from the last complete pass of a trace; writes either kind of output."""

    def __init__(self, path: str):
        self.path = path
        self._pass = recorded = _core.read_pass(path)
        self.problem = recorded.problem
        self.meta = {
            "pass": recorded.number,
            "allocations": recorded.allocations,
            **{
                kind: dict(zip(("count", "bytes"), getattr(recorded, kind), strict=True))
                for kind in ("escaping", "foreign", "empty")
            },
        }
        which = "the whole trace" if recorded.number is None else f"pass {recorded.number}"
        self.notes = [f"{which}: {recorded.allocations:,} allocations, {len(self.problem):,} of them planned"]
        reasons = {
            "escaping": "still live when it ended",
            "foreign": "made by other threads",
            "empty": "of 0 bytes",
        }
        for kind, reason in reasons.items():
            count, size = getattr(recorded, kind)
            if count:
                self.notes.append(f"not planned: {count:,} {kind} ({reason}), {size:,} bytes")
        if not recorded.complete:
            self.notes.append("the recording was cut off; this is what it had until then")
        if recorded.dropped:
            self.notes.append(
                f"the recorder lost {recorded.dropped:,} records: the plan may not fit the program"
            )

    def write(self, suffix: str, problem: _core.Problem, result: PlanResult) -> bytes:
        """Allocations keep the alignment that they asked for: a run must recognise them."""
        if suffix == ".csv":
            return self._pass.write_csv(result.plan)
        return self._pass.record(result.plan, result.maker).to_bytes()


def open_problem(path: str) -> CsvSource | TraceSource:
    """A trace by its magic, anything else as CSV."""
    magic = magic_of(path)
    if magic == TRACE_MAGIC:
        return TraceSource(path)
    if magic == PLAN_MAGIC:
        raise Error(f"{path} is a plan already: plan the trace or the CSV that it was made from")
    if b"\0" in magic or magic[:1] == b"\x89":
        raise Error(f"{path} is neither a trace nor CSV")
    return CsvSource(path)
