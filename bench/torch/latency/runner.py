# SPDX-License-Identifier: Apache-2.0
"""Cells measured by passes: one process per allocator, a member of the bench's sessions for every cell."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nets
from memoir.bench.grid import Cell
from memoir.bench.process import machine
from memoir.bench.process.workers import Failure
from memoir.bench.recording import Recording
from memoir.bench.sessions import top_up

from latency.allocator_process import AllocatorProcess
from latency.cells import CellKey, passes_for
from latency.records import passes_of, row_fields
from latency.variants import CANDIDATE, VARIANTS, anchor

_RESERVE = 3 << 29  # bytes that must stay free on the machine whatever the workers do
_HEADROOM = 2.0  # a further worker may need this many times the largest peak seen in the cell


@dataclass(frozen=True)
class Design:
    """How a run measures; kept in the results."""

    replicates: int = 30
    passes: int | None = None  # per turn; None: as many as last about a quarter of a second
    warmup: int = 3  # passes before the first turn: memoir records in the first, then runs from its plan
    settle: int = 1  # untimed passes at the head of every turn: caches, and memory that decayed while waiting
    seed: int = 0
    rounds: int = 1  # fresh processes this many times per cell, the replicates shared out among them
    timeout: float = 900.0


class Processes:
    """The processes of all variants and the weights that they map. Use it as a context manager."""

    def __init__(self, design: Design, variants: Sequence[str], libraries: Sequence[str]) -> None:
        """`libraries`: what the networks of the cells need, torchvision or transformers; slow to import."""
        self._design = design
        self._libraries = libraries
        self.variants = [anchor(variants), *(name for name in variants if name != anchor(variants))]
        self._processes: dict[str, AllocatorProcess] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="memoir-weights-")
        self._weights: tuple[tuple, Path] | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.stop()
        self._folder.cleanup()

    def start(self) -> dict[str, str]:
        """Starts every variant's process side by side; returns those that cannot run here, with the reason."""
        refused = {}
        for name in self.variants:
            self._processes[name] = AllocatorProcess(VARIANTS[name], self._design.timeout)
            self._processes[name].greet(self._libraries)
        for name, process in list(self._processes.items()):
            try:
                self.versions |= process.prove()["versions"]
            except Failure as failure:
                refused[name] = str(failure)
                self._processes.pop(name).stop()
        self.variants = [name for name in self.variants if name not in refused]
        return refused

    def ask(self, name: str, key: CellKey, **request: Any) -> dict[str, Any]:
        """Asks a variant's process for something that begins with the cell: open, verify, record."""
        process = self.of(name)
        weights = str(self._weights_for(key, process))
        return process.ask(seed=self._design.seed, weights=weights, **key.as_dict(), **request)

    def of(self, name: str) -> AllocatorProcess:
        """A variant's process, started again if it died."""
        process = self._processes.get(name)
        if process is None or not process.alive:
            if process is not None:
                process.stop()
            process = self._processes[name] = AllocatorProcess(VARIANTS[name], self._design.timeout)
            process.greet(self._libraries)
            process.prove()
        return process

    def _weights_for(self, key: CellKey, process: AllocatorProcess) -> Path:
        """The file from which every allocator's process maps the same weights; made once per network."""
        wanted = (key.net, key.side if nets.NETS[key.net].weights_depend_on_side else None)
        if self._weights is None or self._weights[0] != wanted:
            path = Path(self._folder.name) / "weights.pt"
            path.unlink(missing_ok=True)
            process.ask(do="weights", net=key.net, side=key.side, seed=self._design.seed, path=str(path))
            self._weights = (wanted, path)
        return self._weights[1]


class Runner:
    """Measures cells one after the other. `say(line)` is told what happens."""

    def __init__(
        self, design: Design, processes: Processes, recording: Recording, say: Callable[[str], None]
    ) -> None:
        self.design = design
        self.processes = processes
        self._recording = recording
        self._say = say
        self._passes = passes_of(recording.result)

    def measure(self, key: CellKey, deadline: float) -> None:
        """Brings one cell to the design's replicates, or as near as a deadline (time.monotonic) allows."""
        top_up(
            self._recording,
            [_Member(self, name, key) for name in self.processes.variants],
            self.design.replicates,
            self.design.rounds,
            label=f"{self.design.seed}/{key.label}",
            in_time=lambda: time.monotonic() <= deadline,
            room=_room,
            on_failure=self._failed,
            on_short=self._short,
        )

    def passes(self, key: CellKey, fastest_ns: int | None = None) -> int:
        """Passes per turn of a cell, fixed when the first of its allocators is warm."""
        if key not in self._passes:
            self._passes[key] = self.design.passes or passes_for(fastest_ns)
        return self._passes[key]

    def _failed(self, cell: Cell, failure: Failure) -> None:
        self._say(f"    {cell.allocator} failed on {CellKey.of(cell).label}: {failure}")

    def _short(self, cell: Cell) -> None:
        self._say(f"    {cell.allocator} and later ones wait for their own group: memory is short")


class _Member:
    """One variant on one cell: its process with the cell open, asked for a turn of passes at a time."""

    def __init__(self, runner: Runner, variant: str, key: CellKey) -> None:
        self.cell = key.under(variant)
        self._runner = runner
        self._key = key
        self._process: AllocatorProcess  # the one that has the cell open

    def open(self) -> dict[str, Any]:
        runner, name = self._runner, self.cell.allocator
        remember = VARIANTS[name].remember
        before = runner.processes.ask(name, self._key, do="open", remember=remember)["opened"]
        process = self._process = runner.processes.of(name)
        warm = process.ask(do="run", passes=runner.design.warmup, settle=0)
        runner.passes(self._key, min(warm["ns"]))
        marked = process.ask(do="mark")
        return {"before": before, "warmup": marked, "warmup_ns": warm["ns"], "warmup_minor": warm["minor"]}

    def turn(self) -> dict[str, Any]:
        passes, settle = self._runner.passes(self._key), self._runner.design.settle
        return row_fields(self._process.ask(do="run", passes=passes, settle=settle))

    def close(self) -> dict[str, Any]:
        return self._process.ask(do="close")


def verify(processes: Processes, key: CellKey) -> dict[str, Any]:
    """Whether memoir's outputs equal plain PyTorch's bit for bit; the process's reply."""
    return processes.ask(CANDIDATE, key, do="verify", remember=False)


def record(processes: Processes, key: CellKey, path: Path) -> None:
    """Writes the trace of one pass of a cell."""
    processes.ask(CANDIDATE, key, do="record", remember=False, path=str(path))


def _room(opened: Sequence[dict]) -> bool:
    largest = max(seen["warmup"]["peak_anonymous"] for seen in opened)
    return machine.memory_available() >= _HEADROOM * largest + _RESERVE
