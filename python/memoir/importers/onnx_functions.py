# SPDX-License-Identifier: Apache-2.0
"""Functions that an ONNX model brings along, inlined by the package onnx, after a count of what that makes of them.

ModelProto.graph = 7, functions = 25; FunctionProto.name = 1, node = 7, domain = 10, overload = 13;
NodeProto.op_type = 4, domain = 7, overload = 8.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from memoir._core import Error
from memoir.importers.onnx_graph import graphs_of
from memoir.importers.problem import MOST_BUFFERS
from memoir.importers.protobuf import Message

_DEEPEST = 64  # calls within calls, and graphs within graphs
_Key = tuple[str, str, str]


def inlined(data: bytes, path: str) -> Message:
    """The model without calls of its own functions."""
    model = Message(data, path)
    calls = _Calls(model)
    name = calls.first()
    if name is None:
        return model
    if calls.nodes() > MOST_BUFFERS:
        raise Error(f"{path}: its functions would be more than {MOST_BUFFERS:,} nodes")
    if importlib.util.find_spec("onnx") is None:
        raise Error(f"{path}: calls its own function {name}; pip install 'memoir-alloc[onnx]' inlines it")
    onnx: Any = importlib.import_module("onnx")
    inliner: Any = importlib.import_module("onnx.inliner")
    try:
        text = inliner.inline_local_functions(onnx.load_model_from_string(data)).SerializeToString()
    except Exception as error:  # of a file from a stranger: whatever it finds is about the file
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise Error(f"{path}: onnx cannot inline its functions: {said}") from None
    whole = Message(text, path)
    left = _Calls(whole, calls.functions).first()
    if left is not None:
        raise Error(
            f"{path}: the function {left} is not inlined: its version of ONNX's operators is another than the model's"
        )
    return whole


class _Calls:
    """Who calls which function of the model."""

    def __init__(self, model: Message, functions: dict[_Key, list[Message]] | None = None):
        self.path = model.path
        if functions is None:
            functions = {(one.text(10), one.text(1), one.text(13)): list(one.all(7)) for one in model.all(25)}
        self.functions = functions
        self._main = [node for graph in model.all(7) for node in graph.all(1)]
        self._sizes: dict[_Key, int] = {}

    def first(self) -> str | None:
        """The name of a function that is called; None: none is."""
        return self._first(self._main, 0) if self.functions else None

    def _first(self, nodes: list[Message], depth: int) -> str | None:
        self._bound(depth)
        for node in nodes:
            if self._key(node) in self.functions:
                return node.text(4)
            for graph in graphs_of(node):
                found = self._first(list(graph.all(1)), depth + 1)
                if found is not None:
                    return found
        return None

    def nodes(self) -> int:
        """How many there are when all calls are inlined."""
        return self._nodes(self._main, (), 0)

    def _nodes(self, nodes: list[Message], within: tuple[_Key, ...], depth: int) -> int:
        self._bound(depth)
        count = 0
        for node in nodes:
            key = self._key(node)
            if key in within:
                raise Error(f"{self.path}: the function {key[1]} calls itself")
            if key in self.functions:
                if key not in self._sizes:
                    self._sizes[key] = self._nodes(self.functions[key], (*within, key), depth + 1)
                count += self._sizes[key]
            else:
                count += 1
            for graph in graphs_of(node):
                count += self._nodes(list(graph.all(1)), within, depth + 1)
        return count

    def _bound(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise Error(f"{self.path}: has functions or graphs within each other, more than {_DEEPEST} deep")

    @staticmethod
    def _key(node: Message) -> _Key:
        return node.text(7), node.text(4), node.text(8)
