# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch programs (.pte): the tensors that were planned, and the order of the instructions that use them. The schema
is schema/program.fbs of ExecuTorch; fields and cases of unions have the numbers of their order there.

    Program         execution_plan = 1
    ExecutionPlan   name = 0, values = 2, inputs = 3, outputs = 4, chains = 5, non_const_buffer_sizes = 8
    EValue          val = 0 (its case), 1: Tensor 5, TensorList 10, OptionalTensorList 11
    Tensor          scalar_type = 0, sizes = 2, data_buffer_idx = 5, allocation_info = 6 {memory_id = 0, offset = 1, 2}
    Chain           instructions = 2; Instruction = 0 (its case), 1: KernelCall 1 and DelegateCall 2 {args = 1},
                    MoveCall 3 {from = 0, to = 1}, JumpFalseCall 4 {value = 0, destination = 1}, FreeCall 5 {value = 0}

Tensors that hold the same bytes at one time in the program's own plan are views of each other, or one was written over the
other: they are planned as one buffer. A tensor that is read before anything writes it is a view too, of what lay there last:
views have no instruction. A kernel writes its last argument, or the tensors of that list.
"""

from __future__ import annotations

from dataclasses import dataclass

from memoir._core import Error
from memoir.importers.flatbuffer import Table
from memoir.importers.problem import MOST_BUFFERS, MOST_REFERENCES, Imported, Row

ALIGNMENT = 16  # bytes, of ExecuTorch's memory planning pass
_TENSOR, _LISTS = 5, (10, 11)
_KERNEL, _DELEGATE, _MOVE, _JUMP, _FREE = 1, 2, 3, 4, 5
# Bytes of an element, by PyTorch's numbers of types.
_BYTES = {
    0: 1,
    1: 1,
    2: 2,
    3: 4,
    4: 8,
    5: 2,
    6: 4,
    7: 8,
    8: 4,
    9: 8,
    10: 16,
    11: 1,
    12: 1,
    13: 1,
    14: 4,
    15: 2,
}
_BYTES |= {16: 1, 17: 1, 22: 2, 23: 1, 24: 1, 25: 1, 26: 1, 27: 2, 28: 4, 29: 8}


@dataclass
class _Buffer:
    """Bytes of one memory and a time, of a tensor or of several that share them."""

    value: int  # of the execution plan: the first tensor's
    memory: int
    begin: int  # bytes
    end: int
    first: int = 0  # instructions
    last: int = 0
    is_view: bool = False  # of what lay there before
    is_initialized: bool = False  # from the program, before the first instruction


def read(data: bytes, path: str) -> Imported:
    methods = list(Table.root(data, path).tables(1))
    if not methods:
        raise Error(f"{path}: is a program without a method")
    method = methods[0]
    placed, unplaced = _tensors(method, path)
    uses = _Uses(method, path)
    buffers = [one for value, one in placed.items() if uses.lives(value, one)]
    imported = Imported(path)
    sizes = method.integers(8, 8)
    memories = sorted({one.memory for one in buffers})
    tick = 0
    for memory in memories:
        merged = _merged([one for one in buffers if one.memory == memory], path)
        for one in sorted(merged, key=lambda one: one.value):
            imported.add(
                Row(f"v{one.value}", tick + one.first, tick + one.last + 1, one.end - one.begin, ALIGNMENT)
            )
        tick += uses.steps + 1
    own = [sizes[memory] for memory in memories if memory < len(sizes)]
    imported.notes.append(
        f"method {method.text(0)!r}: {uses.steps:,} instructions, {len(imported.rows):,} buffers at multiples of 16"
    )
    if own and min(own) >= 0:
        imported.peer = max(own)
        imported.notes.append(
            f"ExecuTorch's own plan needs {' and '.join(f'{size:,}' for size in own)} bytes"
        )
    if len(memories) > 1:
        imported.notes.append(
            f"{len(memories)} memories, one after another: each is planned as if the others were not there"
        )
    if unplaced:
        imported.notes.append(
            f"not planned: {unplaced:,} tensors that the program has no place for, such as inputs that a caller brings"
        )
    if len(methods) > 1:
        imported.notes.append(f"not planned: {len(methods) - 1:,} more methods")
    return imported


def _tensors(method: Table, path: str) -> tuple[dict[int, _Buffer], int]:
    """Those with a place in the program's plan, by value; and how many have neither a place nor data."""
    placed: dict[int, _Buffer] = {}
    unplaced = 0
    for value, entry in enumerate(method.tables(2)):
        if value == MOST_BUFFERS:
            raise Error(f"{path}: has more than {MOST_BUFFERS:,} values")
        if entry.integer(0, 1) != _TENSOR:
            continue
        tensor = entry.table(1)
        place = tensor.table(6) if tensor is not None else None
        if tensor is None or place is None:
            unplaced += tensor is not None and tensor.integer(5, 4) == 0
            continue
        begin = place.integer(1, 4) + (place.integer(2, 4) << 32)
        size = _bytes(tensor, path)
        if begin + size >= 1 << 62:
            raise Error(f"{path}: value {value} ends at byte {begin + size}, which is not a valid place")
        placed[value] = _Buffer(
            value, place.integer(0, 4), begin, begin + size, is_initialized=tensor.integer(5, 4) != 0
        )
    return placed, unplaced


def _bytes(tensor: Table, path: str) -> int:
    kind = tensor.integer(0, 1)
    if kind not in _BYTES:
        raise Error(f"{path}: a tensor has elements of type {kind}, whose size is not known here")
    count = _BYTES[kind]
    for extent in tensor.integers(2):
        count *= extent
        if not 0 <= count < 1 << 60:
            raise Error(f"{path}: a tensor has a negative extent, or 2^60 bytes or more")
    return count


class _Uses:
    """The first and the last instruction that uses each value."""

    def __init__(self, method: Table, path: str):
        self.steps = 0
        self._path = path
        self._lists = {
            value: items
            for value, entry in enumerate(method.tables(2))
            if entry.integer(0, 1) in _LISTS and (items := entry.table(1)) is not None
        }
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._views: set[int] = set()  # read before anything writes them
        self._references = 0
        loops: list[tuple[int, int]] = []
        for value in self._items(method.integers(3)):
            self._use(value, 0)
        for chain in method.tables(5):
            begin = self.steps
            for instruction in chain.tables(2):
                case, said = instruction.integer(0, 1), instruction.table(1)
                if self.steps > MOST_REFERENCES:
                    raise Error(f"{path}: has more than {MOST_REFERENCES:,} instructions")
                if said is not None:
                    self._instruction(case, said)
                    if case == _JUMP and begin + said.integer(1, 4, signed=True) < self.steps:
                        loops.append((begin + max(0, said.integer(1, 4, signed=True)), self.steps))
                self.steps += 1
        self._read(method.integers(4), max(self.steps - 1, 0))
        # What is used in a loop may be so in every round of it. Inner loops end first.
        for begin, end in loops:
            self._count(len(self._first))
            for value in self._first:
                if self._first[value] <= end and begin <= self._last[value]:
                    self._first[value] = min(self._first[value], begin)
                    self._last[value] = max(self._last[value], end)

    def _instruction(self, case: int, said: Table) -> None:
        if case in (_KERNEL, _DELEGATE):
            values = said.integers(1)
            known = len(values) - 1
            # A delegate writes several, each an argument of its own: the last ones, which nothing has used.
            while case == _DELEGATE and known >= 0 and values[known] not in self._first:
                known -= 1
            read, written = (
                (values[:-1], values[-1:]) if case == _KERNEL else (values[: known + 1], values[known + 1 :])
            )
        elif case == _MOVE:
            read, written = [said.integer(0, 4, signed=True)], [said.integer(1, 4, signed=True)]
        else:
            read, written = ([said.integer(0, 4, signed=True)] if case in (_JUMP, _FREE) else []), []
        for value in self._items(written):
            self._use(value, self.steps)
        self._read(read, self.steps)

    def _read(self, values: list[int], step: int) -> None:
        for value in self._items(values):
            if value not in self._first:
                self._views.add(value)
            self._use(value, step)

    def _items(self, values: list[int]) -> list[int]:
        """With the tensors of lists."""
        items: list[int] = []
        for value in values:
            tensors = self._lists.get(value)
            more = [value] if tensors is None else tensors.integers(0)
            self._count(len(more))
            items += more
        return items

    def _use(self, value: int, step: int) -> None:
        self._first.setdefault(value, step)
        self._last[value] = max(self._last.get(value, step), step)

    def _count(self, references: int) -> None:
        self._references += references
        if self._references > MOST_REFERENCES:
            raise Error(f"{self._path}: its instructions name values more than {MOST_REFERENCES:,} times")

    def lives(self, value: int, buffer: _Buffer) -> bool:
        """Sets when it does. False: it has no bytes, or nothing uses it."""
        if value not in self._first or buffer.begin == buffer.end:
            return False
        buffer.first, buffer.last = self._first[value], self._last[value]
        buffer.is_view = value in self._views
        if buffer.is_initialized:
            buffer.first, buffer.last, buffer.is_view = 0, max(self.steps - 1, 0), False
        return True


def _touch(a: _Buffer, b: _Buffer) -> bool:
    return a.begin < b.end and b.begin < a.end


def _merged(buffers: list[_Buffer], path: str) -> list[_Buffer]:
    """Those that share bytes at one time as one, from a sweep over time."""
    root = list(range(len(buffers)))
    ended: list[int] = []  # by their ends

    def find(one: int) -> int:
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    def join(one: int, other: int) -> None:
        a, b = find(one), find(other)
        root[max(a, b)] = min(a, b)

    live: list[int] = []
    looked = 0
    for one in sorted(range(len(buffers)), key=lambda one: buffers[one].first):
        mine = buffers[one]
        dead = [other for other in live if buffers[other].last < mine.first]
        ended += sorted(dead, key=lambda other: buffers[other].last)
        live = [other for other in live if buffers[other].last >= mine.first]
        looked += len(live) + len(dead)
        shared = [other for other in live if _touch(buffers[other], mine)]
        for other in shared:
            join(one, other)
        if mine.is_view and not shared:
            for other in reversed(ended):
                looked += 1
                if _touch(buffers[other], mine):
                    join(one, other)
                    break
        if looked > MOST_REFERENCES:
            raise Error(f"{path}: more than {MOST_REFERENCES:,} pairs of tensors are live at one time")
        live.append(one)
    whole: dict[int, _Buffer] = {}
    for one, part in enumerate(buffers):
        into = whole.setdefault(find(one), part)
        into.begin, into.end = min(into.begin, part.begin), max(into.end, part.end)
        into.first, into.last = min(into.first, part.first), max(into.last, part.last)
    return list(whole.values())
