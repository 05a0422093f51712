# SPDX-License-Identifier: Apache-2.0
"""Device traces as text, one event a line, as people exchange them. `#` begins a comment.

Before the line `b`, what was there when the recording began:

    s address size                 a segment
    i id size stream [address]     a live object

After it, the history:

    a id size stream [address]     an allocation, size as asked
    f id                           a free
    S|R address size               the device gave a segment, or got it back
    M|U address size               it put memory behind addresses, or took it away (expandable segments)
    O free asked                   a request that failed

There are no times in it: events are taken to be one microsecond apart.
"""

from __future__ import annotations

from typing import NoReturn

from memoir._core import Error, EventKind, TraceWriter

ALIGNMENT = 256  # bytes: what CUDA guarantees of every allocation
STEP = 1000  # nanoseconds between two events
_SEGMENTS = {
    "s": EventKind.kSegmentAllocate,
    "S": EventKind.kSegmentAllocate,
    "R": EventKind.kSegmentFree,
    "M": EventKind.kSegmentMap,
    "U": EventKind.kSegmentUnmap,
}
_NUMBERS = {"s": (2, 2), "i": (3, 4), "b": (0, 0), "a": (3, 4), "f": (1, 1), "O": (2, 2)}
_NUMBERS |= {kind: (2, 2) for kind in "SRMU"}
_BEFORE, _ANYWHERE = "si", "b"


def is_text_trace(begin: bytes) -> bool:
    """True when a file that begins so may be one: the first line with an event is one of its kinds."""
    for line in begin.split(b"\n"):
        line = line.strip()
        if line and not line.startswith(b"#"):
            return line == b"b" or line[:2] in (b"s ", b"i ")
    return False


def import_text(path: str, device: int = 0) -> bytes:
    """The bytes of a .trace file with the same events. Raises Error, naming the line, for what cannot be."""
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Error(f"{path}: is not a text trace: it is not ASCII") from None
    writer = TraceWriter()
    writer.set_time(0)
    writer.meta("source", "text trace")
    state = _State(path, writer, device)
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            state.add(number, words)
    if not state.begun:
        raise Error(f"{path}: there is no line 'b', after which the history begins")
    writer.close()
    return writer.bytes()


class _State:
    def __init__(self, path: str, writer: TraceWriter, device: int):
        self.path, self.writer, self.device = path, writer, device
        self.begun = False
        self.streams: dict[int, int] = {}  # object, while it is live -> its stream
        self.seen: set[int] = set()
        self.time = 0

    def add(self, number: int, words: list[str]) -> None:
        kind = words[0]
        least, most = _NUMBERS.get(kind, (-1, -1))
        if most < 0:
            self.fail(number, f"no event begins with '{kind[:20]}'")
        if (kind in _BEFORE) == self.begun and kind not in _ANYWHERE:
            self.fail(number, f"'{kind}' is on the wrong side of the line 'b'")
        if not least <= len(words) - 1 <= most:
            self.fail(number, f"'{kind}' takes {least if least == most else f'{least} or {most}'} numbers")
        values = []
        for word in words[1:]:
            if not word.isdecimal() or int(word) >= 2**63:
                self.fail(number, f"'{word[:30]}' is not a number from 0 to 2^63")
            values.append(int(word))
        if self.begun:
            self.time += STEP
            self.writer.set_time(self.time)
        if kind == "b":
            if self.begun:
                self.fail(number, "a second 'b'")
            self.begun = True
        elif kind in "ai":
            self.allocate(number, *values)
        elif kind == "f":
            self.free(number, values[0])
        elif kind == "O":
            self.written(number, self.writer.out_of_memory(values[1], values[0], self.device))
        else:
            self.written(number, self.writer.segment(_SEGMENTS[kind], values[0], values[1], self.device))

    def allocate(self, number: int, name: int, size: int, stream: int, address: int = 0) -> None:
        if stream >= 2**32:
            self.fail(number, f"stream {stream} is 2^32 or more")
        if name in self.seen:
            self.fail(number, f"object {name} is allocated a second time: names are not reused")
        self.seen.add(name)
        self.streams[name] = stream
        done = self.writer.allocate(name, 0, size, ALIGNMENT, device=self.device, stream=stream)
        self.written(number, done)
        if address:
            self.written(number, self.writer.address(name, address, self.device, stream))

    def free(self, number: int, name: int) -> None:
        stream = self.streams.pop(name, None)
        if stream is None:
            self.fail(number, f"object {name} is not live")
        self.written(number, self.writer.free(name, device=self.device, stream=stream))

    def written(self, number: int, ok: bool) -> None:
        if not ok:
            self.fail(number, "a number in it is out of all bounds")

    def fail(self, number: int, what: str) -> NoReturn:
        raise Error(f"{self.path}:{number}: {what}")
