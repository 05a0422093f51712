# SPDX-License-Identifier: Apache-2.0
"""memoir.torch's GPU side over a CUDA driver without a GPU: each test runs in a process of its own, since a process has
one allocator."""

import os

import build_fake_cuda
import pytest
from torch_children import TorchChildren

torch = pytest.importorskip("torch", reason="memoir.torch needs PyTorch")
if torch.version.cuda is None:
    pytest.skip("this PyTorch was built without CUDA", allow_module_level=True)

PRELUDE = """
import ctypes, json, os, sys
import torch
import memoir, memoir.torch
from memoir.torch import _library
fake = ctypes.CDLL(os.environ["MEMOIR_CUDA_DRIVER"])
fake.fake_stream_create.restype = ctypes.c_void_p
fake.fake_used.restype = ctypes.c_uint64
fake.fake_misuse.restype = ctypes.c_char_p
fake.fake_reset.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
fake.fake_launch_fill.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
fake.fake_reset(2, 64 << 20, 2 << 20)
MiB = 1 << 20
def allocate(size, device=0, stream=None):   # as PyTorch calls it; sizes that fit: a refusal ends the process here
    function = _library.library().memoir_cuda_alloc
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return function(size, device, stream)
def free(pointer, size, device=0, stream=None):
    function = _library.library().memoir_cuda_free
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    function(pointer, size, device, stream)
def error(call):
    try:
        call()
    except memoir.Error as error:
        return str(error)
    return ""
"""


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory):
    """The fake driver of the C++ tests (tests/support/fake_cuda)."""
    return build_fake_cuda.build_driver(tmp_path_factory.mktemp("fake_cuda"))


@pytest.fixture(scope="session")
def children():
    children = TorchChildren()
    yield children
    children.close()


@pytest.fixture
def run(fake_driver, children):
    """Runs a piece of Python after PRELUDE; returns what it printed."""

    def run_code(code: str, driver=fake_driver) -> str:
        done = children.run(PRELUDE + code, {**os.environ, "MEMOIR_CUDA_DRIVER": str(driver)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_code
