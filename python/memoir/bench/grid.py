# SPDX-License-Identifier: Apache-2.0
"""The grid: programs x allocators x threads x load x further axes, and the order of its runs."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

from memoir._core import Error
from memoir.base.files import Record
from memoir.bench import expressions
from memoir.bench.process import allocators
from memoir.bench.process.allocators import Allocator

T = TypeVar("T")
Group = tuple[str, int, int, tuple[tuple[str, str], ...]]  # program, threads, load, parameters
Block = tuple[int, int]  # session, replicate

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|\{=([^{}]+)\}")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")  # in an expression, and not of a function
_AXIS = re.compile(r"[a-z_][a-z0-9_]*")
_OWN = ("threads", "load", "work", "allocator", "replicate")
# What every row has by itself: a metric of such a name would be two things.
_TAKEN = frozenset(
    (
        "wall",
        "cpu",
        "user",
        "system",
        "time",
        "memory",
        "peak_rss",
        "largest_rss",
        "minor_faults",
        "major_faults",
    )
    + ("voluntary_switches", "involuntary_switches", "processes", "leftover", "exit_code", "signal", "status")
    + ("program", "malloc", "threads", "work", "load", "replicate", "session", "page_faults", "cycles")
    + ("instructions", "dtlb_load_misses", "dtlb_store_misses", "aggregate_throughput", "marginal_throughput")
)
_SERVER = ("server", "ready", "stop", "histogram", "settle")  # fields of a Program that most lack
_TAKEN_STARTS = ("rss_", "pss_", "huge_", "lazy_", "swap_", "param_")
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}  # metrics that a histogram file gives


@dataclass(frozen=True)
class Metric:
    """A number that the program prints: the last match of the pattern's first group.

    An empty pattern is of a number that comes from the program's histogram file."""

    name: str
    pattern: str
    higher_is_better: bool = True

    @classmethod
    def from_dict(cls, entry: Record) -> Metric:
        """Without what another version may have added."""
        return cls(**{one.name: entry[one.name] for one in fields(cls) if one.name in entry})


@dataclass(frozen=True)
class Program:
    """One command to measure, as a template. A client, if any, drives it from outside and is not measured.

    server: the command goes on until it is stopped; its time is the client's.
    """

    name: str
    command: tuple[str, ...]
    client: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    server: bool = False
    ready: tuple[str, ...] = ()  # succeeds once the server can be used; empty: its port is tried
    stop: tuple[str, ...] = ()  # ends the server; empty: SIGTERM
    histogram: str = ""  # a file of latencies that the client writes
    settle: float = 0.0  # seconds that a server is left in peace before it is stopped

    @property
    def words(self) -> tuple[str, ...]:
        """Everything in which placeholders are filled in."""
        return (*self.command, *self.client, *self.ready, *self.stop, self.histogram)


@dataclass(frozen=True)
class Cell:
    """One point of the grid: what is held fixed over its replicates."""

    program: str
    allocator: str
    threads: int
    load: int
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def work(self) -> int:
        return self.threads * self.load

    @property
    def group(self) -> Group:
        """The cells that are compared with each other: equal in all but the allocator."""
        return (self.program, self.threads, self.load, self.parameters)

    def to_dict(self) -> Record:
        """What every record of this cell begins with; cell_of() is the inverse."""
        return {
            "program": self.program,
            "allocator": self.allocator,
            "threads": self.threads,
            "load": self.load,
            "work": self.work,
            "parameters": dict(self.parameters),
        }

    def values(self, replicate: int) -> dict[str, str]:
        """What the placeholders of a command stand for."""
        return {
            "threads": str(self.threads),
            "load": str(self.load),
            "work": str(self.work),
            "allocator": self.allocator,
            "replicate": str(replicate),
            **dict(self.parameters),
        }


@dataclass(frozen=True)
class Grid:
    """All cells. Raises memoir.Error at once when an axis is empty, repeated or cannot be."""

    programs: tuple[Program, ...]
    allocators: tuple[Allocator, ...]
    threads: tuple[int, ...] = (1,)
    loads: tuple[int, ...] = (1,)
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    threads_given: bool = True  # False: the program's own default of OMP_NUM_THREADS is left alone
    extra_placeholders: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for what, entries in (("programs", self.programs), ("allocators", self.allocators)):
            if not entries:
                raise Error(f"there are no {what} to measure")
        for name, counts in (("threads", self.threads), ("load", self.loads)):
            if any(count < 1 for count in counts):
                raise Error(f"--{name} {min(counts)}: must be 1 or more")
        axes: dict[str, Sequence[object]] = {
            "threads": self.threads,
            "load": self.loads,
            **dict(self.parameters),
        }
        for name, values in axes.items():
            if not values:
                raise Error(f"axis {name} has no values")
            if len(set(values)) != len(values):
                raise Error(f"axis {name} names a value twice: {','.join(map(str, values))}")
        given = Counter(name for name, _ in self.parameters)
        for name in given:
            if given[name] > 1:
                raise Error(f"--param {name} is given twice: write all its values in one, as in {name}=A,B,C")
            if not _AXIS.fullmatch(name):
                raise Error(f"--param {name}: use small letters, digits and _ for the name")
            if name in _OWN:
                raise Error(f"--param {name}: this name has a meaning already; choose another")
        known = {*_OWN, *given, *self.extra_placeholders}
        for program in self.programs:
            _check_metrics(program.metrics)
            for name in placeholders(program.words):
                if name not in known:
                    raise Error(
                        f"no axis fills {{{name}}} in the command: add --param {name}=A,B, "
                        f"or write {{{{{name}}}}} for the braces themselves"
                    )

    def cells(self) -> list[Cell]:
        names = [name for name, _ in self.parameters]
        return [
            Cell(program.name, allocator.name, threads, load, tuple(zip(names, values, strict=True)))
            for program in self.programs
            for values in itertools.product(*(values for _, values in self.parameters))
            for threads in self.threads
            for load in self.loads
            for allocator in self.allocators
        ]

    def order(self, seed: int, replicate: int, session: int = 0) -> list[Cell]:
        """All cells once, in an order that depends on nothing but its arguments.

        Groups come in random order; the allocators of a group follow each other directly, so that what disturbs the
        machine for longer than a few runs falls on all of them. Their own orders are the rows of a balanced square
        (Williams 1949): in as many replicates as there are allocators (twice as many, if that number is odd), each
        stands in each place equally often, and comes after each other one equally often. Which is which, and the order
        of the rows, is drawn again for each such round.
        """
        by_group: dict[Group, list[Cell]] = {}
        for cell in self.cells():
            by_group.setdefault(cell.group, []).append(cell)
        order = []
        for number, group in shuffled(list(enumerate(by_group.values())), f"{seed}:{session}:{replicate}"):
            rows = balanced_square(len(group))
            round_, row = divmod(replicate, len(rows))
            label = f"{seed}:{session}:{number}:{round_}"
            members = shuffled(group, f"{label}:members")
            order += [members[index] for index in shuffled(rows, f"{label}:rows")[row]]
        return order

    def program(self, name: str) -> Program:
        return self._programs[name]

    def allocator(self, name: str) -> Allocator:
        return self._allocators[name]

    @functools.cached_property
    def _programs(self) -> dict[str, Program]:
        return {program.name: program for program in reversed(self.programs)}

    @functools.cached_property
    def _allocators(self) -> dict[str, Allocator]:
        return {allocator.name: allocator for allocator in reversed(self.allocators)}

    def to_dict(self) -> Record:
        """What a header keeps of it; from_dict() is the inverse."""
        return {
            "programs": [
                {
                    "name": program.name,
                    "command": list(program.command),
                    "client": list(program.client),
                    "metrics": [vars(metric) for metric in program.metrics],
                    **{name: getattr(program, name) for name in _SERVER if getattr(program, name)},
                }
                for program in self.programs
            ],
            "allocators": [allocator.to_dict() for allocator in self.allocators],
            "threads": list(self.threads),
            "loads": list(self.loads),
            "parameters": [[name, list(values)] for name, values in self.parameters],
            "threads_given": self.threads_given,
            "extra_placeholders": list(self.extra_placeholders),
        }

    @classmethod
    def from_dict(cls, entry: Record) -> Grid:
        """Raises KeyError, TypeError, ValueError or Error when something is missing."""
        for program in entry["programs"]:
            if not program["command"]:
                raise Error(f"program {program['name']!r} has no command")
        return cls(
            programs=tuple(
                Program(
                    program["name"],
                    tuple(program["command"]),
                    tuple(program["client"]),
                    tuple(map(Metric.from_dict, program["metrics"])),
                    bool(program.get("server", False)),
                    tuple(program.get("ready", ())),
                    tuple(program.get("stop", ())),
                    str(program.get("histogram", "")),
                    float(program.get("settle", 0.0)),
                )
                for program in entry["programs"]
            ),
            allocators=tuple(map(allocators.from_dict, entry["allocators"])),
            threads=tuple(entry["threads"]),
            loads=tuple(entry["loads"]),
            parameters=tuple((name, tuple(values)) for name, values in entry["parameters"]),
            threads_given=entry["threads_given"],
            extra_placeholders=tuple(entry["extra_placeholders"]),
        )


def cell_of(record: Record) -> Cell:
    """The cell that a record of a journal belongs to."""
    parameters = tuple(record["parameters"].items())
    return Cell(record["program"], record["allocator"], record["threads"], record["load"], parameters)


def block_of(row: Record) -> Block:
    """What runs must share to be paired: their replicate, and the session of cells that stay alive."""
    return row.get("session", 0), row["replicate"]


def shuffled(entries: Sequence[T], label: str) -> list[T]:
    """The entries in an order that depends on nothing but their number and the label."""
    order = list(entries)
    random.Random(label).shuffle(order)
    return order


def balanced_square(size: int) -> list[tuple[int, ...]]:
    """Rows in which every number stands in every place, and follows every other one, equally often."""
    first = [0]
    for step in range(1, size):
        first.append((first[-1] + (step if step % 2 else -step)) % size)
    rows = [tuple((number + shift) % size for number in first) for shift in range(size)]
    return rows if size % 2 == 0 else rows + [row[::-1] for row in rows]


def placeholders(command: Sequence[str]) -> list[str]:
    """The names between braces in a command, and in its expressions; doubled braces stand for themselves."""
    found: list[str] = []
    for part in command:
        for match in _PLACEHOLDER.finditer(part):
            found += [match.group(1)] if match.group(1) else []
            found += sorted(expressions.names(match.group(2))) if match.group(2) else []
    return list(dict.fromkeys(found))


def fill(command: Sequence[str], values: Mapping[str, str], later: Collection[str] = ()) -> list[str]:
    """The command with every placeholder replaced and every expression worked out. later: names that stay as they are,
    and with them the expressions that use one, with the values of the others in them. Raises memoir.Error for a name
    that has no value."""

    def replace(match: re.Match[str]) -> str:
        name, expression = match.groups()
        if name is not None:
            if name in later:
                return match.group()
            if name not in values:
                raise Error(f"nothing fills {{{name}}} in the command")
            return values[name]
        if expression is None:
            return match.group()[0]
        if expressions.names(expression).isdisjoint(later):
            return expressions.evaluate(expression, values)
        known = {name: value for name, value in values.items() if name not in later}
        return f"{{={_NAME.sub(lambda found: known.get(found[0], found[0]), expression)}}}"

    return [_PLACEHOLDER.sub(replace, part) for part in command]


def _check_metrics(metrics: Sequence[Metric]) -> None:
    names = Counter(metric.name for metric in metrics)
    for name in names:
        if names[name] > 1:
            raise Error(
                f"two metrics are called {name!r}: give each a name of its own, as in '(?P<ops>[0-9.]+) ops'"
            )
        if name.lower() in _TAKEN or name.startswith(_TAKEN_STARTS):
            raise Error(f"metric {name!r}: every run has a quantity of this name; choose another")


def environment(cell: Cell, replicate: int, threads_given: bool) -> dict[str, str]:
    """What every run finds in its environment: the same values as the placeholders."""
    variables = {f"MEMOIR_{name.upper()}": value for name, value in cell.values(replicate).items()}
    if threads_given:
        variables["OMP_NUM_THREADS"] = str(cell.threads)
    return variables
