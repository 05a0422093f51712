# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite models, as TensorFlow Lite Micro plans them: operators in their order, inputs from the first on,
outputs to the last; tensors with data and variables are not planned. The plan can be written back as its offline plan.

    Model        subgraphs = 2, buffers = 4, metadata = 6        SubGraph   tensors = 0, inputs = 1, outputs = 2,
    Tensor       shape = 0, type = 1, buffer = 2, name = 3,                 operators = 3
                 is_variable = 5                                 Operator   inputs = 1, outputs = 2
    Buffer       data = 0, offset = 1, size = 2                  Metadata   name = 0, buffer = 1
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from memoir._core import Error
from memoir.importers.flatbuffer import Table, number
from memoir.importers.problem import Imported, Lifetimes, Row

ALIGNMENT = 16  # bytes, of the arena of TensorFlow Lite Micro
OFFLINE = "OfflineMemoryAllocation"
_VERSION = 0  # of the metadata
_BITS = {
    0: 32,
    1: 16,
    2: 32,
    3: 8,
    4: 64,
    6: 8,
    7: 16,
    8: 64,
    9: 8,
    10: 64,
    11: 128,
    12: 64,
    15: 32,
    16: 16,
    17: 4,
}
_BITS |= {18: 16, 19: 4}


def read(data: bytes, path: str) -> Imported:
    model = Table.root(data, path)
    subgraphs = list(model.tables(2))
    if not subgraphs:
        raise Error(f"{path}: has no subgraph")
    buffers = list(model.tables(4))
    graph = subgraphs[0]
    tensors = list(graph.tables(0))
    lives = Lifetimes(path)
    for index, tensor in enumerate(tensors):
        lives.tensor(tensor.text(3) or f"t{index}", _bytes(tensor, path))

    def named(indices: list[int]) -> list[int]:
        for index in indices:
            if index >= len(tensors) or index < -1:
                raise Error(f"{path}: an operator names tensor {index}, and there are {len(tensors)}")
        return [index for index in indices if index >= 0]

    fixed = {
        index
        for index, tensor in enumerate(tensors)
        if tensor.integer(5, 1) or _has_data(buffers, tensor.integer(2, 4), path)
    }

    def made(indices: list[int], who: str) -> list[int]:
        for index in indices:
            one = lives.tensors[index]
            if one.first is None and index not in fixed and one.size != 0:
                raise Error(f"{path}: {who} reads {one.name}, which nothing before it makes")
        return indices

    for index in named(graph.integers(1)):
        lives.given(index)
    for step, operator in enumerate(graph.tables(3)):
        lives.operator(made(named(operator.integers(1)), f"operator {step}"), named(operator.integers(2)))
    for index in made(named(graph.integers(2)), "the graph's output"):
        lives.kept(index)

    imported = Imported(path)
    planned: list[int] = []
    unknown = 0
    for index, lower, upper in lives.live():
        size = lives.tensors[index].size
        if index in fixed:
            continue
        if size is None:
            unknown += 1
            continue
        planned.append(index)
        imported.add(Row(lives.tensors[index].name, lower, upper, size, ALIGNMENT))
    imported.notes.append(
        f"{lives.steps:,} operators, {len(planned):,} of {len(tensors):,} tensors planned, at multiples of 16"
    )
    if unknown:
        imported.notes.append(f"not planned: {unknown:,} tensors whose shape is only known when it runs")
    if len(subgraphs) > 1:
        imported.notes.append(
            f"not planned: {len(subgraphs) - 1:,} more subgraphs, which the first one calls"
        )
    imported.suffix = ".tflite"
    imported.planned = lambda offsets: with_offline_plan(
        data, path, _all_offsets(len(tensors), planned, offsets)
    )
    return imported


def _bytes(tensor: Table, path: str) -> int | None:
    """None: a dimension is only known when it runs."""
    bits = _BITS.get(tensor.integer(1, 1))
    count = 1
    for extent in tensor.integers(0):
        if extent < 0:
            return None
        count *= extent
        if count > 1 << 60:
            raise Error(f"{path}: a tensor has 2^60 elements or more")
    return None if bits is None else (count * bits + 7) // 8


def _has_data(buffers: list[Table], index: int, path: str) -> bool:
    if index == 0:  # the empty one, by agreement
        return False
    if index >= len(buffers):
        raise Error(f"{path}: a tensor names buffer {index}, and there are {len(buffers)}")
    buffer = buffers[index]
    return buffer.vector(0, 1)[1] > 0 or buffer.integer(1, 8) > 1


def _all_offsets(tensors: int, planned: list[int], offsets: Sequence[int]) -> list[int]:
    """One per tensor; -1: its runtime places it."""
    out = [-1] * tensors
    for index, offset in zip(planned, offsets, strict=True):
        if int(offset) >= 1 << 31:
            raise Error("an offline plan holds offsets below 2 GiB, and this one is beyond")
        out[index] = int(offset)
    return out


def offline_plan(data: bytes, path: str) -> list[int] | None:
    """The offsets that a model has, one per tensor of its first subgraph; None: it has none."""
    model = Table.root(data, path)
    buffers = list(model.tables(4))
    for metadata in model.tables(6):
        if metadata.text(0) != OFFLINE:
            continue
        index = metadata.integer(1, 4)
        if index >= len(buffers):
            raise Error(f"{path}: its offline plan is in buffer {index}, and there are {len(buffers)}")
        begin, size = buffers[index].vector(0, 1)
        if size < 12 or size % 4:
            raise Error(f"{path}: its offline plan has {size} bytes")
        words = [number(data, path, begin + 4 * k, 4, signed=True) for k in range(size // 4)]
        if words[1] == 0:
            if not 0 <= words[2] <= len(words) - 3:
                raise Error(f"{path}: its offline plan is of {words[2]} tensors and holds {len(words) - 3}")
            return words[3 : 3 + words[2]]
    return None


def with_offline_plan(data: bytes, path: str, offsets: list[int]) -> bytes:
    """The model with that plan in its metadata; an earlier one is replaced.

    A flatbuffer points forward only, so a new root is put in front and the whole old file behind it, which it refers to:
    nothing of the old file is changed or moved against the rest.

        | new root | its vectors | the plan | ... the old file, its own root no longer used ... |
    """
    model = Table.root(data, path)
    buffers = list(model.tables(4))
    for buffer in buffers:
        if buffer.integer(1, 8) > 1:
            raise Error(
                f"{path}: keeps data outside of its tables (a model beyond 2 GiB), which cannot be moved"
            )
    kept = [metadata for metadata in model.tables(6) if metadata.text(0) != OFFLINE]
    plan = struct.pack(f"<{3 + len(offsets)}i", _VERSION, 0, len(offsets), *offsets)
    front = _Front()
    front.write(model, buffers, kept, plan)
    return front.whole() + data


class _Front:
    """What stands before the old file. Positions in the old file are behind `self._shift` bytes here."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._shift = 0

    def write(self, model: Table, buffers: list[Table], kept: list[Table], plan: bytes) -> None:
        for _ in range(2):  # how long it is decides where the old file lies, and not the other way round
            self._fill(model, buffers, kept, plan)
            self._shift = -(-len(self._out) // 16) * 16

    def whole(self) -> bytes:
        return bytes(self._out).ljust(self._shift, b"\0")

    def _fill(self, model: Table, buffers: list[Table], kept: list[Table], plan: bytes) -> None:
        self._out = out = bytearray()
        # Fields of the old root: version, operator_codes, subgraphs, description, buffers, metadata_buffer, metadata,
        # signature_defs. The root's slots are all of 4 bytes.
        fields = range(8)
        present = [index for index in fields if model.field(index) is not None or index in (4, 6)]
        out += struct.pack("<I", 0) + model.data[4:8]
        vtable = len(out)
        place = {index: 4 + 4 * k for k, index in enumerate(present)}
        out += struct.pack("<HH", 4 + 2 * len(fields), 4 + 4 * len(present))
        out += b"".join(struct.pack("<H", place.get(index, 0)) for index in fields)
        self._pad(4)
        root = len(out)
        out[0:4] = struct.pack("<I", root)
        out += struct.pack("<i", root - vtable) + bytes(4 * len(present))
        for index in present:
            at = root + place[index]
            if index == 0:
                out[at : at + 4] = struct.pack("<I", model.integer(0, 4))
            elif index not in (4, 6):
                self._point(at, self._shift + self._target(model, index))
        buffers_at = self._vector(len(buffers) + 1)
        metadata_at = self._vector(len(kept) + 1)
        self._point(root + place[4], buffers_at)
        self._point(root + place[6], metadata_at)
        for k, buffer in enumerate(buffers):
            self._point(buffers_at + 4 + 4 * k, self._shift + buffer.at)
        for k, metadata in enumerate(kept):
            self._point(metadata_at + 4 + 4 * k, self._shift + metadata.at)
        # Metadata: the name, and the index of the buffer.
        entry = self._table([("<I", 0), ("<I", len(buffers))])
        self._point(metadata_at + 4 + 4 * len(kept), entry)
        name_at = len(out)
        out += struct.pack("<I", len(OFFLINE)) + OFFLINE.encode() + b"\0"
        self._point(entry + 4, name_at)
        buffer_at = self._table([("<I", 0)])
        self._point(buffers_at + 4 + 4 * len(buffers), buffer_at)
        self._pad(16, less=4)  # its data begins at a multiple of 16
        self._point(buffer_at + 4, len(out))
        out += struct.pack("<I", len(plan)) + plan

    @staticmethod
    def _target(model: Table, index: int) -> int:
        at = model.field(index)
        assert at is not None
        target = at + number(model.data, model.path, at, 4)
        number(model.data, model.path, target, 4)  # that it is within the file
        return target

    def _pad(self, to: int, less: int = 0) -> None:
        self._out += bytes(-(len(self._out) + less) % to)

    def _vector(self, count: int) -> int:
        self._pad(4)
        at = len(self._out)
        self._out += struct.pack("<I", count) + bytes(4 * count)
        return at

    def _table(self, slots: list[tuple[str, int]]) -> int:
        """With its vtable before it; slots of 4 bytes each."""
        self._pad(4)
        vtable = len(self._out)
        self._out += struct.pack("<HH", 4 + 2 * len(slots), 4 + 4 * len(slots))
        self._out += b"".join(struct.pack("<H", 4 + 4 * k) for k in range(len(slots)))
        self._pad(4)
        at = len(self._out)
        self._out += struct.pack("<i", at - vtable)
        for form, value in slots:
            self._out += struct.pack(form, value)
        return at

    def _point(self, at: int, target: int) -> None:
        self._out[at : at + 4] = struct.pack("<I", max(target - at, 0))
