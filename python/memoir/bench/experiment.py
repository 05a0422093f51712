# SPDX-License-Identifier: Apache-2.0
"""An experiment: the grid, looked at, proved, and run cell by cell (loop.py says in which order)."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Record
from memoir.base.quantities import printable
from memoir.bench.grid import PERCENTILES, Cell, Grid, Program, environment, fill
from memoir.bench.journal import VERSION
from memoir.bench.options import Options, cpus_for
from memoir.bench.process import allocators, histogram, launch, machine, memory, proof
from memoir.bench.process.clients import Plan, Turn, drive, free_port
from memoir.bench.process.executables import check_executable
from memoir.bench.rows import compile_metric, record


@dataclass
class Experiment:
    """Grid and options, checked. Everything that can be wrong before a run is found by check()."""

    grid: Grid
    options: Options = field(default_factory=Options)
    proofs: dict[tuple[str, str, str], proof.Proof] = field(default_factory=dict)
    ready: bool = False  # check() is done
    notes: list[str] = field(default_factory=list)  # what a reader must know; said once
    _counters: tuple[str, ...] = ()
    _largest: int | None = None

    def header(self) -> Record:
        """The first line of the results: enough to run the rest of it."""
        return new_header(self.grid, vars(self.options) | {"counters": list(self.options.counters)})

    def check(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """look(), and proves every allocator in every program. Raises memoir.Error."""
        self.look()
        self.prove(progress)

    def look(self) -> None:
        """Compiles patterns, finds programs, fills in every command: all that takes no run. Raises memoir.Error."""
        for program in self.grid.programs:
            for metric in program.metrics:
                if metric.pattern:
                    compile_metric(metric.pattern)
        for cell in self.grid.cells():
            program = self.grid.program(cell.program)
            fill(program.words, {**cell.values(0), "port": "0"})
            if self.options.prepare is not None:
                fill((self.options.prepare,), cell.values(0))
            for words in (program.client, program.ready, program.stop):
                if words:
                    launch.resolve(fill(words, {**cell.values(0), "port": "0"})[0])
        for executable in dict.fromkeys(self._proof_key(cell)[2] for cell in self.grid.cells()):
            path = launch.resolve(executable)
            check_executable(path)
        if (randomisation := machine.describe()["address_randomisation"]) == "off":
            self.notes.append(
                f"address randomisation is {randomisation}: every run has the same layout, which may favour one "
                "allocator by chance; sysctl kernel.randomize_va_space=2 switches it on"
            )

    def prove(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """Runs each allocator once in each program with a probe. Raises memoir.Error."""
        cells = {self._proof_key(cell): cell for cell in reversed(self.grid.cells())}
        available = machine.counters()
        self._counters = tuple(
            name for name in self.options.counters if available.get(name) in ("all", "user")
        )
        lacking = [name for name in self.options.counters if name not in self._counters]
        if lacking:
            self.notes.append(
                f"not counted here: {', '.join(lacking)} ({available.get(lacking[0], 'unknown')})"
            )
        for key, cell in reversed(cells.items()):
            progress(f"proving {cell.allocator} in {cell.program}")
            self.proofs[key] = self._prove(cell)
            self._look_at(cell, self.proofs[key].measurement, progress)
        self.ready = True

    def proof_records(self) -> list[Record]:
        """What reports say of the proofs."""
        return [
            {"program": program, "allocator": allocator, **shown.to_dict()}
            for (program, allocator, _), shown in self.proofs.items()
        ]

    def replicate(
        self, number: int, done: frozenset[tuple[int, int, Cell]] = frozenset(), session: int = 0
    ) -> Iterator[tuple[int, Cell]]:
        """(position, cell) of one replicate in its own order, without those that are done."""
        for position, cell in enumerate(self.grid.order(self.seed, number, session)):
            if (session, number, cell) not in done:
                yield position, cell

    @property
    def seed(self) -> int:
        return self.options.seed or 0

    def run_cell(self, cell: Cell, replicate: int, position: int = 0, session: int = 0) -> Record:
        """Runs one cell once; returns its record. A failure is a record too."""
        program, values = self.grid.program(cell.program), self._values(cell, replicate)
        self._prepare(cell, replicate)
        started = time.time()
        variables, padding = self._variables(cell, replicate, session, values)
        running = launch.Running(
            fill(program.command, values),
            environment=variables,
            timeout=None if program.server else self.options.timeout,
            cpus=cpus_for(self.options.pin, cell.threads),
            counters=self._counters,
            memory=memory.PERIOD if self.options.memory else None,
        )
        try:
            turn = drive(running, self._plan(program, values)) if program.client else None
        except BaseException:
            running.stop()
            raise
        finally:
            measurement = running.wait()
        if turn is not None and program.histogram and turn.failure is None:
            try:
                path = Path(fill((program.histogram,), values)[0])
                found = histogram.percentiles(path, PERCENTILES.values())
            except Error as error:
                turn.failure, found = str(error), []
        else:
            found = []
        row = record(program, cell, replicate, position, started, measurement, turn, self.options.exit_code)
        row["metrics"] |= dict(zip(PERCENTILES, found, strict=False))
        if self.options.sessions > 1:
            row["session"] = session
        measurement.said.close()
        return row | {"padding": padding}

    def _values(self, cell: Cell, replicate: int) -> dict[str, str]:
        values = cell.values(replicate)
        if self.grid.program(cell.program).client:
            values["port"] = str(free_port())
        return values

    def _plan(self, program: Program, values: dict[str, str], *more: str) -> Plan:
        return Plan(
            client=fill((*program.client, *more), values),
            server=program.server,
            ready=fill(program.ready, values),
            stop=fill(program.stop, values),
            port=int(values["port"]) if any("{port}" in word for word in program.command) else None,
            settle=program.settle,
            timeout=self.options.timeout,
        )

    def _variables(
        self, cell: Cell, replicate: int, session: int, values: dict[str, str]
    ) -> tuple[dict[str, str], int]:
        """The environment of a run, and its size in bytes as far as it is ours.

        What lies above the stack moves it, and with it the program's time (Mytkowicz et al. 2009). So all runs of a
        replicate have as many bytes of words and variables, and each replicate draws how many.
        """
        variables = environment(cell, replicate, self.grid.threads_given)
        shown = self.proofs.get(self._proof_key(cell))
        variables |= proof.environment_for(
            shown.preload if shown else (), self.grid.allocator(cell.allocator)
        )
        command = fill(self.grid.program(cell.program).command, values)
        wanted = self._room() + random.Random(f"{self.seed}:padding:{session}:{replicate}").randrange(4096)
        return variables | {"MEMOIR_PADDING": "x" * max(0, wanted - size_of(variables, command))}, wanted

    def _room(self) -> int:
        """Bytes that the words and variables of every cell fit into."""
        if self._largest is None:
            sizes = [0]
            for cell in self.grid.cells():
                variables = environment(cell, 1 << 20, self.grid.threads_given)
                variables |= proof.environment_for(("",), self.grid.allocator(cell.allocator))
                library = self.grid.allocator(cell.allocator).library or allocators.c_library()
                words = fill(
                    self.grid.program(cell.program).command, {**cell.values(1 << 20), "port": "65535"}
                )
                sizes.append(size_of(variables, words) + len(os.fsencode(library)))
            self._largest = -(-max(sizes) // 1024) * 1024
        return self._largest

    def _proof_key(self, cell: Cell) -> tuple[str, str, str]:
        """What a proof holds for: an executable of a program under an allocator, whatever its other words."""
        executable = fill(self.grid.program(cell.program).command[:1], cell.values(0))[0]
        return cell.program, cell.allocator, executable

    def _prove(self, cell: Cell) -> proof.Proof:
        program, values = self.grid.program(cell.program), self._values(cell, 0)
        self._prepare(cell, 0)
        variables = environment(cell, 0, self.grid.threads_given)
        variables |= dict(self.grid.allocator(cell.allocator).environment)
        smoke = () if program.server else ("--smoke",)  # the suite's own clients know it
        turns: list[Turn] = []

        def client(running: launch.Running) -> None:
            turns.append(drive(running, self._plan(program, values, *smoke)))

        shown = proof.prove(
            self.grid.allocator(cell.allocator),
            fill(program.command, values),
            variables,
            timeout=None if program.server else self.options.timeout,
            cpus=cpus_for(self.options.pin, cell.threads),
            client=client if program.client else None,
        )
        if turns and turns[-1].failure is not None and program.server:
            last = turns[-1].said.last_lines() or shown.measurement.tail
            raise Error(
                f"{program.name} under {cell.allocator}: {turns[-1].failure}"
                + (f" (last words: {printable(last[-1])[:200]})" if last else "")
            )
        for metric in program.metrics if program.server and turns else ():
            if metric.pattern and turns[-1].said.last_number(compile_metric(metric.pattern)) is None:
                _no_match(metric.pattern, "the client", turns[-1].said.last_lines())
        return shown

    def _look_at(self, cell: Cell, measurement: launch.Measurement, progress: Callable[[str], None]) -> None:
        """Judges the proof run: what fails there will likely fail always, and metrics must be printed."""
        how = measurement.failure or f"exit code {measurement.exit_code}"
        ended_well = measurement.asked or measurement.exit_code == self.options.exit_code
        if measurement.failure or not ended_well:
            last = printable(measurement.tail[-1]) if measurement.tail else "it said nothing"
            progress(f"note: {cell.program} fails under {cell.allocator} ({how}): {last}")
            return
        for metric in self.grid.program(cell.program).metrics:
            if self.grid.program(cell.program).client:
                continue  # its client prints them
            if measurement.said.last_number(compile_metric(metric.pattern)) is None:
                _no_match(metric.pattern, cell.program, measurement.tail)

    def _prepare(self, cell: Cell, replicate: int) -> None:
        if self.options.prepare is None:
            return
        command = fill((self.options.prepare,), cell.values(replicate))[0]
        result = subprocess.run(command, shell=True, capture_output=True, text=True)
        if result.returncode != 0:
            last = (result.stderr or result.stdout).strip().splitlines()[-1:] or ["it said nothing"]
            raise Error(
                f"--prepare {command!r} ended with exit code {result.returncode}: {printable(last[0])}"
            )


def size_of(variables: Mapping[str, str], words: list[str]) -> int:
    """Bytes that the kernel copies above a new program's stack for these."""
    pairs = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in variables.items())
    return pairs + sum(len(os.fsencode(word)) + 1 for word in words)


def _no_match(pattern: str, who: str, lines: list[str]) -> None:
    last = lines[-1][:200] if lines else "nothing"
    raise Error(f"metric {pattern!r} matches nothing that {who} prints (last: {last!r})")


def new_header(grid: Grid, options: Record) -> Record:
    """What the results of any bench begin with: what is measured, how, and on which machine."""
    return {
        "memoir_bench": VERSION,
        "grid": grid.to_dict(),
        "options": options,
        "interleaved": True,
        "versions": {entry["name"]: entry["version"] for entry in allocators.describe(grid.allocators)},
        "machine": machine.describe(),
        "started": time.time(),
    }


def from_header(header: Record) -> Experiment:
    """The experiment that a results file began with."""
    options = dict(header["options"])
    options["counters"] = tuple(options["counters"])
    return Experiment(Grid.from_dict(header["grid"]), Options(**options))
