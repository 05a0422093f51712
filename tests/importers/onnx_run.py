# SPDX-License-Identifier: Apache-2.0
"""ONNX models in a planned arena, run by the reference interpreter of the package onnx, node by node."""

import numpy as np
import onnx
import onnx.inliner
from arena_run import Arena
from memoir.importers import onnx as importer
from onnx.reference import ReferenceEvaluator

from memoir import _core

LEFT_OUT = "left out: "


def outcome(model, feeds, dims=None):
    """'refused: ...' or 'planned'; AssertionError: what comes out of the arena is not what the model computes."""
    try:
        imported = importer.read(model.SerializeToString(), "m.onnx", dims or {})
    except _core.Error as error:
        assert "m.onnx" in str(error)
        return f"refused: {error}"
    want = ReferenceEvaluator(_named(model)).run(None, feeds)
    got = run(model, imported, feeds)
    for name, mine, theirs in zip([o.name for o in model.graph.output], got, want, strict=True):
        theirs = np.asarray(theirs)
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, name
        assert mine.tobytes() == theirs.tobytes(), f"{name} is destroyed"
    return "planned"


def _named(model):
    """With names for outputs that are left out: the interpreter takes the last of them for what is not given."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        for node in graph.node:
            graphs += [one.g for one in node.attribute if one.HasField("g")]
            for place, name in enumerate(node.output):
                if not name:
                    node.output[place] = f"{LEFT_OUT}{id(graph)}_{node.output[0]}_{place}"
    return model


def run(model, imported, feeds):
    model = _named(onnx.inliner.inline_local_functions(model))
    evaluator = ReferenceEvaluator(model)
    fixed = {"": None, **evaluator.rt_inits_}
    arena = Arena(imported)
    arena.destroy(-1)
    for name, value in feeds.items():
        if name not in fixed:
            arena.write(name, value)
    inside = {name: name for name in arena.rows}  # a view: whose row it lies in
    tick = 0
    for node in evaluator.rt_nodes_:
        arena.destroy(tick)
        held = {name: arena.read(name) for name in inside if arena.has(name)}
        inputs = [fixed[name] if name in fixed else held[name] for name in node.input]
        context = {"context": {**fixed, **held}} if node.need_context() else {}
        outputs = node.run(*inputs, **context)
        if node.op_type == "Constant":
            fixed[node.output[0]] = outputs[0]
            continue
        for name, value in zip(node.output, outputs, strict=False):
            if name.startswith(LEFT_OUT):
                continue
            if name not in inside:
                assert node.op_type in (
                    "Reshape",
                    "Flatten",
                    "Squeeze",
                    "Unsqueeze",
                    "Identity",
                    "Dropout",
                ), name
                inside[name] = inside[node.input[0]]
                assert np.asarray(value).tobytes() == arena.read(node.input[0]).tobytes()
            arena.write(name, value, inside[name])
        tick += 1
    arena.destroy(max(tick - 1, 0))
    return [np.asarray(fixed[o.name]) if o.name in fixed else arena.read(o.name) for o in model.graph.output]
