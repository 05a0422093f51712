# SPDX-License-Identifier: Apache-2.0
"""Tables of a flatbuffer, read without a schema. Every place is checked against the file before it is read."""

from __future__ import annotations

from collections.abc import Iterator

from memoir._core import Error

MOST_NUMBERS = 1 << 16  # in one list, such as the inputs of an operator


class Table:
    """The table at byte `at`: its fields are found through its vtable."""

    def __init__(self, data: bytes, path: str, at: int):
        self.data, self.path, self.at = data, path, at
        self._vtable = at - number(data, path, at, 4, signed=True)
        self._size = number(data, path, self._vtable, 2)
        if self._size < 4 or self._vtable + self._size > len(data):
            raise Error(f"{path}: is cut off or is not a flatbuffer: a table at byte {at} has no vtable")

    @staticmethod
    def root(data: bytes, path: str) -> Table:
        return Table(data, path, number(data, path, 0, 4))

    def field(self, index: int) -> int | None:
        """Where the field lies; None: it is not there."""
        slot = 4 + 2 * index
        if slot + 2 > self._size:
            return None
        offset = number(self.data, self.path, self._vtable + slot, 2)
        return self.at + offset if offset else None

    def integer(self, index: int, size: int, default: int = 0, signed: bool = False) -> int:
        at = self.field(index)
        return default if at is None else number(self.data, self.path, at, size, signed=signed)

    def _target(self, index: int) -> int | None:
        at = self.field(index)
        return None if at is None else at + number(self.data, self.path, at, 4)

    def vector(self, index: int, size: int) -> tuple[int, int]:
        """(first byte, count) of a vector of elements of that many bytes; (0, 0) when it is not there."""
        at = self._target(index)
        if at is None:
            return 0, 0
        count = number(self.data, self.path, at, 4)
        if count * size > len(self.data) - at - 4:
            raise Error(
                f"{self.path}: is cut off or is not a flatbuffer: {count} elements at byte {at} are not there"
            )
        return at + 4, count

    def integers(self, index: int, size: int = 4) -> list[int]:
        """Of a vector of signed numbers."""
        begin, count = self.vector(index, size)
        if count > MOST_NUMBERS:
            raise Error(f"{self.path}: has a list of {count:,} numbers, where {MOST_NUMBERS:,} are the most")
        return [number(self.data, self.path, begin + size * k, size, signed=True) for k in range(count)]

    def tables(self, index: int) -> Iterator[Table]:
        begin, count = self.vector(index, 4)
        for k in range(count):
            at = begin + 4 * k
            yield Table(self.data, self.path, at + number(self.data, self.path, at, 4))

    def table(self, index: int) -> Table | None:
        at = self._target(index)
        return None if at is None else Table(self.data, self.path, at)

    def text(self, index: int) -> str:
        begin, count = self.vector(index, 1)
        return self.data[begin : begin + count].decode("utf-8", "backslashreplace")


def number(data: bytes, path: str, at: int, size: int, signed: bool = False) -> int:
    if at < 0 or at + size > len(data):
        raise Error(f"{path}: is cut off or is not a flatbuffer: there is no byte {at + size - 1}")
    return int.from_bytes(data[at : at + size], "little", signed=signed)
