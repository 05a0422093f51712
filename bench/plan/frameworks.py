# SPDX-License-Identifier: Apache-2.0
"""Frameworks' own memory plans next to memoir's, on real models: `frameworks.py executorch tinygrad inductor onnxruntime`.

Each framework is asked for both plans of the same graph. A framework that is not installed is said and skipped. ONNX
Runtime is measured instead: the peak of resident memory over ten input shapes, above what the loaded model holds,
one process per way. `--tflite-micro CHECKOUT` compiles the planner in that source of TensorFlow Lite Micro, for the
models there. `--c LIBRARY` times the same problems through that libmemoir_plan_c.so and through Python."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = tuple[str, int, int, int, float, float]  # model, their bytes, ours, the load, their CPU s, ours


def vision(name: str, side: int = 224) -> tuple[Any, tuple[Any, ...]]:
    import torch
    import torchvision

    side = 299 if name == "inception_v3" and side == 224 else side
    made = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, name)(weights=None, **made).eval()
    return model, (torch.randn(1, 3, side, side),)


def executorch(models: list[str], side: int) -> Iterator[Row]:
    import memoir.executorch
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.memory_planning import greedy
    from executorch.exir.passes import MemoryPlanningPass

    for name in models:
        model, example = vision(name, side)
        edge = to_edge(torch.export.export(model, example))
        row: list[Row] = []

        def both(*args: Any, row: list[Row] = row, name: str = name) -> list[int]:
            theirs, their_time = timed(lambda: greedy(*args))
            ours, our_time = timed(lambda: memoir.executorch.algorithm(*args))
            load = sum(specs_load(args[1], memory) for memory in range(len(ours.bufsizes)))
            row.append((name, sum(theirs.bufsizes), sum(ours.bufsizes), load, their_time, our_time))
            return memoir.executorch.memory_planning_algo(*args)

        edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(both)))
        yield row[0]


def specs_load(specs: Any, memory: int) -> int:
    """The most bytes of that memory that live at once."""
    events = []
    for spec in specs:
        if (spec.mem_id or 1) == memory and spec.storage_base is None:
            events.append((spec.lifetime[0], spec.allocated_memory))
            events.append((spec.lifetime[1] + 1, -spec.allocated_memory))
    live = most = 0
    for _, change in sorted(events):
        live += change
        most = max(most, live)
    return most


def tinygrad(models: list[str], side: int) -> Iterator[Row]:
    if shutil.which("clang") is None:
        os.environ.setdefault("DEV", "NULL")  # its CPU device needs clang; a plan is made without a device
    import memoir.tinygrad
    import tinygrad.schedule.memory as memory
    from memoir.frameworks import plug
    from tinygrad import Tensor
    from tinygrad.uop.ops import Ops

    def arena(linear: Any) -> int:
        buffers = {u for item in linear.src for u in item.toposort() if u.op is Ops.BUFFER}
        return sum(b.max_numel() for b in buffers if b.dtype.itemsize == 1)

    networks = {
        "densenet121": lambda: tiny_densenet((6, 12, 24, 16)),
        "resnet50": lambda: tiny_resnet((3, 4, 6, 3)),
    }
    for name in models:
        if name not in networks:
            continue
        network = networks[name]()
        row: list[Row] = []
        theirs = memory.memory_plan_rewrite
        loads: list[int] = []

        def place(*args: Any, loads: list[int] = loads) -> Any:
            placed = plug.place(*args)
            loads.append(placed.load)
            return placed

        def both(
            linear: Any,
            held: Any = None,
            row: list[Row] = row,
            name: str = name,
            theirs: Any = theirs,
            loads: list[int] = loads,
        ) -> Any:
            their_plan, their_time = timed(lambda: theirs(linear, held))
            planned, our_time = timed(lambda: memoir.tinygrad._plan(linear, held, 1.0))
            our_plan = their_plan if planned is None else planned
            row.append((name, arena(their_plan), arena(our_plan), sum(loads), their_time, our_time))
            return their_plan

        import tinygrad.schedule as schedule

        kept = memoir.tinygrad.place
        schedule.memory_plan_rewrite, memoir.tinygrad.place = both, place
        try:
            network(Tensor.empty(1, 3, side, side)).schedule_linear()
        finally:
            schedule.memory_plan_rewrite, memoir.tinygrad.place = theirs, kept
        yield row[0]


def tiny_resnet(depths: tuple[int, ...]) -> Callable[[Any], Any]:
    from tinygrad import nn

    def layer(inputs: int, width: int, stride: int) -> Callable[[Any], Any]:
        parts = [
            nn.Conv2d(inputs, width, 1),
            nn.Conv2d(width, width, 3, stride, 1),
            nn.Conv2d(width, 4 * width, 1),
        ]
        norms = [nn.BatchNorm(width), nn.BatchNorm(width), nn.BatchNorm(4 * width)]
        skip = nn.Conv2d(inputs, 4 * width, 1, stride) if stride > 1 or inputs != 4 * width else None

        def call(x: Any) -> Any:
            y = norms[0](parts[0](x)).relu()
            y = norms[2](parts[2](norms[1](parts[1](y)).relu()))
            return (y + (skip(x) if skip else x)).relu()

        return call

    stem, layers, inputs = nn.Conv2d(3, 64, 7, 2, 3), [], 64
    for width, depth, stride in zip((64, 128, 256, 512), depths, (1, 2, 2, 2), strict=True):
        for index in range(depth):
            layers.append(layer(inputs, width, 1 if index else stride))
            inputs = 4 * width
    return lambda x: tiny_through(layers, stem(x).relu().max_pool2d((3, 3), 2, padding=1)).mean((2, 3))


def tiny_through(layers: list[Callable[[Any], Any]], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def tiny_densenet(depths: tuple[int, ...], growth: int = 32) -> Callable[[Any], Any]:
    from tinygrad import Tensor, nn

    def layer(inputs: int) -> Callable[[Any], Any]:
        first, second = nn.Conv2d(inputs, 4 * growth, 1), nn.Conv2d(4 * growth, growth, 3, padding=1)
        norms = nn.BatchNorm(inputs), nn.BatchNorm(4 * growth)
        return lambda x: Tensor.cat(x, second(norms[1](first(norms[0](x).relu())).relu()), dim=1)

    def shrink(inputs: int) -> Callable[[Any], Any]:
        norm, conv = nn.BatchNorm(inputs), nn.Conv2d(inputs, inputs // 2, 1)
        return lambda x: conv(norm(x).relu()).avg_pool2d((2, 2), 2)

    stem, layers, inputs = nn.Conv2d(3, 64, 7, 2, 3), [], 64
    for block, depth in enumerate(depths):
        for _ in range(depth):
            layers.append(layer(inputs))
            inputs += growth
        if block + 1 < len(depths):
            layers.append(shrink(inputs))
            inputs //= 2
    return lambda x: tiny_through(layers, stem(x).relu().max_pool2d((3, 3), 2, padding=1)).mean((2, 3))


def inductor(models: list[str], side: int) -> Iterator[Row]:
    import memoir.inductor
    import torch
    from torch._inductor import config
    from torch._inductor.codegen.memory_planning import MemoryPlanner
    from torch._inductor.utils import get_code

    for name in models:
        model, example = vision(name, side)
        torch._dynamo.reset()
        row: list[Row] = []
        theirs = MemoryPlanner.allocate_groups

        def both(planner: Any, row: list[Row] = row, name: str = name, theirs: Any = theirs) -> None:
            _, their_time = timed(lambda: theirs(planner))
            before = pools_size(planner)
            load = groups_load(planner)
            _, our_time = timed(lambda: memoir.inductor._replan(planner, 1.0))
            row.append((name, before, pools_size(planner), load, their_time, our_time))

        MemoryPlanner.allocate_groups = both
        try:
            with torch.inference_mode(), config.patch(memory_planning=True, force_disable_caches=True):
                get_code(torch.compile(model), *example)
        except AssertionError:
            pass  # get_code() compiles no kernel, so the call after it has nothing to return
        finally:
            MemoryPlanner.allocate_groups = theirs
        if row:
            yield row[0]


def pools_size(planner: Any) -> int:
    pools = [pool for device in planner.pools.device_to_pools.values() for pool in device]
    return sum(getattr(pool, "size", 0) or int(pool.root.get_size_hint()) for pool in pools)


def groups_load(planner: Any) -> int:
    """Outputs keep their own memory to the end, so the load is what lives at once of all buffers."""
    events = []
    for group in planner.buffer_groups:
        size = -(-group.allocation.size_hint // 64) * 64
        events += [
            (group.live_range.begin, size),
            (max(group.live_range.end, group.live_range.begin + 1), -size),
        ]
    live = most = 0
    for _, change in sorted(events):
        live += change
        most = max(most, live)
    return most


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    began = time.thread_time()
    result = function()
    return result, time.thread_time() - began


# --- TensorFlow Lite Micro

# Reads begin,end,size; the last use is inclusive there, and sizes are rounded up first.
GREEDY = """
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <vector>
#include "tensorflow/lite/micro/memory_planner/greedy_memory_planner.h"
void MicroPrintf(const char*, ...) {}
int main() {
  std::vector<int> read;
  for (int x, y, z; std::scanf("%d,%d,%d", &x, &y, &z) == 3;) read.insert(read.end(), {x, y, z});
  std::vector<unsigned char> scratch(read.size() / 3 * tflite::GreedyMemoryPlanner::per_buffer_size() + 64);
  const std::clock_t began = std::clock();
  tflite::GreedyMemoryPlanner planner;
  planner.Init(scratch.data(), static_cast<int>(scratch.size()));
  for (std::size_t k = 0; k < read.size(); k += 3) {
    if (planner.AddBuffer((read[k + 2] + 15) / 16 * 16, read[k], read[k + 1] - 1) != kTfLiteOk) return 1;
  }
  const std::size_t arena = planner.GetMaximumMemorySize();
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  std::printf("%zu %.6f", arena, seconds);
  return planner.DoAnyBuffersOverlap() ? 2 : 0;
}
"""


def tflite_micro(checkout: Path) -> Iterator[Row]:
    from memoir.importers import tflite

    import memoir

    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "greedy.cc", Path(folder) / "greedy"
        source.write_text(GREEDY)
        planner = checkout / "tensorflow/lite/micro/memory_planner/greedy_memory_planner.cc"
        subprocess.run(
            ["c++", "-std=c++17", "-O2", f"-I{checkout}", source, planner, "-o", program], check=True
        )
        memoir.plan({"lower": [0], "upper": [1], "size": [1]})  # imports what it needs
        for path in sorted(checkout.rglob("*.tflite")):
            rows = tflite.read(path.read_bytes(), str(path)).rows
            if len(rows) < 10:  # single operators, where there is nothing to plan
                continue
            said = "".join(f"{row.lower},{row.upper},{row.size}\n" for row in rows)
            done = subprocess.run([program], input=said, check=True, capture_output=True, text=True)
            theirs, their_time = done.stdout.split()
            keys = ("lower", "upper", "size", "alignment")
            problem = {key: [getattr(row, key) for row in rows] for key in keys}
            ours, our_time = timed(lambda problem=problem: memoir.plan(problem))
            yield path.stem, int(theirs), ours.arena_size, ours.load, float(their_time), our_time


# --- The C ABI

C_PROBLEMS = ["somas/resnet50.csv", "iopddl/G_1.csv", *(f"minimalloc/{name}.1048576.csv" for name in "AEGK")]


def through_c(library: Path, repeat: int = 21) -> None:
    """Median CPU milliseconds of a call, with arrays that are there already."""
    import numpy as np

    import memoir

    plan = ctypes.CDLL(str(library)).memoir_plan
    plan.argtypes = [ctypes.c_size_t, *[ctypes.c_void_p] * 7]
    print("| problem | buffers | arena | C, CPU ms | Python |\n|---|---:|---:|---:|---:|")
    for name in C_PROBLEMS:
        path = Path(__file__).parents[2] / "tests" / "data" / "planning" / name
        table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding=None)
        problem = {key: np.ascontiguousarray(table[key], np.uint64) for key in ("lower", "upper", "size")}
        offsets = np.zeros(len(table), np.uint64)
        pointers = [array.ctypes.data for array in (*problem.values(), offsets)]

        def in_c(pointers: list[int] = pointers, count: int = len(table)) -> None:
            assert plan(count, *pointers[:3], None, None, pointers[3], None) == 0

        def in_python(problem: dict[str, Any] = problem) -> Any:
            return memoir.plan(problem, threads=1)

        # Of all threads: memoir.plan() searches in one of its own.
        times = []
        for way in (in_c, in_python):
            taken = []
            for _ in range(repeat):
                began = time.process_time()
                way()
                taken.append(time.process_time() - began)
            times.append(sorted(taken)[repeat // 2] * 1000)
        arena = int((offsets + problem["size"]).max())
        assert arena == in_python().arena_size
        print(f"| {name} | {len(table):,} | {arena:,} | {times[0]:.2f} | {times[1]:.2f} |", flush=True)


# --- ONNX Runtime

SHAPES = [
    (224, 224),
    (192, 256),
    (256, 192),
    (288, 160),
    (160, 288),
    (240, 208),
    (208, 240),
    (256, 256),
    (176, 304),
    (320, 224),
]
WAYS = ["memoir", "arena", "no pattern", "malloc"]


def onnx_densenet(path: Path, depths: tuple[int, ...], growth: int = 32, seed: int = 0) -> None:
    """DenseNet with random weights, on images of any size."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(seed)
    nodes: list[Any] = []
    weights: list[Any] = []

    def constant(array: Any) -> str:
        weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(weights)}"))
        return str(weights[-1].name)

    def node(kind: str, inputs: list[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def conv(x: str, inputs: int, outputs: int, side: int, stride: int = 1) -> str:
        weight = random.normal(0, (inputs * side * side) ** -0.5, (outputs, inputs, side, side))
        pads = [side // 2] * 4
        return node("Conv", [x, constant(weight)], kernel_shape=[side] * 2, strides=[stride] * 2, pads=pads)

    def norm(x: str, width: int) -> str:
        scale = [constant(np.full(width, value)) for value in (1, 0, 0, 1)]
        return node("Relu", [node("BatchNormalization", [x, *scale])])

    x, width = norm(conv("x", 3, 64, 7, 2), 64), 64
    x = node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for block, depth in enumerate(depths):
        for _ in range(depth):
            y = conv(norm(conv(norm(x, width), width, 4 * growth, 1), 4 * growth), 4 * growth, growth, 3)
            x, width = node("Concat", [x, y], axis=1), width + growth
        if block + 1 < len(depths):
            x, width = conv(norm(x, width), width, width // 2, 1), width // 2
            x = node("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    nodes.append(helper.make_node("Flatten", [node("GlobalAveragePool", [norm(x, width)])], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "densenet", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def resident(what: str) -> int:
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(what))
    return int(line.split()[1]) * 1024


def run_shapes(path: str, way: Any, shapes: list[tuple[int, int]], rounds: int) -> dict[str, Any]:
    """In a process of its own: the peak above what the loaded model holds, and the seconds of the runs."""
    import memoir.onnxruntime
    import numpy as np

    session = memoir.onnxruntime.Session(path, memory=way, threads=1)
    random = np.random.default_rng(1)
    images = [random.normal(size=(1, 3, *shape)).astype(np.float32) for shape in shapes]
    ctypes.CDLL(None).malloc_trim(0)  # what loading left is not part of the runs
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    sums, began = [], time.process_time()
    for _ in range(rounds):
        sums = [float(session.run({"x": image})[0].sum()) for image in images]
    return {
        "peak": resident("VmHWM") - before,
        "seconds": time.process_time() - began,
        "sums": sums,
        "stats": session.stats(),
    }


def onnxruntime(smoke: bool, repeat: int) -> None:
    depths = (2, 2) if smoke else (6, 12, 24, 16)
    shapes = [(h // 4, w // 4) for h, w in SHAPES[:4]] if smoke else SHAPES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "densenet.onnx"
        onnx_densenet(path, depths)
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for _ in range(repeat):
            for way in WAYS:
                command = [
                    sys.executable,
                    __file__,
                    "--way",
                    way,
                    str(path),
                    json.dumps(shapes),
                    "--rounds",
                    "2",
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    assert all(run["sums"] == found["arena"][0]["sums"] for runs in found.values() for run in runs), (
        "outputs differ"
    )
    base = [run["peak"] for run in found["memoir"]]
    print("| memory | peak over the shapes, MB | of memoir's | CPU s |\n|---|---:|---:|---:|")
    for way, runs in found.items():
        ratios = sorted(run["peak"] / mine for run, mine in zip(runs, base, strict=True))
        peak = sorted(run["peak"] for run in runs)[len(runs) // 2] / 1e6
        seconds = sorted(run["seconds"] for run in runs)[len(runs) // 2]
        print(f"| {way} | {peak:.1f} | {ratios[0]:.2f} to {ratios[-1]:.2f} | {seconds:.2f} |")
    print(found["memoir"][0]["stats"])


PLANNERS = {"executorch": executorch, "tinygrad": tinygrad, "inductor": inductor}
NEEDS = {"inductor": "torch"}
MODELS = ["resnet50", "densenet121", "mobilenet_v3_large", "mobilenet_v2", "googlenet", "inception_v3"]
MODELS += ["shufflenet_v2_x1_0", "squeezenet1_1"]


def print_rows(name: str, rows: Iterator[Row]) -> None:
    head = f"| {name} | theirs | ours | load | theirs / ours | their CPU ms | ours |"
    print(head + "\n|---|---:|---:|---:|---:|---:|---:|")
    for model, theirs, ours, load, their_time, our_time in rows:
        assert ours <= theirs, f"{model}: {ours} bytes, theirs {theirs}"
        print(
            f"| {model} | {theirs:,} | {ours:,} | {load:,} | {theirs / ours:.3f} | "
            f"{their_time * 1000:.2f} | {our_time * 1000:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "frameworks", nargs="*", metavar="FRAMEWORK", help=f"of {', '.join(PLANNERS)}, onnxruntime"
    )
    parser.add_argument(
        "--models", default=",".join(MODELS), help="of torchvision's; tinygrad has the first two"
    )
    parser.add_argument("--side", type=int, default=224, help="of the images, pixels")
    parser.add_argument(
        "--tflite-micro", type=Path, metavar="CHECKOUT", help="the source of TensorFlow Lite Micro"
    )
    parser.add_argument("--c", type=Path, metavar="LIBRARY", help="libmemoir_plan_c.so")
    parser.add_argument("--repeat", type=int, default=3, help="processes per way of ONNX Runtime's")
    parser.add_argument("--rounds", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--way", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="small: seconds instead of minutes")
    options = parser.parse_args()
    if options.way:
        way, path, shapes = options.way
        print(json.dumps(run_shapes(path, way, json.loads(shapes), options.rounds)))
        return
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if options.tflite_micro:
        print_rows("TensorFlow Lite Micro", tflite_micro(options.tflite_micro))
    if options.c:
        through_c(options.c)
    if options.tflite_micro or options.c:
        return
    # Under --smoke what compiles or exports for a minute is left out, unless it is named.
    chosen = options.frameworks or (
        ["tinygrad", "onnxruntime"] if options.smoke else [*PLANNERS, "onnxruntime"]
    )
    for name in chosen:
        needed = [NEEDS.get(name, name)] + (["onnx"] if name == "onnxruntime" else [])
        missing = [module for module in needed if importlib.util.find_spec(module) is None]
        if missing:
            print(f"{name}: {' and '.join(missing)} is not installed")
        elif name == "onnxruntime":
            onnxruntime(options.smoke, 1 if options.smoke else options.repeat)
        else:
            models = ["resnet50"] if options.smoke else options.models.split(",")
            print_rows(name, PLANNERS[name](models, 64 if options.smoke else options.side))


if __name__ == "__main__":
    main()
