# SPDX-License-Identifier: Apache-2.0
"""Graphs that ggml_graph_dump_dot() wrote: nodes with their type and shape, edges from what each reads.

"0x1" [ style = filled; fillcolor = white; shape = record; label="node_0 (f16)|0 [72, 64] | <x>im2col(x)"; ]
"0x2" [ style = filled; fillcolor = pink; shape = record; label="<x>weight (q8_0)|CONST 0 [64, 64]"; ]
"""

from __future__ import annotations

import re

from memoir._core import Error
from memoir.importers.problem import Imported, Lifetimes, Row

ALIGNMENT = 32  # bytes, GGML_MEM_ALIGN and the CPU's buffers
_NODE = re.compile(
    r'\s*"([^"]{1,64})" \[ style = filled; fillcolor = [^;]{1,80}; shape = record; label="(?:<x>)?([^"]*)"; \]'
)
_EDGE = re.compile(r'\s*"([^"]{1,64})"(?::\w)? -> "([^"]{1,64})"(?::\w)? \[')
_LABEL = re.compile(
    r"(?:(.*) )?\((\w+)\)\|(CONST )?(\d{1,18}) \[(\d{1,18}(?:, *\d{1,18}){0,3})\](?: \| <x>([^|]*))?"
)
# (elements, bytes) of a block; docs of ggml: ggml-common.h
_TYPES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "i8": (1, 1),
    "i16": (1, 2),
    "i32": (1, 4),
    "i64": (1, 8),
}
_TYPES |= {
    "f64": (1, 8),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
}
_TYPES |= {"q8_1": (32, 36), "q2_K": (256, 84), "q3_K": (256, 110), "q4_K": (256, 144), "q5_K": (256, 176)}
_TYPES |= {"q6_K": (256, 210), "q8_K": (256, 292)}
_VIEWS = ("view(", "reshape(", "permute(", "transpose(")


def read(data: bytes, path: str) -> Imported:
    lives = Lifetimes(path)
    tensors: dict[str, int] = {}
    steps: list[tuple[int, str]] = []  # (its number in the graph, address)
    views: set[str] = set()
    reads: dict[str, list[str]] = {}
    deep = 0
    for number, line in enumerate(data.decode("utf-8", "backslashreplace").split("\n"), 1):
        if edge := _EDGE.match(line):
            reads.setdefault(edge[2], []).append(edge[1])
            continue
        node = _NODE.match(line)
        if node is None:
            continue
        label = _LABEL.match(node[2])
        if label is None or (label[3] is None and label[2] not in _TYPES):
            raise Error(
                f"{path}:{number}: a node says '{node[2][:60]}', which is not a type and a shape of ggml's"
            )
        if node[1] in tensors:
            raise Error(f"{path}:{number}: the node {node[1]} is there twice")
        if label[3] is not None:  # a leaf: whatever its type is, it has its memory
            tensors[node[1]] = lives.tensor(label[1] or f"leaf{label[4]}", 0)
            continue
        shape = [int(extent) for extent in label[5].split(",")]
        deep += len(shape) == 3
        name = (label[1] or "").strip()
        tensors[node[1]] = lives.tensor(
            name if name and not name.startswith("(") else f"node{label[4]}",
            _bytes(shape, label[2], path, number),
        )
        steps.append((int(label[4]), node[1]))
        # What is computed in place is a view of what it is computed from.
        if (label[6] or "").lower().startswith(_VIEWS) or name.endswith("(view)"):
            views.add(node[1])
    read_by: set[str] = set()
    for _, address in sorted(steps):
        inputs = [other for other in reads.get(address, []) if other in tensors]
        lives.operator([tensors[other] for other in inputs], [tensors[address]])
        read_by.update(inputs)
        if address in views and inputs:
            lives.tensors[tensors[address]].storage = tensors[inputs[0]]
    for _, address in steps:
        if address not in read_by:
            lives.kept(tensors[address])
    imported = Imported(path)
    for tensor, lower, upper in lives.live():
        one = lives.tensors[tensor]
        imported.add(Row(one.name, lower, upper, one.size or 0, ALIGNMENT))
    imported.notes.append(
        f"{len(steps):,} nodes of ggml's graph; leaves are not planned, views share their source's bytes"
    )
    if deep:
        imported.notes.append(
            "the file has only three dimensions of a tensor: where there is a fourth, sizes are too small"
        )
    return imported


def _bytes(shape: list[int], kind: str, path: str, line: int) -> int:
    elements, size = _TYPES[kind]
    count = 1
    for extent in shape:
        count *= extent
        if count > 1 << 60:
            raise Error(f"{path}:{line}: a tensor has 2^60 elements or more")
    return -(-count // elements) * size
