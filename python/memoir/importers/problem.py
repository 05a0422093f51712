# SPDX-License-Identifier: Apache-2.0
"""What importers make: rows of buffers, and lifetimes from the order of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memoir._core import Error

MOST_BUFFERS = 1 << 22
MOST_REFERENCES = 1 << 24  # of operators to tensors: many operators may point at one long list
_MOST_SIZE = 1 << 60


@dataclass(frozen=True)
class Row:
    id: str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    gaps: str = ""


@dataclass
class Imported:
    """A problem, and what people should know of it."""

    path: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # What the framework's own planner needs, bytes, where the file says it
    peer: int | None = None
    # The file with a plan in it, from the offsets of the rows; None: the format holds none
    suffix: str | None = None
    planned: Callable[[Sequence[int]], bytes] | None = None

    def add(self, row: Row) -> None:
        if len(self.rows) == MOST_BUFFERS:
            raise Error(f"{self.path}: has more than {MOST_BUFFERS:,} buffers")
        if not 0 <= row.lower < row.upper < 1 << 62:
            raise Error(f"{self.path}: {row.id} lives in [{row.lower}, {row.upper}), which is not a lifetime")
        if not 0 <= row.size < _MOST_SIZE:
            raise Error(f"{self.path}: {row.id} has {row.size} bytes, which is not a size")
        self.rows.append(row)

    def csv(self) -> bytes:
        """As docs/reference/formats-plan.md describes it. Names that CSV cannot hold are changed, and made different."""
        used: set[str] = set()
        gaps = any(row.gaps for row in self.rows)
        lines = ["id,lower,upper,size,alignment" + (",gaps" if gaps else "")]
        for number, row in enumerate(self.rows):
            name = (
                "".join(c if c.isprintable() and c not in ' ,"' else "_" for c in row.id[:200])
                or f"b{number}"
            )
            if name in used:
                name = f"{name}#{number}"
            used.add(name)
            line = f"{name},{row.lower},{row.upper},{row.size},{row.alignment}"
            lines.append(f"{line},{row.gaps}" if gaps else line)
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


@dataclass
class Tensor:
    name: str
    size: int | None  # bytes; None: not known
    first: int | None = None  # the operator that makes it
    last: int | None = None  # the last that reads it
    storage: int | None = None  # another tensor whose bytes it has


class Lifetimes:
    """Operators in their order; a tensor lives from the one that makes it through the last that reads it."""

    def __init__(self, path: str):
        self._path = path
        self.tensors: list[Tensor] = []
        self.steps = 0
        self._references = 0

    def tensor(self, name: str, size: int | None) -> int:
        if len(self.tensors) >= MOST_BUFFERS:
            raise Error(f"{self._path}: has more than {MOST_BUFFERS:,} tensors")
        self.tensors.append(Tensor(name, size))
        return len(self.tensors) - 1

    def given(self, tensor: int) -> None:
        """There before the first operator."""
        self.tensors[tensor].first = 0
        self.tensors[tensor].last = 0

    def operator(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        step = self.steps
        self.steps += 1
        self._references += len(inputs) + len(outputs)
        if self._references > MOST_REFERENCES:
            raise Error(f"{self._path}: its operators name tensors more than {MOST_REFERENCES:,} times")
        for tensor in outputs:
            one = self.tensors[tensor]
            one.first = step if one.first is None else min(one.first, step)
            one.last = max(one.last or 0, step)
        for tensor in inputs:
            self.tensors[tensor].last = max(self.tensors[tensor].last or 0, step)

    def kept(self, tensor: int) -> None:
        """Read after the last operator."""
        self.tensors[tensor].last = max(self.steps - 1, 0)

    def root(self, tensor: int) -> int:
        way: list[int] = []
        for _ in range(len(self.tensors)):
            storage = self.tensors[tensor].storage
            if storage is None:
                for one in way:  # so that a chain of views is gone along once
                    self.tensors[one].storage = tensor
                return tensor
            way.append(tensor)
            tensor = storage
        raise Error(f"{self._path}: {self.tensors[tensor].name} is a view of itself, through other views")

    def live(self) -> list[tuple[int, int, int]]:
        """(tensor, lower, upper) of those that something makes, with the lives and the sizes of their views."""
        ends: dict[int, tuple[int, int]] = {}
        for number, tensor in enumerate(self.tensors):
            if tensor.first is None:
                continue
            root = self.root(number)
            lower, upper = ends.get(root, (tensor.first, tensor.first + 1))
            last = tensor.first if tensor.last is None else max(tensor.last, tensor.first)
            ends[root] = min(lower, tensor.first), max(upper, last + 1)
            whole = self.tensors[root]
            if whole.size is not None and tensor.size is not None:
                whole.size = max(whole.size, tensor.size)
        return [(number, *ends[number]) for number in sorted(ends) if self.tensors[number].first is not None]
