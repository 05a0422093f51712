# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the benchmark times PyTorch")
if importlib.util.find_spec("torchvision") is None:  # importing it takes seconds, and few tests need it
    pytest.skip("the benchmark's networks are torchvision's", allow_module_level=True)

BENCH = Path(__file__).resolve().parents[2] / "bench" / "torch"
sys.path.insert(0, str(BENCH))


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks on a shared machine: waiting for a second thread costs more than it brings."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def bench() -> Path:
    """The folder of torch_latency.py, nets.py and latency/."""
    return BENCH
