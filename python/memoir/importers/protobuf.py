# SPDX-License-Identifier: Apache-2.0
"""The fields of a protocol buffer, read without a schema: bounded, and no message is ever made of what it names."""

from __future__ import annotations

from collections.abc import Iterator

from memoir._core import Error


class Message:
    """Bytes [begin, end) of the file."""

    def __init__(self, data: bytes, path: str, begin: int = 0, end: int | None = None):
        self.data, self.path, self.begin = data, path, begin
        self.end = len(data) if end is None else end

    def _refuse(self, at: int, what: str) -> Error:
        return Error(f"{self.path}: is cut off or is not a protocol buffer: {what} at byte {at}")

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if at >= self.end or shift > 63:
                raise self._refuse(at, "a number that does not end")
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (1 << 64) - 1, at

    def fields(self) -> Iterator[tuple[int, int | Message]]:
        """(number, value): integers as they are stored, messages, texts and packed lists as a Message."""
        at = self.begin
        while at < self.end:
            key, at = self._varint(at)
            number, kind = key >> 3, key & 7
            value: int | Message
            if number == 0:
                raise self._refuse(at, "a field without a number")
            if kind == 0:
                value, at = self._varint(at)
            elif kind == 2:
                size, at = self._varint(at)
                if size > self.end - at:
                    raise self._refuse(at, f"a field of {size} bytes, of which {self.end - at} are there,")
                value = Message(self.data, self.path, at, at + size)
                at += size
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                if size > self.end - at:
                    raise self._refuse(at, "half a number")
                value = int.from_bytes(self.data[at : at + size], "little")
                at += size
            else:
                raise self._refuse(at, f"a field of the kind {kind}")
            yield number, value

    def all(self, number: int) -> Iterator[Message]:
        """The messages of that field."""
        for found, value in self.fields():
            if found == number and isinstance(value, Message):
                yield value

    def one(self, number: int) -> Message | None:
        """The last message of that field, as protocol buffers say; None without."""
        last = None
        for last in self.all(number):  # noqa: B007
            pass
        return last

    def integer(self, number: int, default: int = 0) -> int:
        for found, value in self.fields():
            if found == number and isinstance(value, int):
                default = value
        return default

    def integers(self, number: int) -> list[int]:
        """A repeated number, packed or not, signed."""
        out = []
        for found, value in self.fields():
            if found != number:
                continue
            if isinstance(value, int):
                out.append(value)
            else:
                at = value.begin
                while at < value.end:
                    one, at = value._varint(at)
                    out.append(one)
        return [value - (1 << 64) if value >> 63 else value for value in out]

    def text(self, number: int) -> str:
        found = self.one(number)
        return "" if found is None else found.bytes().decode("utf-8", "backslashreplace")

    def bytes(self) -> bytes:
        return self.data[self.begin : self.end]
