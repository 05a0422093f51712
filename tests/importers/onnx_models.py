# SPDX-License-Identifier: Apache-2.0
"""ONNX models drawn by a seed: chains and joins, views, several outputs, unused and left out ones, graphs within nodes that
read from outside, local functions, inputs that are outputs, dimensions that the caller sets."""

import random

import numpy as np
import onnx
from onnx import TensorProto, helper

ROWS, COLUMNS = 4, 24
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def info(name, shape=(ROWS, COLUMNS), kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


class Drawn:
    """A model of `steps` steps; `functions`, `dynamic`: as the seed says."""

    def __init__(self, seed, steps=14):
        self.random = random.Random(seed)
        self.names = 0
        self.functions = {}
        self.dims = {"batch": ROWS} if self.random.random() < 0.4 else {}
        batch = "batch" if self.dims else ROWS
        self.fixed = [helper.make_tensor("w", TensorProto.FLOAT, [COLUMNS], list(range(COLUMNS)))]
        inputs = [info("x", (batch, COLUMNS)), info("z", (batch, COLUMNS)), info("c", (), TensorProto.BOOL)]
        nodes, live = [], ["x", "z"]
        for _ in range(steps):
            nodes += self._step(live, 0)
        kept = [*self.random.sample(live, min(len(live), self.random.randint(1, 3)))]
        kept += [live[-1]] if live[-1] not in kept else []
        shape = (batch, COLUMNS) if self.random.random() < 0.5 else None
        graph = helper.make_graph(nodes, "drawn", inputs, [info(name, shape) for name in kept], self.fixed)
        # As exporters do: what comes out of a loop cannot be inferred.
        graph.value_info.extend(
            info(name, (batch, COLUMNS)) for name in live[2:] if name not in kept or shape is None
        )
        self.model = helper.make_model(
            graph, opset_imports=OPSETS, functions=list(self.functions.values()), ir_version=9
        )
        generator = np.random.default_rng(seed)
        self.feeds = {
            name: generator.standard_normal((ROWS, COLUMNS)).astype(np.float32) for name in ("x", "z")
        }
        self.feeds["c"] = np.array(self.random.random() < 0.5)

    def _new(self, stem="t"):
        self.names += 1
        return f"{stem}{self.names}"

    def _pick(self, live):
        return self.random.choice(live[-4:] if self.random.random() < 0.7 else live)

    def _step(self, live, depth):
        """Nodes whose last output is a new tensor of the common shape, and is added to `live`."""
        kinds = [self._one, self._two, self._view, self._split, self._norm, self._function]
        if depth < 2:
            kinds += [self._branch, self._loop, self._scan]
        nodes, out = self.random.choice(kinds)(live, depth)
        live.append(out)
        return nodes

    def _one(self, live, depth):
        out = self._new()
        kind = self.random.choice(("Relu", "Neg", "Sigmoid", "Tanh", "Abs"))
        return [helper.make_node(kind, [self._pick(live)], [out])], out

    def _two(self, live, depth):
        out = self._new()
        other = "w" if self.random.random() < 0.2 else self._pick(live)
        kind = self.random.choice(("Add", "Mul", "Sub", "Max"))
        return [helper.make_node(kind, [self._pick(live), other], [out])], out

    def _constant(self, values, kind=TensorProto.INT64, scalar=False):
        name = self._new("k")
        tensor = helper.make_tensor(name, kind, [] if scalar else [len(values)], values)
        return helper.make_node("Constant", [], [name], value=tensor), name

    def _view(self, live, depth):
        flat, back = self._new(), self._new()
        kind = self.random.choice(("Reshape", "Unsqueeze", "Identity", "Dropout"))
        source = self._pick(live)
        if kind == "Reshape":
            shape, name = self._constant([-1, 6])
            again, name2 = self._constant([-1, COLUMNS])
            nodes = [
                helper.make_node(kind, [source, name], [flat]),
                helper.make_node("Reshape", [flat, name2], [back]),
            ]
            return [shape, again, *nodes], back
        if kind == "Unsqueeze":
            axes, name = self._constant([0])
            return [
                axes,
                helper.make_node(kind, [source, name], [flat]),
                helper.make_node("Squeeze", [flat, name], [back]),
            ], back
        return [helper.make_node(kind, [source], [back])], back

    def _split(self, live, depth):
        """Its second part is not used at times."""
        left, right, out = self._new(), self._new(), self._new()
        parts, name = self._constant([COLUMNS // 2, COLUMNS // 2])
        pair = [left, right] if self.random.random() < 0.6 else [left, left]
        return [
            parts,
            helper.make_node("Split", [self._pick(live), name], [left, right], axis=1),
            helper.make_node("Concat", pair, [out], axis=1),
        ], out

    def _norm(self, live, depth):
        """Optional outputs, left out or unused."""
        out, mean, deviation = self._new(), self._new(), self._new()
        outputs = self.random.choice(([out], [out, mean], [out, "", deviation], [out, mean, deviation]))
        return [helper.make_node("LayerNormalization", [self._pick(live), "w"], outputs, axis=-1)], out

    def _inside(self, live, depth, inner, prefix):
        """The nodes of a graph within a node, over what is outside and `inner`."""
        own = [*live, *inner]
        nodes = []
        for _ in range(self.random.randint(1, 3)):
            nodes += self._step(own, depth + 1)
        return nodes, own[-1]

    def _branch(self, live, depth):
        out = self._new()
        graphs = []
        for side in ("then", "else"):
            nodes, last = self._inside(live, depth, [], side)
            graphs.append(helper.make_graph(nodes, side, [], [info(last, (ROWS, COLUMNS))]))
        if self.random.random() < 0.3:  # a branch that is nothing but a tensor from outside
            name = self._new()
            node = helper.make_node("Identity", [self._pick(live)], [name])
            graphs[0] = helper.make_graph([node], "then", [], [info(name, (ROWS, COLUMNS))])
        return [helper.make_node("If", ["c"], [out], then_branch=graphs[0], else_branch=graphs[1])], out

    def _loop(self, live, depth):
        out = self._new()
        count, rounds = self._constant([self.random.randint(1, 3)], scalar=True)
        begin, go = self._constant([True], TensorProto.BOOL, scalar=True)
        i, on, carried, still = (self._new("loop") for _ in range(4))
        nodes, last = self._inside(live, depth, [carried], "body")
        nodes.append(helper.make_node("Identity", [on], [still]))
        body = helper.make_graph(
            nodes,
            "body",
            [
                info(i, (), TensorProto.INT64),
                info(on, (), TensorProto.BOOL),
                info(carried, (ROWS, COLUMNS)),
            ],
            [info(still, (), TensorProto.BOOL), info(last, (ROWS, COLUMNS))],
        )
        return [count, begin, helper.make_node("Loop", [rounds, go, self._pick(live)], [out], body=body)], out

    def _scan(self, live, depth):
        out, state, row, after, total = (self._new() for _ in range(5))
        start, name = self._constant([0.5] * COLUMNS, TensorProto.FLOAT)
        nodes = [helper.make_node("Add", [row, state], [after]), helper.make_node("Tanh", [after], [total])]
        body = helper.make_graph(
            nodes, "scan", [info(state, (COLUMNS,)), info(row, (COLUMNS,))],
            [info(after, (COLUMNS,)), info(total, (COLUMNS,))],
        )  # fmt: skip
        final = self._new() if self.random.random() < 0.5 else ""
        node = helper.make_node("Scan", [name, self._pick(live)], [final, out], body=body, num_scan_inputs=1)
        return [start, node], out

    def _function(self, live, depth):
        """Of two inputs; one of them may call another."""
        which = self.random.randint(0, 2)
        if not self.functions:
            first = [
                helper.make_node("Sub", ["a", "b"], ["m"]),
                helper.make_node("Sigmoid", ["m"], ["n"]),
                helper.make_node("Mul", ["n", "a"], ["r"]),
            ]
            second = [
                helper.make_node("F0", ["b", "a"], ["p"], domain="own"),
                helper.make_node("F0", ["p", "a"], ["q"], domain="own"),
                helper.make_node("Add", ["p", "q"], ["r"]),
            ]
            third = [
                helper.make_node("Relu", ["a"], ["m"]),
                helper.make_node("F1", ["m", "b"], ["q"], domain="own"),
                helper.make_node("Add", ["q", "m"], ["r"]),
            ]
            for number, nodes in enumerate((first, second, third)):
                self.functions[number] = helper.make_function(
                    "own", f"F{number}", ["a", "b"], ["r"], nodes, OPSETS
                )
        out = self._new()
        inputs = [self._pick(live), self._pick(live)]
        return [helper.make_node(f"F{which}", inputs, [out], domain="own")], out


def light(name):
    """One of the models that the package onnx brings along, with weights that are computed."""
    folder = f"{onnx.__path__[0]}/backend/test/data/light"
    return onnx.load(f"{folder}/{name}.onnx")
