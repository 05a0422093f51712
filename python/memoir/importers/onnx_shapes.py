# SPDX-License-Identifier: Apache-2.0
"""How many bytes the tensors of an ONNX graph have: from the shapes that the file says, and those that the package onnx
infers. Where both say something else, the larger size is safe.

GraphProto.input = 11, output = 12, value_info = 13 {name = 1, type = 2 {tensor_type = 1 {elem_type = 1, shape = 2},
sequence_type = 4, map_type = 5, sparse_tensor_type = 8, optional_type = 9}}; TensorShapeProto.dim = 1 {dim_value = 1,
dim_param = 2}.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from memoir._core import Error
from memoir.importers.onnx_graph import constants
from memoir.importers.protobuf import Message

_NAMED = 3  # dimensions, in an error
_CHECKED = 256 << 20  # bytes of a file whose shapes are inferred although it says all of them
# Bits of an element, by TensorProto.DataType.
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128}
_BITS |= {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}
_STRING = 8
_NOT_TENSORS = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "an optional value"}


class Shapes:
    """`wanted`: names that a size is needed of. Raises Error for open dimensions and for what has no size."""

    def __init__(self, model: Message, graph: Message, dims: dict[str, int], wanted: list[str]):
        self.notes: list[str] = []
        self._path = model.path
        self._dims = dims
        self._constants = constants(graph)
        self._odd: dict[str, str] = {}  # what has no size of bytes, and why
        self._sizes, unknown = self._read(graph)
        if unknown:
            names = sorted(unknown)
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            raise Error(
                f"{self._path}: the dimensions {', '.join(names[:_NAMED])}{more} have no value: "
                f"say --dim {names[0]}=1, and so on"
            )
        if importlib.util.find_spec("onnx") is not None:
            self._infer(model, wanted)
        missing = [name for name in wanted if name not in self._sizes and name not in self._odd]
        if missing:
            more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            how = (
                "; pip install 'memoir-alloc[onnx]' infers shapes"
                if importlib.util.find_spec("onnx") is None
                else ": they depend on what the model computes; let ONNX Runtime fold that first "
                "(docs/guides/importers.md)"
            )
            raise Error(f"{self._path}: the shape of {missing[0]}{more} is not known{how}")

    def bytes_of(self, name: str) -> int:
        if name in self._odd:
            raise Error(f"{self._path}: {name} {self._odd[name]}, which has no place in an arena")
        if name not in self._sizes:
            raise Error(f"{self._path}: the shape of {name} is not known")
        return self._sizes[name]

    def _infer(self, model: Message, wanted: list[str]) -> None:
        """Twice: what the file says of the tensors in between may be of another batch than the one that is asked for."""
        missing = any(name not in self._sizes for name in wanted)
        if not missing and model.end - model.begin > _CHECKED:
            return
        afresh = self._inferred(model, keep=False)
        unknown = any(name not in afresh and name not in self._sizes for name in wanted)
        known = self._inferred(model, keep=True) if unknown else {}
        larger = {name for name in afresh if afresh[name] > self._sizes.get(name, afresh[name])}
        if larger:
            self.notes.append(
                f"the file says smaller shapes than onnx infers, of {len(larger):,} tensors such as {min(larger)}: "
                "the larger ones are planned"
            )
        for sizes in (known, afresh):
            for name, size in sizes.items():
                self._sizes[name] = max(size, self._sizes.get(name, 0))

    def _read(self, graph: Message) -> tuple[dict[str, int], set[str]]:
        """Bytes of each tensor that the graph says a shape of, and the names of its inputs' open dimensions."""
        sizes: dict[str, int] = {}
        unknown: set[str] = set()
        for field in (11, 12, 13):
            for value in graph.all(field):
                name = value.text(1)
                kind = value.one(2)
                tensor = kind.one(1) if kind is not None else None
                if kind is not None and tensor is None:
                    odd = next((number for number, _ in kind.fields() if number in _NOT_TENSORS), None)
                    if odd is not None:
                        self._odd[name] = f"is {_NOT_TENSORS[odd]}"
                if tensor is None:
                    continue
                element = tensor.integer(1)
                if element == _STRING:
                    self._odd[name] = "has texts as elements"
                elif element and element not in _BITS:
                    self._odd[name] = f"has elements of type {element}, whose size is not known here"
                shape = tensor.one(2)
                if shape is None:
                    continue
                count = self._elements(name, shape, unknown if field == 11 else None)
                if count is not None and element in _BITS:
                    sizes[name] = max((count * _BITS[element] + 7) // 8, sizes.get(name, 0))
        return sizes, unknown

    def _elements(self, name: str, shape: Message, unknown: set[str] | None) -> int | None:
        """`unknown`: of an input, and what becomes of its open dimensions."""
        count: int | None = 1
        for place, dim in enumerate(shape.all(1)):
            extent = next(
                (given for number, given in dim.fields() if number == 1 and isinstance(given, int)), None
            )
            if extent is not None and extent >> 62:  # -1 is what some write for what is open
                extent = None
            here, parameter = f"{name}.{place}", dim.text(2)
            if unknown is not None and here in self._dims:  # what is inferred of an input is said by it
                if extent is not None and extent != self._dims[here]:
                    raise Error(
                        f"{self._path}: --dim {here}={self._dims[here]}, but that dimension is fixed: {extent}"
                    )
                extent = self._dims[here]
            if extent is None:
                extent = self._dims.get(parameter) if parameter else None
            if extent is None and unknown is not None and name not in self._constants:
                unknown.add(parameter or here)
            count = None if extent is None or count is None else min(count * extent, 1 << 62)
        return count

    def _inferred(self, model: Message, keep: bool) -> dict[str, int]:
        """`keep`: with what the file says of what is in between, as far as it fits. Nothing of the file is run."""
        onnx: Any = importlib.import_module("onnx")
        inference: Any = importlib.import_module("onnx.shape_inference")
        try:
            copy = onnx.load_model_from_string(model.bytes())
            for value in copy.graph.input:
                for place, dim in enumerate(value.type.tensor_type.shape.dim):
                    extent = self._dims.get(f"{value.name}.{place}", self._dims.get(dim.dim_param))
                    if extent is not None and dim.dim_value <= 0:
                        dim.dim_value = extent
            if not keep:
                del copy.graph.value_info[:]
                for value in copy.graph.output:
                    value.type.tensor_type.ClearField("shape")
            text = inference.infer_shapes(copy, data_prop=True).SerializeToString()
        except Exception as error:  # of a file from a stranger: whatever it finds is about the file
            if not keep:
                return {}
            said = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise Error(f"{self._path}: onnx cannot infer its shapes: {said}") from None
        graph = Message(text, self._path).one(7)
        return {} if graph is None else self._read(graph)[0]
