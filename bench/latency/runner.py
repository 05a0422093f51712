# SPDX-License-Identifier: Apache-2.0
"""The measuring loop: all allocators of a cell alive at once, one running at a time, in shuffled turns."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nets

from latency.results import Results
from latency.schedule import FEWEST_BLOCKS, CellKey, passes_for, turns
from latency.session import Failure, Worker, available_memory
from latency.variants import CANDIDATE, REFERENCE, VARIANTS

_RESERVE = 3 << 29  # bytes that must stay free on the machine whatever the workers do
_HEADROOM = 2.0  # a further worker may need this many times the largest peak seen in the cell


@dataclass(frozen=True)
class Design:
    """How a run measures; kept in the results file."""

    replicates: int = 30
    passes: int | None = None  # per turn; None: as many as last about a quarter of a second
    warmup: int = 3  # passes before the first turn: memoir records in the first, then runs from its plan
    settle: int = 1  # untimed passes at the head of every turn: caches, and memory that decayed while waiting
    seed: int = 0
    rounds: int = 1  # fresh processes this many times per cell, the replicates shared out among them
    timeout: float = 900.0


def anchor(variants: Sequence[str]) -> str:
    """The variant that all are compared with: memoir, or else the thesis's baseline, or else the first."""
    return next((name for name in (CANDIDATE, REFERENCE) if name in variants), variants[0])


@dataclass
class _Open:
    """A variant's worker with a cell open, and what was seen of it before the first turn."""

    worker: Worker
    first: dict[str, Any]


class Runner:
    """Measures cells one after the other. `say(line)` is told what happens. Use it as a context manager."""

    def __init__(
        self,
        design: Design,
        variants: Sequence[str],
        results: Results,
        say: Callable[[str], None],
        libraries: Sequence[str],
    ) -> None:
        """`libraries`: what the networks of the cells need, torchvision or transformers; slow to import."""
        self._design = design
        self._libraries = libraries
        self._variants = [anchor(variants), *(name for name in variants if name != anchor(variants))]
        self._results = results
        self._say = say
        self._workers: dict[str, Worker] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="memoir-weights-")
        self._weights: tuple[tuple, Path] | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._folder.cleanup()

    def start(self) -> dict[str, str]:
        """Starts every variant's worker side by side; returns those that cannot run here, with the reason."""
        refused = {}
        for name in self._variants:
            self._workers[name] = Worker(VARIANTS[name], self._design.timeout)
            self._workers[name].greet(self._libraries)
        for name, worker in list(self._workers.items()):
            try:
                self.versions |= worker.prove()["versions"]
            except Failure as failure:
                refused[name] = str(failure)
                self._workers.pop(name).stop()
        self._variants = [name for name in self._variants if name not in refused]
        return refused

    def measure(self, key: CellKey, deadline: float) -> None:
        """Brings one cell to the design's replicates, or as near as a deadline (time.monotonic) allows."""
        self._deadline = deadline
        rounds = self._design.rounds
        for number in range(1, rounds + 1):
            goal = self._design.replicates * number // rounds
            pending = [name for name in self._variants if self._done(key, name) < goal]
            while pending:
                group = [self._variants[0], *(name for name in pending if name != self._variants[0])]
                measured = self._measure_group(key, group, goal, pending)
                pending = [name for name in pending if name not in measured]
            if time.monotonic() > deadline:
                return

    def verify(self, key: CellKey) -> dict[str, Any]:
        """Whether memoir's outputs equal plain PyTorch's bit for bit; the worker's reply."""
        return self._ask_memoir(key, do="verify")

    def record(self, key: CellKey, path: Path) -> None:
        """Writes the trace of one pass of a cell."""
        self._ask_memoir(key, do="record", path=str(path))

    def _ask_memoir(self, key: CellKey, **request: str) -> dict[str, Any]:
        worker = self._worker(CANDIDATE, key)
        weights = str(self._weights_for(key, worker))
        return worker.ask(seed=self._design.seed, weights=weights, remember=False, **key.as_dict(), **request)

    def _done(self, key: CellKey, name: str) -> int:
        cell = self._results.cells.get(key)
        return sum(name in block["runs"] for block in cell["blocks"]) if cell else 0

    def _measure_group(self, key: CellKey, group: list[str], goal: int, pending: list[str]) -> set[str]:
        """Opens those of the group that fit into memory and gives them their turns; returns these."""
        cell = self._results.cells.get(key)
        session = 1 + max((worker["session"] for worker in cell["workers"]), default=-1) if cell else 0
        opened: dict[str, _Open] = {}
        dealt, largest = set(), 0
        with self._closing(key, session, opened):
            for name in group:
                if len(opened) > 1 and available_memory() < _HEADROOM * largest + _RESERVE:
                    self._say(f"    {name} and later ones wait for their own group: memory is short")
                    break
                dealt.add(name)
                peak = self._open(key, session, name, opened)
                largest = max(largest, peak)
            if opened:
                have = min(self._done(key, name) for name in dealt if name in pending)
                self._take_turns(key, session, opened, have, goal)
        return dealt

    def _open(self, key: CellKey, session: int, name: str, opened: dict[str, _Open]) -> int:
        """Starts a variant's worker on the cell and warms it up; returns its peak of anonymous bytes."""
        try:
            worker = self._worker(name, key)
            weights = self._weights_for(key, worker)
            before = worker.ask(
                do="open",
                seed=self._design.seed,
                weights=str(weights),
                remember=VARIANTS[name].remember,
                **key.as_dict(),
            )["opened"]
            warm = worker.ask(do="run", passes=self._design.warmup, settle=0)
            self._fix_passes(key, min(warm["ns"]))
            marked = worker.ask(do="mark")
        except Failure as failure:
            self._fail(key, session, name, failure)
            return 0
        first = {"before": before, "warmup": marked, "warmup_ns": warm["ns"], "warmup_minor": warm["minor"]}
        opened[name] = _Open(worker, first)
        return marked["peak_anonymous"]

    def _fix_passes(self, key: CellKey, fastest_ns: int) -> None:
        cell = self._results.cells.get(key)
        if cell is None or cell["passes"] is None:
            self._results.record("passes", key, passes=self._design.passes or passes_for(fastest_ns))

    def _take_turns(self, key: CellKey, session: int, opened: dict[str, _Open], have: int, goal: int) -> None:
        passes = self._results.cells[key]["passes"]
        for index in range(have, goal):
            if time.monotonic() > self._deadline and index >= FEWEST_BLOCKS:
                return
            runs = {}
            for name in turns(list(opened), self._design.seed, key, index):
                try:
                    runs[name] = opened[name].worker.ask(do="run", passes=passes, settle=self._design.settle)
                except Failure as failure:
                    self._fail(key, session, name, failure)
                    del opened[name]
            if not runs:
                return
            self._results.record("block", key, block=index, session=session, runs=runs)

    @contextlib.contextmanager
    def _closing(self, key: CellKey, session: int, opened: dict[str, _Open]) -> Iterator[None]:
        """Collects every worker's memory and statistics, however the turns ended."""
        try:
            yield
        finally:
            for name, member in opened.items():
                try:
                    last = member.worker.ask(do="close")
                    self._results.record(
                        "worker", key, session=session, variant=name, **member.first, last=last
                    )
                except Failure as failure:
                    self._fail(key, session, name, failure)

    def _fail(self, key: CellKey, session: int, name: str, failure: Failure) -> None:
        self._say(f"    {name} failed on {key.label}: {failure}")
        self._results.record(
            "failure", key, session=session, variant=name, what=str(failure), last_lines=failure.last_lines
        )

    def _worker(self, name: str, key: CellKey) -> Worker:
        worker = self._workers.get(name)
        if worker is None or not worker.alive:
            if worker is not None:
                worker.stop()
            worker = self._workers[name] = Worker(VARIANTS[name], self._design.timeout)
            worker.greet(self._libraries)
            worker.prove()
        return worker

    def _weights_for(self, key: CellKey, worker: Worker) -> Path:
        """The file from which every allocator's worker maps the same weights; made once per network."""
        wanted = (key.net, key.side if nets.NETS[key.net].weights_depend_on_side else None)
        if self._weights is None or self._weights[0] != wanted:
            path = Path(self._folder.name) / "weights.pt"
            path.unlink(missing_ok=True)
            worker.ask(do="weights", net=key.net, side=key.side, seed=self._design.seed, path=str(path))
            self._weights = (wanted, path)
        return self._weights[1]
