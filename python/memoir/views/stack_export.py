# SPDX-License-Identifier: Apache-2.0
"""Who allocated what, by whole stacks, in the formats of others: pprof's protobuf (github.com/google/pprof,
proto/profile.proto), and folded stacks for flame graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memoir._core import FrameKind, Trace, Usage
from memoir.base.quantities import printable
from memoir.views.stack_tree import StackTree

# pprof's names for a heap's values, and two of our own -> the columns of Usage.sites
VALUES = {
    ("alloc_objects", "count"): "allocations",
    ("alloc_space", "bytes"): "bytes",
    ("inuse_objects", "count"): "held",
    ("inuse_space", "bytes"): "held_bytes",
    ("unfreed_objects", "count"): "kept",
    ("unfreed_space", "bytes"): "kept_bytes",
    ("temporary_objects", "count"): "temporary",
    ("temporary_space", "bytes"): "temporary_bytes",
}
# What a line of folded stacks counts, in bytes.
FOLDED = {"peak": "held_bytes", "allocated": "bytes", "unfreed": "kept_bytes", "temporary": "temporary_bytes"}

_SPAN = 1 << 40  # modules lie so far apart in a pprof file


def name_of(frame: dict[str, Any]) -> str:
    """What a frame is called, where nothing is known by the place of its code."""
    if frame["function"] or frame["kind"] != FrameKind.kNative:
        return printable(frame["function"]) or "[unknown]"
    library = printable(frame["module"].rpartition("/")[2])
    return f"{library}+{frame['offset']:#x}" if library else f"{frame['offset']:#x}"


def folded(trace: Trace, value: str) -> Iterator[bytes]:
    """A line for each stack, outermost frame first, and what FOLDED says of it; piece by piece."""
    sites = Usage(trace).sites
    column = FOLDED[value]
    tree = StackTree()
    node_of = tree.of(trace, lambda site: [name_of(one).replace(";", ",") for one in trace.own_frames(site)])
    counts: dict[int, int] = {}
    for site, count in zip(sites["site"].tolist(), sites[column].tolist(), strict=True):
        if count:
            node = node_of(site)
            counts[node] = counts.get(node, 0) + count
    for node, count in counts.items():
        line = ";".join(tree.labels(node)) or "[unknown]"
        yield f"{line} {count}\n".encode("utf-8", "replace")


def pprof(trace: Trace) -> bytes:
    """pprof's protobuf, not compressed. What is in use is that at the peak."""
    return _Pprof(trace).write()


class _Message:
    """Fields of a protobuf message."""

    def __init__(self) -> None:
        self.content = bytearray()

    def _number(self, value: int) -> None:
        while value >= 0x80:
            self.content.append(value & 0x7F | 0x80)
            value >>= 7
        self.content.append(value)

    def number(self, field: int, value: int) -> _Message:
        if value:  # 0 is the default
            self._number(field << 3)
            self._number(value)
        return self

    def data(self, field: int, content: bytes | bytearray) -> _Message:
        self._number(field << 3 | 2)
        self._number(len(content))
        self.content += content
        return self

    def numbers(self, field: int, values: Iterable[int]) -> _Message:
        packed = _Message()
        for value in values:
            packed._number(value)
        return self.data(field, packed.content)


class _Pprof:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.out = _Message()
        self.strings: dict[str, int] = {"": 0}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[tuple[Any, ...], int] = {}
        self.tree = StackTree()
        self.node_of = self.tree.of(trace, lambda site: map(self._location, trace.own_frames(site)))
        paths = [module["path"] for module in trace.modules]
        program = trace.meta("command").split(" ")[0].rpartition("/")[2]
        paths.sort(
            key=lambda path: path.rpartition("/")[2] != program
        )  # pprof takes the first for the program
        self.modules = {path: number for number, path in enumerate(dict.fromkeys(paths), 1)}

    def write(self) -> bytes:
        trace, out = self.trace, self.out
        for type_, unit in VALUES:
            out.data(1, self._value_type(type_, unit))
        sites = Usage(trace).sites
        columns = [sites[column].tolist() for column in VALUES.values()]
        for site, *values in zip(sites["site"].tolist(), *columns, strict=True):
            sample = _Message().numbers(1, self._stack(site)).numbers(2, values)
            out.data(2, sample.content)
        build_ids = {module["path"]: module["build_id"] for module in trace.modules}
        for path, number in self.modules.items():
            mapping = _Message().number(1, number).number(2, number * _SPAN).number(3, (number + 1) * _SPAN)
            mapping.number(5, self._string(path)).number(6, self._string(build_ids.get(path) or ""))
            out.data(3, mapping.number(7, 1).content)  # pprof need not look for names
        for (name, file), number in self.functions.items():
            function = _Message().number(1, number).number(2, self._string(name))
            out.data(5, function.number(3, self._string(name)).number(4, self._string(file)).content)
        space = self._value_type("space", "bytes")
        default = self._string("inuse_space")
        for text in self.strings:
            out.data(6, text.encode("utf-8", "replace"))
        out.number(9, trace.start)
        if trace.event_count:
            out.number(10, int(trace.events["time"][-1]))
        out.data(11, space).number(12, 1).number(14, default)
        return bytes(out.content)

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def _value_type(self, type_: str, unit: str) -> bytearray:
        return _Message().number(1, self._string(type_)).number(2, self._string(unit)).content

    def _stack(self, site: int) -> list[int]:
        """The numbers of its locations, innermost first."""
        labels = self.tree.labels(self.node_of(site))
        return [self._left_out(one) if isinstance(one, str) else one for one in reversed(labels)]

    def _left_out(self, name: str) -> int:
        """A location that stands for frames that are left out."""
        frame = {
            "kind": FrameKind.kOperator,
            "function": name,
            "file": "",
            "line": 0,
            "module": "",
            "offset": 0,
        }
        return self._location(frame)

    def _location(self, frame: dict[str, Any]) -> int:
        name, module, line = name_of(frame), frame["module"], frame["line"] or 0
        key = (name, frame["file"], line, module, frame["offset"])
        number = self.locations.get(key)
        if number is not None:
            return number
        number = self.locations[key] = len(self.locations) + 1
        function = self.functions.setdefault((name, frame["file"]), len(self.functions) + 1)
        location = _Message().number(1, number)
        if module:
            mapping = self.modules.setdefault(module, len(self.modules) + 1)
            # The call, not where it returns to.
            address = mapping * _SPAN + max(min(frame["offset"], _SPAN) - 1, 0)
            location.number(2, mapping).number(3, address)
        location.data(4, _Message().number(1, function).number(2, line).content)
        self.out.data(4, location.content)
        return number
