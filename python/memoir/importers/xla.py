# SPDX-License-Identifier: Apache-2.0
"""XLA's buffer assignment: the HloProto that --xla_dump_hlo_as_proto writes (`*.hlo.pb`), of which the heap simulator's
traces say in which order the buffers of each temporary allocation are allocated and freed.

    HloProto                buffer_assignment = 3
    BufferAssignmentProto   logical_buffers = 1, buffer_allocations = 3, heap_simulator_traces = 4
    LogicalBufferProto      id = 1, size = 2, defined_at = 3 {instruction_name = 2}
    BufferAllocationProto   index = 1, size = 2
    HeapSimulatorTrace      events = 1, buffer_allocation_index = 3
    Event                   kind = 1 (0 allocate, 1 free, 2 share the bytes of another), buffer_id = 2,
                            instruction_name = 4 (jax 0.12 no longer says it in defined_at), share_with_canonical_id = 5

Whom a buffer shares with may be gone already, and may have had the bytes of a third one itself.
"""

from __future__ import annotations

import bisect

from memoir._core import Error
from memoir.importers.problem import MOST_BUFFERS, Imported, Row
from memoir.importers.protobuf import Message

ALIGNMENT = 16  # bytes, of XLA on a CPU; on a GPU 256: --alignment
_ALLOCATE, _FREE, _SHARE = 0, 1, 2


def read(data: bytes, path: str) -> Imported:
    assignment = Message(data, path).one(3)
    if assignment is None:
        raise Error(
            f"{path}: has no buffer assignment: dump after scheduling (XLA_FLAGS=--xla_dump_to=DIR "
            "--xla_dump_hlo_as_proto), and take the file *after_optimizations-buffer-assignment or *.hlo.pb"
        )
    sizes: dict[int, int] = {}
    names: dict[int, str] = {}
    for buffer in assignment.all(1):
        if len(sizes) == MOST_BUFFERS:
            raise Error(f"{path}: has more than {MOST_BUFFERS:,} buffers")
        number = buffer.integer(1)
        sizes[number] = buffer.integer(2)
        where = buffer.one(3)
        names[number] = where.text(2) if where is not None else ""
    imported = Imported(path)
    tick = traces = 0
    planned: set[int] = set()  # allocations whose inside the heap simulator laid out
    for trace in assignment.all(4):
        traces += 1
        planned.add(trace.integer(3))
        tick = _read_trace(trace, sizes, names, imported, tick)
    if traces > 1:
        imported.notes.append(
            f"{traces} heaps, one after another: each is planned as if the others were not there"
        )
    own = [one.integer(2) for one in assignment.all(3) if one.integer(1) in planned]
    if own:
        imported.peer = sum(own)
        imported.notes.append(f"XLA's own allocation for these buffers has {imported.peer:,} bytes")
    return imported


def _read_trace(
    trace: Message, sizes: dict[int, int], names: dict[int, str], imported: Imported, tick: int
) -> int:
    """Adds its buffers, with a tick for each event from `tick` on; returns the tick after the last."""
    path = imported.path
    lives: dict[int, list[tuple[int, int]]] = {}  # of each shared range of bytes
    owner: dict[int, int] = {}  # of each buffer that there was, the one whose bytes it has
    holders: dict[int, set[int]] = {}  # who has them now
    began: dict[int, int] = {}
    births: list[int] = []  # ticks at which something new needs room
    for event in trace.all(1):
        kind, buffer = event.integer(1), event.integer(2)
        if buffer not in sizes:
            raise Error(f"{path}: an event of the heap names buffer {buffer}, which is not there")
        if kind == _FREE:
            root = owner.get(buffer)
            if root is None or buffer not in holders[root]:
                raise Error(f"{path}: buffer {buffer} is freed and was not allocated")
            holders[root].remove(buffer)
            if not holders[root]:
                lives.setdefault(root, []).append((began.pop(root), tick))
        elif kind in (_ALLOCATE, _SHARE):
            if buffer in owner and buffer in holders[owner[buffer]]:
                raise Error(f"{path}: buffer {buffer} is allocated and was not freed")
            root = buffer
            names[buffer] = names[buffer] or event.text(4)
            if kind == _SHARE:
                other = event.integer(5)
                if other not in owner:
                    raise Error(
                        f"{path}: buffer {buffer} shares the bytes of {other}, which was never allocated"
                    )
                root = owner[other]
            owner[buffer] = root
            if not holders.setdefault(root, set()):
                began[root] = tick
                births.append(tick)
            holders[root].add(buffer)
        else:
            raise Error(f"{path}: an event of the heap is of the kind {kind}")
        tick += 1
    for root, start in began.items():
        lives.setdefault(root, []).append((start, tick))
    for root in sorted(lives):
        parts = [part for part in lives[root] if part[0] < part[1]]
        if not parts:
            continue
        # Whoever lives in a gap without births lives just before it too.
        gaps = " ".join(
            f"{end}-{begin}"
            for (_, end), (begin, _) in zip(parts, parts[1:], strict=False)
            if bisect.bisect(births, end) < bisect.bisect_left(births, begin)
        )
        imported.add(
            Row(names.get(root) or f"b{root}", parts[0][0], parts[-1][1], sizes[root], ALIGNMENT, gaps)
        )
    return tick + 1
