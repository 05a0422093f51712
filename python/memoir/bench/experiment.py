# SPDX-License-Identifier: Apache-2.0
"""An experiment: the grid, how often and how it is run, and the loop that runs it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from memoir._core import Error
from memoir.bench import allocators, launch, machine, proof
from memoir.bench.clients import Client, free_port
from memoir.bench.grid import Cell, Grid, Program, cell_of, environment, fill
from memoir.bench.journal import VERSION, Record
from memoir.bench.recording import Recording

_SERIES = re.compile(r"^memory ([0-9.]+) ([0-9]+) ([0-9]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """How the grid is run. Times in seconds."""

    replicates: int = 10
    warmup: int = 1  # unmeasured runs of every cell before the first replicate
    seed: int = 1
    pin: str | None = None  # None: not pinned; "auto": the first {threads} cores; else a list such as 0,2-3
    timeout: float | None = None
    exit_code: int = 0  # what a run must end with to count
    prepare: str | None = None  # shell command before every run, unmeasured
    until: float | None = None  # half width of the intervals that is narrow enough, as a fraction
    budget: float = 600.0  # with until: no replicate starts after this
    counters: tuple[str, ...] = ("cycles", "instructions", "dtlb_load_misses", "dtlb_store_misses")

    def __post_init__(self) -> None:
        if self.replicates < 1:
            raise Error(f"-n {self.replicates}: must be 1 or more")
        if self.warmup < 0:
            raise Error(f"--warmup {self.warmup}: must be 0 or more")
        if self.timeout is not None and self.timeout <= 0:
            raise Error(f"--timeout {self.timeout}: must be more than 0")
        if self.until is not None and not 0 < self.until < 1:
            raise Error(f"--until {self.until:.0%}: must be between 0 % and 100 %")
        cpus_for(self.pin, 1)


@dataclass
class Experiment:
    """Grid and options, checked. Everything that can be wrong before a run is found by check()."""

    grid: Grid
    options: Options = field(default_factory=Options)
    proofs: dict[tuple[str, str, str], proof.Proof] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what a reader must know; said once
    _counters: tuple[str, ...] = ()

    def header(self) -> Record:
        """The first line of the results: enough to run the rest of it."""
        return new_header(self.grid, vars(self.options) | {"counters": list(self.options.counters)})

    def check(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """Compiles patterns, finds programs, proves every allocator in every program. Raises memoir.Error."""
        for program in self.grid.programs:
            for metric in program.metrics:
                compile_metric(metric.pattern)
        cells = {self._proof_key(cell): cell for cell in reversed(self.grid.cells())}
        for executable in dict.fromkeys(executable for _, _, executable in cells):
            launch.resolve(executable)
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

    def replicate(
        self, number: int, done: frozenset[tuple[int, Cell]] = frozenset()
    ) -> Iterator[tuple[int, Cell]]:
        """(position, cell) of one replicate in its random order, without those that are done."""
        for position, cell in enumerate(self.grid.order(self.options.seed, number)):
            if (number, cell) not in done:
                yield position, cell

    def run_cell(self, cell: Cell, replicate: int, position: int = 0) -> Record:
        """Runs one cell once; returns its record. A failure is a record too."""
        program = self.grid.program(cell.program)
        self._prepare(cell, replicate)
        started = time.time()
        running, client = self._start(cell, replicate)
        try:
            said = client.wait() if client else None
        except BaseException:
            running.stop()
            raise
        finally:
            measurement = running.wait()
        return record(program, cell, replicate, position, started, measurement, said, self.options.exit_code)

    def _start(self, cell: Cell, replicate: int) -> tuple[launch.Running, Client | None]:
        program, values = self.grid.program(cell.program), cell.values(replicate)
        if program.client:
            values["port"] = str(free_port())
        variables = environment(cell, replicate, self.grid.threads_given)
        shown = self.proofs.get(self._proof_key(cell))
        preload = shown.preload if shown else ()
        variables |= proof.environment_for(preload, self.grid.allocator(cell.allocator))
        running = launch.Running(
            fill(program.command, values),
            environment=variables,
            timeout=self.options.timeout,
            cpus=cpus_for(self.options.pin, cell.threads),
            counters=self._counters,
        )
        return running, Client(fill(program.client, values), running) if program.client else None

    def _proof_key(self, cell: Cell) -> tuple[str, str, str]:
        """What a proof holds for: an executable of a program under an allocator, whatever its other words."""
        executable = fill(self.grid.program(cell.program).command[:1], cell.values(0))[0]
        return cell.program, cell.allocator, executable

    def _prove(self, cell: Cell) -> proof.Proof:
        program, values = self.grid.program(cell.program), cell.values(0)
        if program.client:
            values["port"] = str(free_port())
        self._prepare(cell, 0)
        variables = environment(cell, 0, self.grid.threads_given)
        variables |= dict(self.grid.allocator(cell.allocator).environment)
        client = None
        if program.client:
            command = fill((*program.client, "--smoke"), values)

            def client(running: launch.Running) -> Client:
                return Client(command, running)

        return proof.prove(
            self.grid.allocator(cell.allocator),
            fill(program.command, values),
            variables,
            timeout=self.options.timeout,
            cpus=cpus_for(self.options.pin, cell.threads),
            client=client,
        )

    def _look_at(self, cell: Cell, measurement: launch.Measurement, progress: Callable[[str], None]) -> None:
        """Judges the proof run: what fails there will likely fail always, and metrics must be printed."""
        how = measurement.failure or f"exit code {measurement.exit_code}"
        if measurement.failure or measurement.exit_code != self.options.exit_code:
            last = measurement.tail[-1] if measurement.tail else "it said nothing"
            progress(f"note: {cell.program} fails under {cell.allocator} ({how}): {last}")
            return
        for metric in self.grid.program(cell.program).metrics:
            if self.grid.program(cell.program).client:
                continue  # its client prints them
            if launch.read_metric(compile_metric(metric.pattern), measurement.output) is None:
                last = measurement.tail[-1] if measurement.tail else "nothing"
                raise Error(
                    f"metric {metric.pattern!r} matches nothing that {cell.program} prints (last: {last!r})"
                )

    def _prepare(self, cell: Cell, replicate: int) -> None:
        if self.options.prepare is None:
            return
        command = fill((self.options.prepare,), cell.values(replicate))[0]
        result = subprocess.run(command, shell=True, capture_output=True, text=True)
        if result.returncode != 0:
            last = (result.stderr or result.stdout).strip().splitlines()[-1:] or ["it said nothing"]
            raise Error(f"--prepare {command!r} ended with exit code {result.returncode}: {last[0]}")


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


def run_all(
    experiment: Experiment,
    recording: Recording,
    narrow_enough: Callable[[float], bool] | None = None,
    on_run: Callable[[str, Record], None] = lambda phase, row: None,
) -> None:
    """Warm-ups, then replicate by replicate; what the recording has already is not run again.

    narrow_enough decides after each replicate, once the asked number is reached, whether all intervals are
    as narrow as --until asks.
    On Ctrl-C what is done stays in the recording, and KeyboardInterrupt goes on up.
    """
    options = experiment.options
    done = frozenset((row["replicate"], cell_of(row)) for row in recording.result.rows)
    for warmup in range(options.warmup):
        for position, cell in experiment.replicate(-1 - warmup):
            on_run("warm-up", experiment.run_cell(cell, 0, position))
    began, number = time.monotonic(), 0
    while True:
        if number >= options.replicates:
            if options.until is None or narrow_enough is None or narrow_enough(options.until):
                break
            if time.monotonic() - began > options.budget:
                experiment.notes.append(
                    f"the budget of {options.budget:.0f} s ended before every interval was within "
                    f"{options.until:.1%} of its ratio"
                )
                break
        for position, cell in experiment.replicate(number, done):
            row = experiment.run_cell(cell, number, position)
            recording.add(row)
            on_run("replicate", row)
        recording.sync()
        number += 1


def record(
    program: Program,
    cell: Cell,
    replicate: int,
    position: int,
    started: float,
    measurement: launch.Measurement,
    client_said: str | None,
    exit_code: int,
) -> Record:
    """One line of the results file."""
    output = measurement.output if client_said is None else client_said
    metrics = {
        metric.name: launch.read_metric(compile_metric(metric.pattern), output) for metric in program.metrics
    }
    status = measurement.failure
    if status is None and measurement.exit_code != exit_code:
        status = f"exit code {measurement.exit_code}"
    if status is None and None in metrics.values():
        status = "no metric"
    row = {
        **cell.to_dict(),
        "replicate": replicate,
        "position": position,
        "started": round(started, 3),
        "status": status or "ok",
        **{name: value for name, value in vars(measurement).items() if name != "output"},
        "metrics": metrics,
    }
    series = [[float(t), int(live), int(resident)] for t, live, resident in _SERIES.findall(output)]
    if series:
        row["memory"] = series
    if status:
        row["tail"] = [*measurement.tail, *(client_said or "").splitlines()[-launch.TAIL_LINES :]]
    return row


def compile_metric(pattern: str) -> re.Pattern[str]:
    """Raises memoir.Error for a pattern that is none, or that captures nothing."""
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise Error(f"metric {pattern!r} is not a regular expression: {error}") from None
    if compiled.groups < 1:
        raise Error(
            f"metric {pattern!r} captures nothing: put the number in parentheses, as in 'ops: ([0-9.]+)'"
        )
    return compiled


def cpus_for(pin: str | None, threads: int) -> list[int]:
    """The cores of a run; empty: not pinned. Raises memoir.Error for what is not a core here."""
    allowed = sorted(os.sched_getaffinity(0))
    if pin is None:
        return []
    if pin == "auto":
        return allowed[:threads]
    cpus: list[int] = []
    for part in pin.split(","):
        if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise Error(f"--pin {pin}: use a list of cores such as 0,2-3, or nothing for the first ones")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        cpus.extend(range(first, last + 1))
    for cpu in cpus:
        if cpu not in allowed:
            raise Error(f"--pin {pin}: core {cpu} is not among {','.join(map(str, allowed))}")
    if not cpus:
        raise Error(f"--pin {pin}: no core named")
    return cpus
