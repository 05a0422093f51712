# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="memoir's pools for GPUs are tested through PyTorch")
import scenarios  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs an NVIDIA GPU; bench/gpu.py runs these there"
    ),
]


def run(scenario: str, policy: str) -> dict:
    program = Path(__file__).with_name("scenarios.py")
    done = subprocess.run(
        [sys.executable, str(program), scenario, policy], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def native_losses() -> list[float]:
    return run("training", "native")["losses"]


@pytest.mark.parametrize(("scenario", "policy"), scenarios.CASES)
def test_scenario(scenario, policy, request):
    result = run(scenario, policy)
    if scenario == "training":
        assert result["losses"] == pytest.approx(request.getfixturevalue("native_losses"), rel=1e-3)
