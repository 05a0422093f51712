# SPDX-License-Identifier: Apache-2.0
"""ONNX models: nodes in the file's order, sizes from the shapes that the file says, or that the package onnx infers.

ModelProto.graph = 7; GraphProto.node = 1 {input = 1, output = 2, name = 3, op_type = 4}, initializer = 5 {name = 8},
input = 11, output = 12, value_info = 13 {name = 1, type = 2 {tensor_type = 1 {elem_type = 1, shape = 2}}},
sparse_initializer = 15; TensorShapeProto.dim = 1 {dim_value = 1, dim_param = 2}.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from memoir._core import Error
from memoir.importers.problem import Imported, Lifetimes, Row
from memoir.importers.protobuf import Message

ALIGNMENT = 64
_NAMED = 3  # dimensions, in an error
# Bits of an element, by TensorProto.DataType.
_BITS = {
    1: 32,
    2: 8,
    3: 8,
    4: 16,
    5: 16,
    6: 32,
    7: 64,
    9: 8,
    10: 16,
    11: 64,
    12: 32,
    13: 64,
    14: 64,
    15: 128,
    16: 16,
}
_BITS |= {17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8}
_VIEWS = {
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Dropout",
}  # of their first input, at inference


def read(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    graph = Message(data, path).one(7)
    if graph is None:
        raise Error(f"{path}: is not an ONNX model: it has no graph")
    sizes, open_dims = _sizes(graph, dims)
    if open_dims:
        names = sorted(open_dims)
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        raise Error(
            f"{path}: the dimensions {', '.join(names[:_NAMED])}{more} have no value: say --dim {names[0]}=1, and so on"
        )
    if _missing(graph, sizes) and (inferred := _inferred(data, path, dims)) is not None:
        sizes = {**_sizes(inferred, dims)[0], **sizes}
    missing = _missing(graph, sizes)
    if missing:
        more_of = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        how = (
            "; pip install 'memoir-alloc[onnx]' infers shapes"
            if importlib.util.find_spec("onnx") is None
            else ": they depend on what the model computes; let ONNX Runtime fold that first (docs/guides/importers.md)"
        )
        raise Error(f"{path}: the shape of {missing[0]}{more_of} is not known{how}")
    return _lifetimes(graph, path, sizes)


def _name(value: Message) -> str:
    return value.text(1)


def _sizes(graph: Message, dims: dict[str, int]) -> tuple[dict[str, int], set[str]]:
    """Bytes of each tensor that the graph says a shape of, and the names of dimensions without a value."""
    sizes: dict[str, int] = {}
    unknown: set[str] = set()
    constants = _constants(graph)
    for field in (11, 12, 13):
        for value in graph.all(field):
            kind = value.one(2)
            tensor = kind.one(1) if kind is not None else None
            shape = tensor.one(2) if tensor is not None else None
            if tensor is None or shape is None:
                continue
            element = tensor.integer(1)
            count: int | None = 1
            for place, dim in enumerate(shape.all(1)):
                extent = None
                for number, given in dim.fields():
                    if number == 1 and isinstance(given, int):
                        extent = given
                parameter = dim.text(2)
                if field == 11:  # what is inferred of an input is said by it
                    here = f"{_name(value)}.{place}"
                    extent = dims.get(here, extent)
                    if extent is None or extent >> 62:  # -1 is what some write for what is open
                        extent = dims.get(parameter)
                        if extent is None and _name(value) not in constants:
                            unknown.add(parameter or here)
                elif extent is None:
                    extent = dims.get(parameter)
                count = (
                    None if extent is None or count is None or extent >> 62 else min(count * extent, 1 << 62)
                )
            if count is not None and element in _BITS:
                sizes[_name(value)] = (count * _BITS[element] + 7) // 8
    return sizes, unknown


def _constants(graph: Message) -> set[str]:
    names = {tensor.text(8) for tensor in graph.all(5)}
    names |= {values.text(8) for sparse in graph.all(15) if (values := sparse.one(1)) is not None}
    return names


def _names(node: Message, field: int) -> list[str]:
    return [text.bytes().decode("utf-8", "backslashreplace") for text in node.all(field)]


def _missing(graph: Message, sizes: dict[str, int]) -> list[str]:
    out = []
    for node in graph.all(1):
        if node.text(4) != "Constant":
            out += [name for name in _names(node, 2) if name and name not in sizes]
    return out


def _inferred(data: bytes, path: str, dims: dict[str, int]) -> Message | None:
    """The graph with the shapes that the package onnx infers; None without it."""
    if importlib.util.find_spec("onnx") is None:
        return None
    onnx: Any = importlib.import_module("onnx")
    inference: Any = importlib.import_module("onnx.shape_inference")
    try:
        model = onnx.load_model_from_string(data)
        for value in model.graph.input:
            for place, dim in enumerate(value.type.tensor_type.shape.dim):
                extent = dims.get(f"{value.name}.{place}", dims.get(dim.dim_param))
                if extent is not None:
                    dim.dim_value = extent
        text = inference.infer_shapes(model, data_prop=True).SerializeToString()
    except Exception as error:  # of a file from a stranger: whatever it finds is about the file
        raise Error(f"{path}: onnx cannot infer its shapes: {str(error).splitlines()[0][:200]}") from None
    return Message(text, path).one(7)


def _lifetimes(graph: Message, path: str, sizes: dict[str, int]) -> Imported:
    constants = _constants(graph)
    graph_lives = Lifetimes(path)
    known: dict[str, int] = {}

    def tensor(name: str) -> int:
        if name not in known:
            known[name] = graph_lives.tensor(name, sizes.get(name))
        return known[name]

    given = [_name(value) for value in graph.all(11) if _name(value) not in constants]
    for name in given:
        graph_lives.given(tensor(name))
    nested = 0
    for node in graph.all(1):
        kind = node.text(4)
        if kind == "Constant":
            constants |= set(_names(node, 2))
            continue
        nested += any(attribute.one(6) is not None for attribute in node.all(5))
        inputs = [tensor(name) for name in _names(node, 1) if name and name not in constants]
        outputs = [tensor(name) for name in _names(node, 2) if name]
        graph_lives.operator(inputs, outputs)
        if kind in _VIEWS and inputs and outputs and outputs[0] != inputs[0]:
            graph_lives.tensors[outputs[0]].storage = inputs[0]
    for value in graph.all(12):
        if _name(value) in known:
            graph_lives.kept(known[_name(value)])
    imported = Imported(path)
    for number, lower, upper in graph_lives.live():
        one = graph_lives.tensors[number]
        if one.size is None:
            raise Error(f"{path}: the shape of {one.name} is not known")
        imported.add(Row(one.name, lower, upper, one.size, ALIGNMENT))
    imported.notes.append(
        f"{graph_lives.steps:,} nodes in the order of the file; reshapes share their input's bytes"
    )
    if nested:
        imported.notes.append(f"{nested:,} nodes hold graphs of their own, whose tensors are not planned")
    return imported
