# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` of other frameworks' files: small ones, read back, cut off, and with bytes that are wrong.

tests/data/importers: gradient.pb and shares.pb (the buffer assignments of gradients of four and six layers, by jax 0.10
and 0.12.0.1 on a CPU, without the program; in the second, buffers share the bytes of what is gone), small.tflite (four
additions in a row, built with the package flatbuffers; runs in LiteRT with and without a plan, with equal results),
closed.onnx and open.onnx (five nodes, by the package onnx; the second with an open dimension and no shapes but its
input's), small.pte (nine instructions with two views, a list and a constant, by ExecuTorch 1.5.1), somas.ir (SOMAS' dump
of five convolutions, by MindSpore 2.10 on a CPU), ggml.dot (a graph of 41 nodes, by ggml 0.25.3).
"""

import importlib.util
import json
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from memoir.importers import executorch, import_file, importer_of, tflite

from memoir import _core

DATA = Path(__file__).parents[1] / "data" / "importers"
MODEL = (DATA / "small.tflite").read_bytes()

TFLM = """* (id=0): size=960, offset=0, first_used=0 last_used=0
1 (id=1): size=960, offset=960, first_used=0 last_used=1
2 (id=2): size=976, offset=0, first_used=1 last_used=2
   0: *********************11111111111111111111111111................................ (1k)
"""
OLD_TFLM = """Planner buffer ID: 0, calculated offset: 1024, size required: 1024, first_time_created: 0, last_time_used: 1
noise between
Planner buffer ID: 1, calculated offset: 0, size required: 512, first_time_created: 1, last_time_used: 3
"""
SOMAS = """All Parameters:

index:\tsize:\tstart_addr:\tsource node name:\tnode out index:

All Tensors:

index:\tsize:\treal_size:\toffset:\taddr:\ttype:\tlifelong:\tlife_start:\tlife_end:\tsource node name:
%0T\t#1024S\t#1000S\t&0\t&0x7f00\tCommon\t0\t1\t4\tConv2D-op1
%1T\t#512S\t#512S\t&1024\t&0x7f00\tOutputOnly\t0\t4\t9\tReLU-op2
%2T\t#512S\t#512S\t&1536\t&0x7f00\tCommon\t1\t2\t2\tAdam-op3

All Nodes:

$0\tConv2D-op1\t1\tinputs[]\toutputs[%0T, ]\tworkspace[]\tstreamID[@0]
"""
GGML = """digraph G {
  newrank = true;
  rankdir = TB;
  "0x1" [ style = filled; fillcolor = white; shape = record; label="h (f32)|0 [64, 8] | <x>X*Y"; ]
  "0x2" [ style = filled; fillcolor = white; shape = record; label="h (view) (f32)|1 [64, 4] | <x>view(x)"; ]
  "0x3" [ style = filled; fillcolor = green; shape = record; label="(f16)|2 [64, 4, 2] | <x>x+y | <g>X*Y"; ]
  "0x9" [ style = filled; fillcolor = pink; shape = record; label="<x>w (q4_0)|CONST 0 [64, 64]"; ]
  "0x8" [ style = filled; fillcolor = pink; shape = record; label="<x>(new)|CONST 1 [1, 2] | (#, #)"; ]
  "0x9" -> "0x1" [ arrowhead = vee; style = solid; label = "src 0"; ]
  "0x1" -> "0x2" [ arrowhead = vee; style = solid; label = "src 0"; ]
  "0x2" -> "0x3" [ arrowhead = vee; style = solid; label = "src 0"; ]
}
"""


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def xla(events, sizes, allocation=4096):
    """An HloProto with one heap trace: (kind, buffer, shared with)."""
    buffers = b"".join(
        field(1, field(1, number) + field(2, size) + field(3, field(2, f"op.{number}".encode())))
        for number, size in sizes.items()
    )
    trace = b"".join(
        field(1, field(1, kind) + field(2, buffer) + field(5, other)) for kind, buffer, other in events
    )
    return field(1, b"") + field(
        3, buffers + field(3, field(1, 7) + field(2, allocation)) + field(4, trace + field(3, 7))
    )


# a lives, b is born and dies, c has the bytes of a after a is gone for a while
XLA = xla(
    [(0, 1, 0), (0, 2, 0), (1, 2, 0), (1, 1, 0), (0, 4, 0), (1, 4, 0), (2, 3, 1), (1, 3, 0)],
    {1: 64, 2: 32, 3: 64, 4: 16},
)


def rows(memoir, *arguments):
    code, _, err = memoir("plan", *arguments, "-o", "out.csv", "-f")
    assert code == 0, err
    return [line.split(",") for line in Path("out.csv").read_text().splitlines()]


def lives(table):
    return {row[0]: tuple(int(cell) for cell in row[1:5]) for row in table[1:]}


def test_tflite(memoir, tmp_path):
    table = lives(rows(memoir, DATA / "small.tflite"))
    assert table == {
        "input": (0, 2, 256, 16),
        "a": (0, 3, 256, 16),
        "b__with_a_comma": (1, 4, 256, 16),
        "c": (2, 4, 256, 16),
        "out": (3, 4, 256, 16),
    }


def test_a_planned_model_reads_back(memoir, tmp_path):
    (tmp_path / "m.tflite").write_bytes(MODEL)
    code, out, err = memoir("plan", "m.tflite", "-o", "planned.tflite", "--json")
    assert code == 0, err
    arena = json.loads(out)["arena_size"]
    assert arena == 768 and json.loads(out)["format"] == "tflite"
    planned = (tmp_path / "planned.tflite").read_bytes()
    assert planned.endswith(MODEL) and planned[4:8] == b"TFL3"
    assert tflite.offline_plan(MODEL, "m") is None
    offsets = tflite.offline_plan(planned, "planned")
    assert len(offsets) == 6 and offsets[1] == -1  # the weights
    places = [offset for offset in offsets if offset >= 0]
    assert all(offset % 16 == 0 and offset + 256 <= arena for offset in places)
    # Its own view of the lifetimes, and once more through the reader.
    before, after = (
        import_file(importer_of(name, data[:64]), name).rows
        for name, data in (
            (str(tmp_path / "m.tflite"), MODEL),
            (str(tmp_path / "planned.tflite"), planned),
        )
    )
    assert before == after
    plan = dict(zip([row.id for row in before], [offsets[k] for k in (0, 2, 3, 4, 5)], strict=True))
    for a in before:
        for b in before:
            if a.id < b.id and a.lower < b.upper and b.lower < a.upper:
                assert abs(plan[a.id] - plan[b.id]) >= 256
    again = tflite.with_offline_plan(planned, "again", [16 * k for k in range(6)])
    assert tflite.offline_plan(again, "again") == [16 * k for k in range(6)]
    assert memoir("plan", "planned.tflite", "-o", "planned.tflite", "-f")[0] == 2


LITERT = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter

for path in sys.argv[1:]:
    one = Interpreter(model_path=path)
    one.allocate_tensors()
    for told in one.get_input_details():
        one.set_tensor(told["index"], np.linspace(-1, 1, 64, dtype=told["dtype"]).reshape(told["shape"]))
    one.invoke()
    print(*[one.get_tensor(told["index"]).tobytes().hex() for told in one.get_output_details()], flush=True)
"""
MICRO = """
import sys
import numpy as np
from tflite_micro.python.tflite_micro import runtime

for path in sys.argv[1:]:
    one = runtime.Interpreter.from_file(path, arena_size=1 << 20)
    told = one.get_input_details(0)
    one.set_input(np.linspace(-1, 1, 64, dtype=told["dtype"]).reshape(told["shape"]), 0)
    one.invoke()
    print(one.get_output(0).tobytes().hex(), flush=True)
"""


@pytest.mark.parametrize(
    ("package", "code"), [("ai_edge_litert", LITERT), ("tflite_micro", MICRO)], ids=["LiteRT", "Micro"]
)
def test_interpreters_compute_the_same_with_a_plan(memoir, tmp_path, package, code):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"its interpreter is not here: pip install {package.replace('_', '-')}")
    model = DATA / "small.tflite"
    assert memoir("plan", model, "-o", "planned.tflite")[0] == 0
    run = [sys.executable, "-c", code, model, "planned.tflite"]
    plain, planned = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split("\n")[:2]
    assert plain == planned != ""


def test_other_metadata_stays(tmp_path):
    from memoir.importers.flatbuffer import Table

    planned = tflite.with_offline_plan(MODEL, "m", [-1] * 6)
    names = [entry.text(0) for entry in Table.root(planned, "p").tables(6)]
    assert names == ["min_runtime_version", "OfflineMemoryAllocation"]
    assert Table.root(planned, "p").text(3) == "four additions"
    # The plan's numbers stand at a multiple of 16, as every buffer's data.
    where = planned.index(struct.pack("<3i", 0, 0, 6))
    assert where % 16 == 0 and (len(planned) - len(MODEL)) % 16 == 0


def test_onnx(memoir, tmp_path):
    table = lives(rows(memoir, DATA / "closed.onnx"))
    assert table == {"x": (0, 1, 64, 64), "a": (0, 2, 128, 64), "b": (1, 4, 128, 64), "y": (3, 4, 128, 64)}
    code, _, err = memoir("plan", DATA / "open.onnx")
    assert code == 2 and "the dimensions batch have no value: say --dim batch=1" in err
    code, _, err = memoir("plan", DATA / "open.onnx", "--dim", "batch=4", "-o", "o.csv")
    if importlib.util.find_spec("onnx") is None:
        assert code == 2 and "pip install 'memoir-alloc[onnx]' infers shapes" in err
    else:
        assert code == 0 and Path("o.csv").read_text().splitlines()[1].startswith("x,0,1,256,64")
    assert "give NAME=N" in memoir("plan", DATA / "open.onnx", "--dim", "batch")[2]


def test_onnx_dimensions_without_a_name(memoir, tmp_path):
    def value(name, *extents):
        shape = b"".join(field(1, field(1, extent & (1 << 64) - 1) if extent else b"") for extent in extents)
        return field(1, name.encode()) + field(2, field(1, field(1, 1) + field(2, shape)))

    node = field(1, b"x") + field(2, b"y") + field(4, b"Relu")
    graph = field(1, node) + field(11, value("x", -1, 0, 4)) + field(12, value("y", 2, 8, 4))
    (tmp_path / "m.onnx").write_bytes(field(7, graph))
    code, _, err = memoir("plan", "m.onnx", "--dim", "x.0=2")
    assert code == 2 and "the dimensions x.1 have no value: say --dim x.1=1" in err
    table = rows(memoir, "m.onnx", "--dim", "x.0=2", "--dim", "x.1=8")
    assert lives(table) == {"x": (0, 1, 256, 64), "y": (0, 1, 256, 64)}
    # Names of the file reach the terminal as text, and only a few of them.
    graph = field(1, node) + field(11, value("x\x1b[2J\n", *[0] * 2000))
    (tmp_path / "m.onnx").write_bytes(field(7, graph))
    code, _, err = memoir("plan", "m.onnx")
    assert code == 2 and err.count(r"x\x1b[2J") == 4 and "and 1,997 more have no value" in err
    assert "\x1b" not in err and len(err) < 300
    graph = field(1, node) + field(11, value("x" * 100_000, 0))
    (tmp_path / "m.onnx").write_bytes(field(7, graph))
    code, _, err = memoir("plan", "m.onnx")
    assert code == 2 and len(err) < 5000 and "characters more" in err


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="onnx is not here: pip install onnx")
def test_onnx_shapes_that_are_computed(memoir, tmp_path):
    import onnx
    from onnx import helper

    # The pads are a constant that is cast, which onnx does not look through; ONNX Runtime folds it.
    def info(name, *shape):
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Cast", ["pads"], ["whole"], to=onnx.TensorProto.INT64),
        helper.make_node("Pad", ["x", "whole"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["y"]),
    ]
    pads = helper.make_tensor("pads", onnx.TensorProto.FLOAT, [4], [0, 0, 0, 8])
    graph = helper.make_graph(nodes, "g", [info("x", "batch", 8)], [info("y", None, None)], [pads])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "m.onnx",
    )
    code, _, err = memoir("plan", "m.onnx", "--dim", "batch=2")
    assert code == 2 and "the shape of wide and 1 more is not known" in err and "ONNX Runtime fold" in err
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), options, providers=["CPUExecutionProvider"])
    table = lives(rows(memoir, "folded.onnx", "--dim", "batch=2"))
    assert table["x"] == (0, 1, 64, 64) and table["y"][2] == 128


def test_executorch(memoir, tmp_path):
    assert lives(rows(memoir, DATA / "small.pte")) == {
        "v4": (0, 7, 128, 16),  # the input, read again through a list
        "v5": (0, 2, 512, 16),
        "v9": (1, 3, 256, 16),
        "v12": (2, 5, 256, 16),
        "v13": (3, 5, 512, 16),
        "v17": (4, 6, 128, 16),  # with its view, which no instruction makes
        "v21": (5, 9, 128, 16),
        "v24": (6, 8, 256, 16),  # and this one with its
        "v28": (7, 9, 128, 16),
        "v33": (8, 9, 128, 16),
    }
    code, out, err = memoir("plan", DATA / "small.pte", "--json")
    told = json.loads(out)
    assert code == 0 and (told["arena_size"], told["their_arena"]) == (1024, 1152)
    assert told["format"] == "executorch"
    assert "ExecuTorch's own plan needs 1,152 bytes" in err


def test_what_executorch_wrote_is_no_worse_than_its_own_plan(tmp_path):
    pytest.importorskip("executorch")
    torch = pytest.importorskip("torch")
    from executorch.exir import to_edge

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolutions = torch.nn.ModuleList(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))

        def forward(self, x):
            for convolution in self.convolutions:
                x = torch.relu(convolution(x)) + torch.cat([x[:, 2:], x[:, :2]], 1)
            values, indices = x.flatten(1).view(2, -1).max(1)
            return values, indices

    exported = torch.export.export(Model().eval(), (torch.randn(2, 4, 8, 8),))
    program = to_edge(exported).to_executorch()
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    imported = import_file(importer_of(str(path), program.buffer[:64]), str(path))
    problem = _core.parse_csv(imported.csv(), "model").problem
    own = program.executorch_program.execution_plan[0].non_const_buffer_sizes
    assert imported.peer == own[1] and len(problem) > 10
    assert _core.search(problem).arena_size <= own[1]


def test_xla(memoir, tmp_path):
    (tmp_path / "m.hlo.pb").write_bytes(XLA)
    table = rows(memoir, "m.hlo.pb")
    assert table[0] == ["id", "lower", "upper", "size", "alignment", "gaps", "offset"]
    assert [row[:6] for row in table[1:]] == [
        ["op.1", "0", "7", "64", "16", "3-6"],
        ["op.2", "1", "2", "32", "16", ""],
        ["op.4", "4", "5", "16", "16", ""],
    ]
    _, out, err = memoir("plan", "m.hlo.pb", "--json")
    assert json.loads(out)["their_arena"] == 4096 and "4,096 bytes" in err


def test_what_xla_wrote(memoir):
    _, out, _ = memoir("plan", DATA / "gradient.pb", "--json")
    told = json.loads(out)
    assert (told["buffers"], told["arena_size"], told["their_arena"]) == (4, 2048, 2048)


def test_xla_shares_what_is_gone(memoir, tmp_path):
    # b has the bytes of a, c those of b, each after the one before is gone; nothing is born in between. d is born while
    # nobody has them, before e has them again.
    events = [(0, 1, 0), (1, 1, 0), (2, 2, 1), (1, 2, 0), (2, 3, 2), (1, 3, 0), (0, 4, 0), (2, 5, 3)]
    (tmp_path / "m.pb").write_bytes(xla(events, {1: 64, 2: 64, 3: 64, 4: 32, 5: 64}))
    assert [row[:6] for row in rows(memoir, "m.pb")[1:]] == [
        ["op.1", "0", "8", "64", "16", "5-7"],
        ["op.4", "6", "8", "32", "16", ""],
    ]


def test_what_xla_wrote_in_2026(memoir):
    told = json.loads(memoir("plan", DATA / "shares.pb", "--json")[1])
    assert (told["buffers"], told["arena_size"], told["their_arena"]) == (16, 524288, 524288)
    assert rows(memoir, DATA / "shares.pb")[1][0] == "wrapped_add"


JAX = """
import jax, jax.numpy as jnp

def net(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w) + x
    return (x ** 2).sum()

jax.jit(jax.grad(net))([jnp.ones((64, 64))] * 6, jnp.ones((32, 64)))
"""


def test_xla_here_is_no_worse_with_us(memoir, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not here: pip install jax")
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_proto"
    subprocess.run([sys.executable, "-c", JAX], env={**os.environ, "XLA_FLAGS": flags}, check=True)
    (dump,) = tmp_path.glob("*jit_net*after_optimizations.hlo.pb")
    told = json.loads(memoir("plan", dump, "--json")[1])
    assert told["buffers"] > 5 and told["arena_size"] <= told["their_arena"]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(0, 9, 0)], "names buffer 9, which is not there"),
        ([(1, 1, 0)], "buffer 1 is freed and was not allocated"),
        ([(0, 1, 0), (0, 1, 0)], "buffer 1 is allocated and was not freed"),
        ([(0, 1, 0), (1, 1, 0), (1, 1, 0)], "buffer 1 is freed and was not allocated"),
        ([(2, 1, 1)], "shares the bytes of 1, which was never allocated"),
        ([(2, 1, 2)], "shares the bytes of 2, which was never allocated"),
        ([(5, 1, 0)], "of the kind 5"),
        ([], "nothing is to be planned"),
    ],
)
def test_bad_xla(memoir, tmp_path, events, message):
    (tmp_path / "m.pb").write_bytes(xla(events, {1: 64, 2: 64}))
    code, _, err = memoir("plan", "m.pb")
    assert code == 2 and message in err


def test_ggml(memoir, tmp_path):
    (tmp_path / "g.dot").write_text(GGML)
    assert lives(rows(memoir, "g.dot")) == {"h": (0, 3, 2048, 32), "node2": (2, 3, 1024, 32)}
    # As ggml 0.25.3 wrote it: convolutions, a reshape, a product.
    assert len(table := lives(rows(memoir, DATA / "ggml.dot"))) == 23
    assert table["node_0"] == (0, 4, 589824, 32) and table["node_40"] == (40, 41, 256, 32)
    (tmp_path / "bad.dot").write_text(GGML.replace("(f16)", "(f17)"))
    assert "bad.dot:6: a node says" in memoir("plan", "bad.dot")[2]


def test_logs(memoir, tmp_path):
    (tmp_path / "tflm.log").write_text(TFLM)
    assert lives(rows(memoir, "tflm.log")) == {
        "buffer0": (0, 1, 960, 16),
        "buffer1": (0, 2, 960, 16),
        "buffer2": (1, 3, 976, 16),
    }
    assert json.loads(memoir("plan", "tflm.log", "--json")[1])["their_arena"] == 1920
    (tmp_path / "old.log").write_text(OLD_TFLM)
    assert lives(rows(memoir, "old.log")) == {"buffer0": (0, 2, 1024, 16), "buffer1": (1, 4, 512, 16)}
    assert json.loads(memoir("plan", "old.log", "--json")[1])["their_arena"] == 2048
    (tmp_path / "somas.ir").write_text(SOMAS)
    assert lives(rows(memoir, "somas.ir")) == {
        "Conv2D-op1.T0": (1, 5, 1024, 512),
        "ReLU-op2.T1": (4, 10, 512, 512),
        "Adam-op3.T2": (0, 10, 512, 512),
    }
    old = SOMAS.replace("\tlife_start:\tlife_end:", "")
    (tmp_path / "old.ir").write_text(old)
    assert "has no life_start and life_end" in memoir("plan", "old.ir")[2]


def test_what_mindspore_wrote(memoir, tmp_path):
    code, out, _ = memoir("plan", DATA / "somas.ir", "--json")
    told = json.loads(out)
    assert code == 0 and (told["buffers"], told["arena_size"], told["their_arena"]) == (16, 98304, 98304)
    # The dumps from before it placed anything say nothing of its plan.
    before = re.sub(r"&\d+", "&0", (DATA / "somas.ir").read_text())
    (tmp_path / "before.ir").write_text(before)
    _, out, err = memoir("plan", "before.ir", "--json")
    assert json.loads(out)["their_arena"] is None and "from before it placed anything" in err


FILES = {
    "m.tflite": MODEL,
    "m.pte": (DATA / "small.pte").read_bytes(),
    "m.onnx": (DATA / "closed.onnx").read_bytes(),
    "m.pb": XLA,
    "real.pb": (DATA / "gradient.pb").read_bytes(),
    "shares.pb": (DATA / "shares.pb").read_bytes(),
    "g.dot": GGML.encode(),
    "real.dot": (DATA / "ggml.dot").read_bytes(),
    "t.log": TFLM.encode(),
    "old.log": OLD_TFLM.encode(),
    "s.ir": SOMAS.encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_are_refused_or_planned_and_nothing_else(name, tmp_path):
    """Cut off anywhere, and with bytes changed: a problem, or an Error that names the file."""
    data, path, generator = FILES[name], tmp_path / name, random.Random(name)
    step = max(1, len(data) // 150)
    changed = [data[:cut] for cut in range(0, len(data), step)]
    for _ in range(400):
        bad = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            bad[generator.randrange(len(bad))] = generator.choice(
                (0, 1, 127, 128, 255, generator.randrange(256))
            )
        changed.append(bytes(bad))
    refused = 0
    for content in changed:
        path.write_bytes(content)
        importer = importer_of(str(path), content[:65536])
        if importer is None:
            continue
        try:
            csv = import_file(importer, str(path)).csv()
            problem = _core.parse_csv(csv, name).problem
            assert len(problem) < 100
        except _core.Error as error:
            refused += 1
            assert name in str(error)
    assert refused > 10


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        *((GGML, "[64, 8]", shape) for shape in ("[64,,8]", "[64, ,8]", "[,]", "[ ]", f"[{'9' * 5000}, 8]")),
        (GGML, "|0 [", f"|{'0' * 5000} ["),
        (SOMAS, "\t1\t4\tConv2D", f"\t1\t{'9' * 5000}\tConv2D"),
        (SOMAS, "\t1\t4\tConv2D", "\t1\t\u00b2\tConv2D"),
        (SOMAS, "#1024S", f"#{'9' * 5000}S"),
        (SOMAS, "lifelong:", "no lifelong:"),
        (TFLM, "size=960", f"size={'9' * 5000}"),
        (OLD_TFLM, "required: 1024", f"required: {'9' * 5000}"),
    ],
)
def test_hostile_digits(tmp_path, content, old, new):
    changed = content.replace(old, new)
    assert changed != content
    path = tmp_path / "f"
    path.write_text(changed)
    importer = importer_of("f.dot" if content == GGML else "f", changed.encode()[:65536])
    try:
        csv = import_file(importer, str(path)).csv()
        assert content != GGML and max(len(line) for line in csv.splitlines()) < 100  # a line less of the log
    except _core.Error as error:
        assert str(path) in str(error)


@pytest.mark.full
def test_any_word_of_an_executorch_program_may_be_wrong(tmp_path):
    data = (DATA / "small.pte").read_bytes()
    for word in range(0, len(data) - 4, 4):
        for value in (0, 5, word, 0x7FFFFFFF, 0xFFFFFFFF):
            bad = data[:word] + struct.pack("<I", value) + data[word + 4 :]
            try:
                executorch.read(bad, "m.pte").csv()
            except _core.Error as error:
                assert "m.pte" in str(error)


def test_what_refers_to_itself_ends(tmp_path):
    # A vector whose elements all point at one table, a table whose vtable is itself, counts beyond the file.
    for word in range(0, len(MODEL) - 4, 4):
        for value in (0, word, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000):
            bad = MODEL[:word] + struct.pack("<I", value) + MODEL[word + 4 :]
            try:
                imported = tflite.read(bad, "m.tflite")
                imported.planned([0] * len(imported.rows))
            except _core.Error as error:
                assert "m.tflite" in str(error)
