# SPDX-License-Identifier: Apache-2.0
"""The files that hold a problem or a plan, told apart by how they begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memoir import _core
from memoir._core import Error
from memoir.base.files import read_regular
from memoir.base.kinds import check_is_csv
from memoir.importers import Importer, import_file, importer_of
from memoir.traces.files import is_trace, only_device, open_for_plans, read_begin

if TYPE_CHECKING:
    from memoir.planning import PlanResult

PLAN_MAGIC = b"\x89memoirP"


class CsvSource:
    """A problem from CSV; writes either kind of output."""

    def __init__(self, path: str):
        self.path = path
        self.csv = _core.read_csv(path)
        self.problem = self.csv.problem
        self.meta: dict[str, object] = {}
        self.notes: list[str] = []

    def ids(self) -> list[str]:
        """Of the buffers, for people."""
        return self.csv.ids

    def write(self, suffix: str, problem: _core.Problem, result: PlanResult) -> bytes:
        """`problem` is this source's, perhaps with more alignment."""
        if suffix == ".csv":
            if result.arenas is not None and len(result.arena_names) > 1:
                return self.csv.write(result.plan, result.arenas, list(result.arena_names))
            return self.csv.write(result.plan)
        return _core.record_problem(problem, result.plan, result.maker).to_bytes()


class ImportedSource(CsvSource):
    """A problem from another framework's file: what its importer makes of it, and for some formats the plan in it."""

    def __init__(self, path: str, importer: Importer, dims: Mapping[str, int]):
        self.path = path
        self.imported = import_file(importer, path, dict(dims))
        self.csv = _core.parse_csv(self.imported.csv(), path)
        self.problem = self.csv.problem
        self.meta = {"format": importer.name, "their_arena": self.imported.peer}
        self.notes = self.imported.notes

    def write(self, suffix: str, problem: _core.Problem, result: PlanResult) -> bytes:
        if suffix in (".csv", ".plan"):
            return super().write(suffix, problem, result)
        if self.imported.planned is None or suffix != self.imported.suffix:
            raise Error(f"{self.path}: its plan is written to a .plan or a .csv, not to a {suffix}")
        return self.imported.planned([int(offset) for offset in result.offsets])


class TraceSource:
    """A problem from the last complete pass of a trace, on one device; writes either kind of output."""

    def __init__(self, path: str, device: int | None = None, only: str | None = None):
        self.path = path
        trace = open_for_plans(path, only)
        try:
            self.device = only_device(trace, device)
            self._pass = recorded = _core.read_pass(trace, device=self.device)
        except Error as error:
            raise Error(f"{path}: {error}") from None
        self.problem = recorded.problem
        self.meta = {
            "pass": recorded.number,
            "device": self.device,
            "allocations": recorded.allocations,
            **{
                kind: dict(zip(("count", "bytes"), getattr(recorded, kind), strict=True))
                for kind in ("escaping", "foreign", "elsewhere", "empty")
            },
        }
        which = "the whole trace" if recorded.number is None else f"pass {recorded.number}"
        self.notes = [f"{which}: {recorded.allocations:,} allocations, {len(self.problem):,} of them planned"]
        reasons = {
            "escaping": "still live when it ended",
            "foreign": "made by other threads",
            "elsewhere": "on other devices",
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

    def ids(self) -> list[str]:
        """Of the buffers, for people: the numbers of the trace's objects."""
        return [str(number) for number in self._pass.objects.tolist()]

    def write(self, suffix: str, problem: _core.Problem, result: PlanResult) -> bytes:
        """Allocations keep the alignment that they asked for: a run must recognise them."""
        if suffix == ".csv":
            return self._pass.write_csv(result.plan)
        return self._pass.record(result.plan, result.maker).to_bytes()


def open_problem(
    path: str, device: int | None = None, dims: Mapping[str, int] | None = None, only: str | None = None
) -> CsvSource | TraceSource:
    """Whatever holds a trace by how it begins, other frameworks' files by that or their name, anything else as CSV."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Error(f"{path!a}: the name of this file is not UTF-8; rename it") from None
    begin = read_begin(path)
    if is_trace(begin):
        return TraceSource(path, device, only)
    if (importer := importer_of(path, _longer_begin(path))) is not None:
        if device is not None:
            raise Error(f"{path} is {importer.what}, which has no devices: leave --device out")
        return ImportedSource(path, importer, dims or {})
    if begin.startswith(PLAN_MAGIC):
        raise Error(f"{path} is a plan already: plan the trace or the CSV that it was made from")
    check_is_csv(path, begin, "neither a trace nor CSV")
    if device is not None:
        raise Error(f"{path} is CSV, which has no devices: leave --device out")
    if only is not None:
        raise Error(f"{path} is CSV, which has no tensors: leave --only out")
    return CsvSource(path)


def _longer_begin(path: str) -> bytes:
    """Enough of a file to know a log by; empty when it cannot be read, which is told by who reads it."""
    try:
        return read_regular(path, 1 << 16)
    except OSError:
        return b""
