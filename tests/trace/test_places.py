# SPDX-License-Identifier: Apache-2.0
"""Stacks in one line: the frames that a reader knows, out of those that every tensor has."""

import sys
from pathlib import Path

import pytest
from memoir._core import EventKind
from memoir.traces.places import Places

sys.path.append(str(Path(__file__).parents[1] / "formats"))

from snapshots import BASE, LINEAR, MAIN, RELU, entry, frame, imported, snapshot  # noqa: E402

EMPTY = frame("at::detail::empty_generic(c10::ArrayRef<long>, std::map<int, at::Tensor> > const&)")
MUL = frame("at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)")
SCALAR = frame("at::_ops::mul_Scalar::redispatch(c10::DispatchKeySet, at::Tensor const&)")
INTERPRETER = frame("_PyEval_EvalFrameDefault", "/build/Python-3.11.7/Python/ceval.c", 4769)
OF_TORCH = frame("linear", "/x/lib/python3.11/site-packages/torch/nn/functional.py", 2388)
CALL = frame("_call_impl", "/x/lib/python3.11/site-packages/torch/nn/modules/module.py", 1789)
BACKWARD = frame(
    "torch::autograd::generated::PowBackward0::apply(std::vector<at::Tensor>&&)", "Functions.cpp", 0
)
THREAD = frame("start_thread", "./nptl/./nptl/pthread_create.c", 442)


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ([LINEAR, MAIN], "/srv/model.py:54 forward"),
        ([RELU, MAIN], "C:\\model files\\act.py:7 forward"),
        ([EMPTY, MUL, INTERPRETER, LINEAR, MAIN], "/srv/model.py:54 forward > mul_Tensor"),
        (
            [EMPTY, MUL, OF_TORCH, INTERPRETER, CALL, LINEAR, CALL, MAIN],
            "/srv/model.py:54 forward > functional.py:2388 linear",
        ),
        ([EMPTY, OF_TORCH, CALL], "functional.py:2388 linear"),  # nobody's own line
        # The outermost operator that the node called, not those that called the node.
        (
            [EMPTY, MUL, SCALAR, BACKWARD, frame("at::_ops::add::call(x)"), THREAD],
            "PowBackward0 > mul_Scalar",
        ),
        ([EMPTY, MUL, THREAD], "mul_Tensor"),
        ([EMPTY, THREAD], EMPTY["name"]),
        ([frame("decoder"), frame("model")], "decoder"),
        ([], ""),
    ],
)
def test_the_place_of_a_stack(stack, place):
    trace = imported(snapshot([entry("alloc", BASE, 512, 1, frames=stack)]))
    allocated = trace.events[trace.events["kind"] == int(EventKind.kAllocate)]
    assert Places(trace).of(int(allocated["site"][0])) == place
