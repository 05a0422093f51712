# SPDX-License-Identifier: Apache-2.0
"""ONNX models: nodes in the file's order, with local functions inlined; sizes from the shapes that the file says, or that
the package onnx infers. What a graph within a node (If, Loop, Scan) reads from outside lives until that node ends.

ModelProto.graph = 7, opset_import = 8 {domain = 1, version = 2}; GraphProto.input = 11, output = 12.
"""

from __future__ import annotations

from memoir._core import Error
from memoir.importers.onnx_functions import inlined
from memoir.importers.onnx_graph import Node, constants, nodes
from memoir.importers.onnx_shapes import Shapes
from memoir.importers.problem import Imported, Lifetimes, Row
from memoir.importers.protobuf import Message

ALIGNMENT = 64


def read(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    model = inlined(data, path)
    graphs = list(model.all(7))
    if not graphs:
        raise Error(f"{path}: is not an ONNX model: it has no graph")
    if len(graphs) > 1:
        raise Error(f"{path}: has {len(graphs)} graphs, where a model has one")
    opset = max((one.integer(2) for one in model.all(8) if one.text(1) in ("", "ai.onnx")), default=0)
    steps = list(nodes(graphs[0], opset))
    shapes = Shapes(
        model, graphs[0], dims, [name for node in steps if not node.is_constant for name in node.makes]
    )
    imported = _lifetimes(graphs[0], path, steps, shapes)
    imported.notes += shapes.notes
    return imported


def _lifetimes(graph: Message, path: str, steps: list[Node], shapes: Shapes) -> Imported:
    fixed = constants(graph)
    lives = Lifetimes(path)
    known: dict[str, int] = {}

    def made(name: str) -> int:
        if name in known or name in fixed:
            raise Error(f"{path}: {name} is made twice: a tensor of an ONNX model has one origin")
        known[name] = lives.tensor(name, shapes.bytes_of(name))
        return known[name]

    def readers(names: list[str], who: str) -> list[int]:
        for name in names:
            if name not in known and name not in fixed:
                raise Error(f"{path}: {who} reads {name}, which nothing before it makes")
        return [known[name] for name in names if name in known]

    for value in graph.all(11):
        if value.text(1) not in fixed:
            lives.given(made(value.text(1)))
    holders = 0
    for node in steps:
        if node.is_constant:
            fixed |= set(node.makes)
            continue
        holders += node.graphs > 0
        inputs = readers(node.reads, f"the node {node.name}")
        outputs = [made(name) for name in node.makes]
        lives.operator(inputs, outputs)
        if node.view_of in known and outputs:
            lives.tensors[outputs[0]].storage = known[node.view_of]
    for number in readers([value.text(1) for value in graph.all(12)], "the graph's output"):
        lives.kept(number)
    imported = Imported(path)
    for number, lower, upper in lives.live():
        imported.add(
            Row(lives.tensors[number].name, lower, upper, lives.tensors[number].size or 0, ALIGNMENT)
        )
    imported.notes.append(
        f"{lives.steps:,} nodes in the order of the file; reshapes share their input's bytes"
    )
    if holders:
        imported.notes.append(
            f"{holders:,} nodes hold graphs of their own: what these read from outside lives until the node ends; "
            "what they make inside is not planned"
        )
    return imported
