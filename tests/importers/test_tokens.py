# SPDX-License-Identifier: Apache-2.0
"""The other importers' plans, run with operators that are digests: each writes bytes that depend on all bytes it reads. Drawn
files of TensorFlow Lite, ggml and XLA in the planned arena, with every dead byte overwritten, against the same run with
memory for each tensor. Whoever wrote the file says here who reads what: the importer is not asked."""

import dataclasses
import hashlib
import random

import numpy as np
import pytest
from arena_run import Arena
from memoir.importers import ggml, tflite, xla

from memoir import _core


def digest(name, values, size):
    """As many bytes as wanted, from all that was read."""
    said = hashlib.blake2b(name.encode() + b"".join(value.tobytes() for value in values)).digest()
    return np.resize(np.frombuffer(said, np.uint8), size)


class Run:
    """Once in the arena, once beside it."""

    def __init__(self, imported):
        self.arena, self.held = Arena(imported), {}
        self.tick = -1
        self.arena.destroy(-1)

    def write(self, name, size, reads=(), within=None):
        if (within or name) in self.arena.rows:
            self.arena.write(name, digest(name, [self._read(one) for one in reads], size), within)
        self.held[name] = digest(name, [self.held[one] for one in reads], size)

    def view(self, name, of, row):
        self.arena.write(name, self._read(of), row)
        self.held[name] = self.held[of]

    def _read(self, name):
        return self.arena.read(name) if self.arena.has(name) else self.held[name]

    def next(self):
        self.tick += 1
        self.arena.destroy(self.tick)

    def check(self, names):
        for name in names:
            assert (self._read(name) == self.held[name]).all(), f"{name} is destroyed"


# --- TensorFlow Lite ---


def tflite_model(tensors, inputs, outputs, operators):
    """`tensors`: (name, bytes, has data, is variable); `operators`: (inputs, outputs)."""
    flatbuffers = pytest.importorskip("flatbuffers")
    builder = flatbuffers.Builder(1024)

    def numbers(values):
        builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            builder.PrependInt32(value)
        return builder.EndVector()

    def offsets(values):
        builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            builder.PrependUOffsetTRelative(value)
        return builder.EndVector()

    def table(slots, fields):
        builder.StartObject(slots)
        for slot, put in fields.items():
            put(slot)
        return builder.EndObject()

    def at(value):
        return lambda slot: builder.PrependUOffsetTRelativeSlot(slot, value, 0)

    data = builder.CreateByteVector(b"1234")
    buffers = [table(3, {}), table(3, {0: at(data)})]
    made = []
    for name, size, has_data, is_variable in tensors:
        shape, text = numbers([size]), builder.CreateString(name)
        fields = {
            0: at(shape),
            1: lambda slot: builder.PrependInt8Slot(slot, 9, 0),  # int8
            2: lambda slot, has=has_data: builder.PrependUint32Slot(slot, int(has), 0),
            3: at(text),
            5: lambda slot, is_it=is_variable: builder.PrependBoolSlot(slot, is_it, False),
        }
        made.append(table(8, fields))
    steps = [
        table(9, {1: at(reads), 2: at(writes)})
        for reads, writes in [(numbers(reads), numbers(writes)) for reads, writes in operators]
    ]
    parts = offsets(made), numbers(inputs), numbers(outputs), offsets(steps)
    graph = table(5, {slot: at(part) for slot, part in enumerate(parts)})
    graphs, all_buffers = offsets([graph]), offsets(buffers)
    model = table(8, {2: at(graphs), 4: at(all_buffers)})
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def drawn_tflite(seed, steps=18):
    draw = random.Random(seed)
    tensors = [(f"in{k}", draw.randint(1, 400), False, False) for k in range(2)]
    tensors += [("weights", 4, True, False), ("state", 64, False, True)]
    made, operators = [0, 1], []
    for step in range(steps):
        reads = [draw.choice(made[-5:]) for _ in range(draw.randint(1, 3))]
        reads += draw.choice(([], [2], [3], [-1], [draw.choice(made)]))
        writes = []
        for part in range(draw.choice((1, 1, 1, 2, 3))):
            writes.append(len(tensors))
            tensors.append((f"t{step}_{part}", draw.randint(1, 400), False, False))
        operators.append((reads, writes))
        made += writes
    outputs = sorted({made[-1], *draw.sample(made, 2)})
    return tensors, [0, 1], outputs, operators


def executed(seed, change=lambda rows: None):
    tensors, inputs, outputs, operators = drawn_tflite(seed)
    imported = tflite.read(tflite_model(tensors, inputs, outputs, operators), "m.tflite")
    change(imported.rows)
    run = Run(imported)
    for index, (name, size, has_data, is_variable) in enumerate(tensors):
        if index in inputs or has_data or is_variable:
            assert (name in run.arena.rows) == (index in inputs)
            run.write(name, size)
    for reads, writes in operators:
        run.next()
        for index in writes:
            run.write(tensors[index][0], tensors[index][1], [tensors[one][0] for one in reads if one >= 0])
    run.check([tensors[index][0] for index in outputs])
    return len(imported.rows)


@pytest.mark.parametrize("seed", range(25))
def test_tensorflow_lite(seed):
    assert executed(seed) > 10


def test_a_life_that_is_a_tick_too_short_is_seen():
    tried = seen = 0
    for number in range(executed(1)):

        def shorten(rows, number=number):
            one = rows[number]
            rows[number] = dataclasses.replace(one, upper=max(one.lower + 1, one.upper - 1))

        tried += 1
        try:
            executed(1, shorten)
        except AssertionError:
            seen += 1
    assert seen > tried / 2  # of the others nothing reads what they make, or it makes no difference


def test_an_order_that_reads_before_it_writes_is_refused():
    tensors, inputs, outputs, operators = drawn_tflite(0)
    turned = tflite_model(tensors, inputs, outputs, list(reversed(operators)))
    with pytest.raises(_core.Error, match="operator 0 reads t.*, which nothing before it makes"):
        tflite.read(turned, "m.tflite")


# --- ggml ---


@pytest.mark.parametrize("seed", range(25))
def test_ggml(seed):
    """Nodes in their order; some are views, of views too. What nobody reads is kept."""
    draw = random.Random(seed)
    nodes, lines, edges = [], [], []  # nodes: (name, bytes, reads, whose view)
    for number in range(24):
        reads = draw.sample(range(number), min(number, draw.randint(1, 3))) if number else []
        is_view = bool(reads) and draw.random() < 0.3
        size = nodes[reads[0]][1] if is_view else 4 * draw.randint(1, 90)
        nodes.append((f"n{number}", size, reads, reads[0] if is_view else None))
        what = "reshape(x)" if is_view else "x+y"
        lines.append(
            f'  "0x{number + 1:x}" [ style = filled; fillcolor = white; shape = record; '
            f'label="n{number} (f32)|{number} [{size // 4}, 1] | <x>{what}"; ]'
        )
        edges += [f'  "0x{one + 1:x}" -> "0x{number + 1:x}" [ arrowhead = vee; ]' for one in reads]
    imported = ggml.read("\n".join(["digraph G {", *lines, *edges, "}"]).encode(), "g.dot")
    run, read_by, rows = Run(imported), set(), {}
    for number, (name, size, reads, of) in enumerate(nodes):
        run.next()
        rows[number] = number if of is None else rows[of]
        if of is None:
            run.write(name, size, [nodes[one][0] for one in reads])
        else:
            run.view(name, nodes[of][0], nodes[rows[number]][0])
        read_by |= set(reads)
    run.check([name for number, (name, *_) in enumerate(nodes) if number not in read_by])


# --- XLA ---


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@pytest.mark.parametrize("seed", range(25))
def test_xla(seed):
    """A heap's trace in which buffers take over the bytes of others, live and gone; each is read when it is freed."""
    draw = random.Random(seed)
    sizes, events, live, roots = {}, [], {}, {}
    for _ in range(70):
        if live and draw.random() < 0.45:
            events.append((1, one := draw.choice(sorted(live)), 0))
            del live[one]
            continue
        number = len(sizes) + 1
        sizes[number] = draw.randint(1, 300)
        others = [one for one in roots if one not in live or draw.random() < 0.3]
        if others and draw.random() < 0.3:
            other = draw.choice(others)
            sizes[number] = sizes[roots[other]]
            roots[number] = roots[other]
            if not any(
                roots[one] == roots[other] for one in live
            ):  # nobody has them: what lies there is lost
                events.append((2, number, other))
                live[number] = True
                continue
            if sum(roots[one] == roots[other] for one in live) > 1:
                del sizes[number], roots[number]
                continue
            events.append((2, number, other))
        else:
            roots[number] = number
            events.append((0, number, 0))
        live[number] = True
    buffers = b"".join(
        field(1, field(1, number) + field(2, size) + field(3, field(2, f"b{number}".encode())))
        for number, size in sizes.items()
    )
    trace = b"".join(
        field(1, field(1, kind) + field(2, one) + field(5, other)) for kind, one, other in events
    )
    run = Run(xla.read(field(1, b"") + field(3, buffers + field(4, trace + field(3, 1))), "m.pb"))
    written, now = {}, set()  # the last that wrote the bytes of each root
    for kind, one, _ in events:
        if kind == 1:
            if one in now:
                run.check([f"b{written[roots[one]]}"])
            now.discard(one)
            run.next()
            continue
        run.next()
        run.write(f"b{one}", sizes[one], within=f"b{roots[one]}")
        written[roots[one]] = one
        now.add(one)
