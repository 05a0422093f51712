# SPDX-License-Identifier: Apache-2.0
"""ONNX models run in the arena that was planned for them, with every dead byte overwritten: what comes out is what the
reference interpreter computes, or the model is refused in words."""

import re

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not here: pip install onnx")

import onnx
from memoir.importers import onnx as importer
from onnx import TensorProto, helper
from onnx_models import OPSETS, Drawn, info, light
from onnx_run import outcome, run

from memoir import _core

X = np.random.default_rng(1).standard_normal((4, 24)).astype(np.float32)


def model(nodes, outputs, functions=(), inputs=None, weights=(), opset=17):
    graph = helper.make_graph(
        nodes, "g", inputs or [info("c", (), TensorProto.BOOL), info("x")], outputs, list(weights)
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)


def captured():
    then = helper.make_graph([helper.make_node("Relu", ["r"], ["t2"])], "then", [], [info("t2")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e2"])], "other", [], [info("e2")])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Tanh", ["s"], ["u"]),
        helper.make_node("If", ["c"], ["a"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["a", "u"], ["y"]),
    ]
    return model(nodes, [info("y")])


@pytest.mark.parametrize("condition", [True, False])
def test_what_a_branch_reads_from_outside_lives_until_it_ends(condition):
    assert outcome(captured(), {"x": X, "c": np.array(condition)}) == "planned"
    imported = importer.read(captured().SerializeToString(), "m", {})
    assert {row.id: (row.lower, row.upper) for row in imported.rows} == {
        "c": (0, 4),
        "x": (0, 4),
        "r": (0, 4),
        "s": (1, 3),
        "u": (2, 5),
        "a": (3, 5),
        "y": (4, 5),
    }
    assert any("1 nodes hold graphs of their own" in note for note in imported.notes)


def test_an_oracle_that_forgets_them_sees_it():
    """The same plan with lives as if no node held a graph: it is destroyed."""
    imported = importer.read(captured().SerializeToString(), "m", {})
    imported.rows[:] = [
        row if row.id != "r" else type(row)("r", 0, 1, row.size, row.alignment) for row in imported.rows
    ]
    (got,) = run(captured(), imported, {"x": X, "c": np.array(True)})
    assert (got != np.maximum(X, 0) + np.tanh(1 / (1 + np.exp(-X)))).mean() > 0.9


@pytest.mark.parametrize("seed", range(10))
def test_drawn_models(seed):
    drawn = Drawn(seed)
    assert outcome(drawn.model, drawn.feeds, drawn.dims) == "planned"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1000, 1120))
def test_many_drawn_models(seed):
    drawn = Drawn(seed, steps=30)
    assert outcome(drawn.model, drawn.feeds, drawn.dims) == "planned"


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["squeezenet", "shufflenet", "inception_v1", "inception_v2", "resnet50", "densenet121", "zfnet512"],
)
def test_models_that_onnx_brings_along(name):
    network = light(f"light_{name}")
    fixed = {one.name for one in network.graph.initializer}
    (value,) = [one for one in network.graph.input if one.name not in fixed]
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    feeds = {value.name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    assert outcome(network, feeds) == "planned"


@pytest.mark.full
def test_cases_of_every_operator():
    """The cases that onnx has for each operator. What is not planned is refused with a reason that we know."""
    from onnx.backend.test.case.node import collect_testcases

    reasons = re.compile(
        r"the shape of .* is not known|is a sequence|is an optional value|has texts as elements|"
        r"in which nothing is to be planned|elements of type|is a sparse tensor|have no value"
    )
    planned, refused, not_run = 0, 0, 0
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        inputs, _ = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        try:
            onnx.reference.ReferenceEvaluator(case.model).run(None, dict(zip(names, inputs, strict=True)))
        except Exception:  # the interpreter has not everything
            not_run += 1
            continue
        bits = {
            value.type.tensor_type.elem_type for value in (*case.model.graph.input, *case.model.graph.output)
        }
        if bits & {21, 22, 23, 25, 26, 27, 28} or "random" in case.name or "bernoulli" in case.name:
            not_run += 1
            continue
        said = outcome(case.model, dict(zip(names, inputs, strict=True)))
        if said == "planned":
            planned += 1
        else:
            refused += 1
            assert reasons.search(said), (case.name, said)
    assert planned > 700 and refused < 400, (planned, refused, not_run)


def two_steps(*names):
    return [helper.make_node("Relu", [a], [b]) for a, b in zip(names, names[1:], strict=False)]


def test_optional_and_unused_outputs_and_inputs_that_are_outputs():
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [24], [1.0] * 24)]
    nodes = [
        helper.make_node("LayerNormalization", ["x", "w"], ["n", "", "deviation"], axis=-1),
        helper.make_node("Clip", ["n", "", ""], ["k"]),
        helper.make_node("Identity", ["x"], ["same"]),
        *two_steps("k", "p", "q"),
    ]
    said = model(nodes, [info("q"), info("x"), info("same"), info("w", (24,))], weights=weights)
    assert outcome(said, {"x": X, "c": np.array(True)}) == "planned"


def test_a_dropout_that_drops_is_no_view():
    weights = [
        helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("train", TensorProto.BOOL, [], [True]),
    ]
    nodes = [helper.make_node("Dropout", ["x", "ratio", "train"], ["y"], seed=3), *two_steps("x", "z")]
    imported = importer.read(
        model(nodes, [info("y"), info("z")], weights=weights).SerializeToString(), "m", {}
    )
    assert {row.id for row in imported.rows} >= {"x", "y", "z"}
    passing = [helper.make_node("Dropout", ["x"], ["y"]), *two_steps("y", "z")]
    imported = importer.read(model(passing, [info("z")]).SerializeToString(), "m", {})
    assert {row.id for row in imported.rows} == {"c", "x", "z"}
    other = [helper.make_node("Identity", ["x"], ["y"], domain="own"), *two_steps("y", "z")]
    imported = importer.read(model(other, [info("z"), info("y")]).SerializeToString(), "m", {})
    assert {row.id for row in imported.rows} == {"c", "x", "y", "z"}


def test_shapes_that_are_too_small_are_not_believed():
    stale = helper.make_graph(two_steps("x", "y", "z"), "g", [info("x", ("batch", 24))], [info("z", (1, 24))])
    stale.value_info.append(info("y", (1, 24)))
    whole = helper.make_model(stale, opset_imports=OPSETS, ir_version=9)
    imported = importer.read(whole.SerializeToString(), "m", {"batch": 4})
    assert {row.id: row.size for row in imported.rows} == {"x": 384, "y": 384, "z": 384}
    assert any("of 2 tensors such as y" in note for note in imported.notes)


def test_weights_in_other_files(tmp_path):
    weight = np.arange(24, dtype=np.float32)
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), *two_steps("s", "t", "y")]
    said = model(nodes, [info("y")], weights=[onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(said, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").rename(tmp_path / "away")
    imported = importer.read((tmp_path / "m.onnx").read_bytes(), "m.onnx", {})
    inline = model(nodes, [info("y")], weights=[onnx.numpy_helper.from_array(weight, "w")])
    (got,) = run(inline, imported, {"x": X, "c": np.array(True)})
    assert (got == np.maximum(X + weight, 0)).all()


def function(name, nodes, opset=17):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["r"], nodes, imports)


def calls(*names):
    return [
        helper.make_node(name, ["a" if k == 0 else f"v{k - 1}"], ["r" if k == len(names) - 1 else f"v{k}"],
                         domain="own" if name[0] == "F" else "")
        for k, name in enumerate(names)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (model(list(reversed(two_steps("x", "y", "z"))), [info("z")]), "reads y, which nothing before it makes"),
        (model(two_steps("x", "y"), [info("z")]), "output reads z, which nothing before it makes"),
        (model(two_steps("x", "y", "x"), [info("y")]), "x is made twice"),
        (model([*two_steps("x", "y"), *two_steps("x", "y")], [info("y")]), "y is made twice"),
        (
            model(
                [helper.make_node("If", ["c"], ["y"],
                                  then_branch=helper.make_graph(two_steps("late", "p"), "t", [], [info("p")]),
                                  else_branch=helper.make_graph(two_steps("x", "q"), "e", [], [info("q")])),
                 *two_steps("x", "late")],
                [info("y"), info("late")],
            ),
            "reads late, which nothing before it makes",
        ),
        (
            model([helper.make_node("F0", ["x"], ["y"], domain="own")], [info("y")],
                  [function("F0", calls("F1", "Relu")), function("F1", calls("F0", "Neg"))]),
            "the function F0 calls itself",
        ),
        (
            model([helper.make_node("F0", ["x"], ["y"], domain="own")], [info("y")],
                  [function(f"F{k}", calls(*[f"F{k + 1}" if k < 29 else "Relu"] * 4)) for k in range(30)]),
            "its functions would be more than 4,194,304 nodes",
        ),
        (
            model([helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("SequenceLength", ["s"], ["n"])],
                  [info("n", (), TensorProto.INT64)]),
            "s is a sequence, which has no place in an arena",
        ),
    ],
)  # fmt: skip
def test_what_is_no_order_or_cannot_be_said_is_refused(said, message):
    with pytest.raises(_core.Error, match=re.escape(message)):
        importer.read(said.SerializeToString(), "m.onnx", {})


def test_a_fixed_dimension_cannot_be_said_otherwise():
    with pytest.raises(_core.Error, match=r"--dim x.0=8, but that dimension is fixed: 4"):
        importer.read(captured().SerializeToString(), "m.onnx", {"x.0": 8})


def test_nested_graphs_have_a_depth():
    def field(number, content):  # of a protocol buffer
        size = b""
        count = len(content)
        while count > 127:
            size, count = size + bytes([count & 127 | 128]), count >> 7
        return bytes([number << 3 | 2]) + size + bytes([count]) + content

    graph = b""
    for _ in range(40):
        graph = field(1, field(2, b"y") + field(4, b"If") + field(5, field(6, graph)))
    with pytest.raises(_core.Error, match="has graphs within graphs, more than 32 deep"):
        importer.read(field(7, graph), "m.onnx", {})
