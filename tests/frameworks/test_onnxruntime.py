# SPDX-License-Identifier: Apache-2.0
"""memoir.onnxruntime, in ONNX Runtime: outputs, what follows a plan, what goes wrong."""

import subprocess
import sys
import threading
import warnings

import memoir.frameworks.plug
import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not here: pip install onnxruntime")
pytest.importorskip("onnx", reason="the models are made with onnx: pip install onnx")

import memoir.onnxruntime  # noqa: E402


def save(path, nodes, weights, inputs, outputs):
    from onnx import helper, numpy_helper
    from onnx import save as write

    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        [helper.make_node(kind, ins, outs, **attributes) for kind, ins, outs, attributes in nodes],
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        tensors,
    )
    write(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """Each layer reads all that came before it."""
    random = np.random.default_rng(0)
    nodes, weights, width, x = [], {}, 3, "x"
    for layer in range(6):
        weights[f"w{layer}"] = random.normal(0, 0.2, (8, width, 3, 3)).astype(np.float32)
        nodes.append(("Conv", [x, f"w{layer}"], [f"c{layer}"], {"pads": [1] * 4}))
        nodes.append(("Relu", [f"c{layer}"], [f"r{layer}"], {}))
        nodes.append(("Concat", [x, f"r{layer}"], [f"x{layer}"], {"axis": 1}))
        x, width = f"x{layer}", width + 8
    nodes.append(("GlobalAveragePool", [x], ["y"], {}))
    nodes.append(("Softmax", [x], ["z"], {"axis": 1}))
    path = tmp_path_factory.mktemp("onnx") / "dense.onnx"
    return save(path, nodes, weights, [("x", 1, ["n", 3, "h", "w"])], [("y", 1), ("z", 1)])


def image(height, width, seed=0):
    return np.random.default_rng(seed).normal(size=(1, 3, height, width)).astype(np.float32)


SHAPES = [(16, 16)] * 3 + [(24, 16), (16, 40), (24, 40), (32, 48), (17, 33), (24, 40), (16, 16)]


def since(session, before):
    return {name: value - before[name] for name, value in session.stats().items()}


def test_outputs_are_those_of_onnx_runtime_alone_whatever_the_shape(dense):
    ours = memoir.onnxruntime.Session(dense, threads=1)
    others = [
        memoir.onnxruntime.Session(dense, memory=way, threads=1) for way in ("arena", "no pattern", "malloc")
    ]
    assert ours.inputs == ["x"] and ours.outputs == ["y", "z"] and others[0].stats() == {}
    before = ours.stats()
    kept = []
    for number, shape in enumerate(SHAPES):
        x = image(*shape, seed=number)
        outputs = ours.run({"x": x})
        kept.append((x, outputs))
        for other in others:
            assert all(map(np.array_equal, outputs, other.run({"x": x})))
    for x, outputs in kept:  # what came out is the caller's: no later run wrote there
        assert all(map(np.array_equal, outputs, others[0].run({"x": x})))
    stats = since(ours, before)
    assert stats["runs"] == len(SHAPES) and stats["recorded"] < stats["followed"]
    assert stats["derived"] >= 2  # of shapes that were never recorded
    assert stats["planned"] > 4 * stats["fallen_back"]


def test_a_run_that_fails_leaves_the_session_as_it_was(dense):
    session = memoir.onnxruntime.Session(dense, threads=1)
    expected = session.run({"x": image(8, 8)})
    for _ in range(3):
        with pytest.raises(memoir.Error, match="invalid dimensions"):
            session.run({"x": np.zeros((1, 5, 8, 8), np.float32)})
        assert all(map(np.array_equal, expected, session.run({"x": image(8, 8)})))


def test_what_is_no_input_of_the_model_is_refused_in_words(dense, tmp_path):
    session = memoir.onnxruntime.Session(dense, threads=1)
    with pytest.raises(memoir.Error, match="input x is missing"):
        session.run({})
    with pytest.raises(memoir.Error, match="is of complex64"):
        session.run({"x": np.zeros((1, 3, 4, 4), np.complex64)})
    with pytest.raises(memoir.Error, match="memory is 'fast'"):
        memoir.onnxruntime.Session(dense, memory="fast")
    with pytest.raises(memoir.Error, match="ONNX Runtime: .*none.onnx"):
        memoir.onnxruntime.Session(tmp_path / "none.onnx")


def test_threads_run_one_session_at_once(dense):
    session = memoir.onnxruntime.Session(dense, threads=1)
    alone = memoir.onnxruntime.Session(dense, memory="malloc", threads=1)
    shapes = [(16, 16), (24, 16), (16, 40)]
    expected = [alone.run({"x": image(*shape)})[1] for shape in shapes]
    wrong = []

    def work(number):
        for turn in range(12):
            index = (number + turn) % len(shapes)
            if not np.array_equal(session.run({"x": image(*shapes[index])})[1], expected[index]):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_integers_scalars_and_empty_tensors_pass(tmp_path):
    nodes = [("Add", ["a", "b"], ["c"], {}), ("Mul", ["c", "b"], ["d"], {})]
    inputs, outputs = [("a", 7, ["n"]), ("b", 7, [])], [("d", 7)]
    session = memoir.onnxruntime.Session(save(tmp_path / "i.onnx", nodes, {}, inputs, outputs), threads=1)
    for length in (3, 0, 3, 5):
        a = np.arange(length)
        assert np.array_equal(session.run({"a": a, "b": np.array(4)})[0], (a + 4) * 4)


WITHOUT = """
import sys, warnings
from pathlib import Path
import numpy as np
import memoir.onnxruntime as door
door.library = lambda: Path("/nowhere.so")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    sessions = [door.Session(sys.argv[1], threads=1) for _ in range(2)]
assert sessions[0].run({"x": np.ones((1, 3, 8, 8), np.float32)})[0].shape == (1, 51, 1, 1)
assert sessions[0].stats() == {}
assert sum("so its own planner does it" in str(one.message) for one in caught) == 1
"""


def test_without_the_library_onnx_runtime_does_without_and_one_warning_says_so(dense):
    """In a process of its own: what is registered stays."""
    subprocess.run([sys.executable, "-c", WITHOUT, str(dense)], check=True)


def test_warnings_of_frameworks_come_once():
    memoir.frameworks.plug.hand_over.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            memoir.frameworks.plug.hand_over("X", "no luck")
    assert len(caught) == 1
