# SPDX-License-Identifier: Apache-2.0
"""Who reads and makes what in an ONNX graph, with the names that graphs within its nodes take from outside.

GraphProto.node = 1 {input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7}, initializer = 5 {name = 8},
input = 11, output = 12, sparse_initializer = 15 {values = 1}; AttributeProto.name = 1, i = 3, g = 6, graphs = 11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memoir._core import Error
from memoir.importers.protobuf import Message

_DEEPEST = 32  # graphs within graphs
_OWN = ("", "ai.onnx")  # domains of ONNX's own operators
_VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}  # of their first input


@dataclass(frozen=True)
class Node:
    name: str  # for people
    reads: list[str]  # by its graphs too
    makes: list[str]
    view_of: str  # whose bytes its first output has; empty: its own
    is_constant: bool
    graphs: int  # that it holds


def nodes(graph: Message, opset: int) -> Iterator[Node]:
    """In the file's order. `opset`: the version of ONNX's own operators."""
    for node in graph.all(1):
        kind = node.text(4) if node.text(7) in _OWN else ""
        inputs, outputs = texts(node, 1), texts(node, 2)
        held = list(graphs_of(node))
        is_view = (kind in _VIEWS or (kind == "Dropout" and _passes(node, inputs, opset))) and outputs[
            :1
        ] != [""]
        yield Node(
            _called(node, outputs),
            [name for name in inputs if name] + [name for one in held for name in _taken(one, 1)],
            [name for name in outputs if name],
            inputs[0] if is_view and inputs else "",
            kind == "Constant",
            len(held),
        )


def graphs_of(node: Message) -> Iterator[Message]:
    for attribute in node.all(5):
        yield from attribute.all(6)
        yield from attribute.all(11)


def constants(graph: Message) -> set[str]:
    names = {tensor.text(8) for tensor in graph.all(5)}
    return names | {values.text(8) for sparse in graph.all(15) if (values := sparse.one(1)) is not None}


def texts(node: Message, field: int) -> list[str]:
    return [text.bytes().decode("utf-8", "backslashreplace") for text in node.all(field)]


def _called(node: Message, outputs: list[str]) -> str:
    return f"{node.text(4)} {node.text(3) or next(filter(None, outputs), '')}".strip()


def _passes(node: Message, inputs: list[str], opset: int) -> bool:
    """A Dropout that drops nothing: since version 12 its third input may say that it trains, before 7 an attribute."""
    if opset >= 7:
        return len(inputs) < 3 or not inputs[2]
    return any(one.text(1) == "is_test" and one.integer(3) for one in node.all(5))


def _taken(graph: Message, depth: int) -> list[str]:
    """The names that a nested graph reads and does not make before."""
    if depth > _DEEPEST:
        raise Error(f"{graph.path}: has graphs within graphs, more than {_DEEPEST} deep")
    inside = constants(graph) | {value.text(1) for value in graph.all(11)}
    outside: dict[str, None] = {}
    for node in graph.all(1):
        names = [name for name in texts(node, 1) if name]
        names += [name for one in graphs_of(node) for name in _taken(one, depth + 1)]
        outside |= dict.fromkeys(name for name in names if name not in inside)
        inside |= set(texts(node, 2))
    outside |= dict.fromkeys(value.text(1) for value in graph.all(12) if value.text(1) not in inside)
    return list(outside)
