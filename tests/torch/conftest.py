# SPDX-License-Identifier: Apache-2.0
import pytest

torch = pytest.importorskip("torch", reason="memoir.torch needs PyTorch")

from memoir.torch import memory  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def own_slabs():
    """No test finds what another one left in the slabs that all callables share."""
    memory._torch.SlabSet.of_process().retire_all()


@pytest.fixture(autouse=True)
def learning_is_free(monkeypatch, request):
    """Tests count what is learned, of passes that are too short for it: what that costs does not matter, unless a test
    wants `ledger`."""
    if "ledger" not in request.fixturenames:
        monkeypatch.setattr(memory, "new_ledger", lambda: None)


@pytest.fixture
def ledger():
    """Learning costs what it costs."""


@pytest.fixture
def small_net():
    """Convolutions, a pool with indices inside its kernel, batch norm, in-place activations, a linear head."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3),
        torch.nn.GELU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 10),
    )
