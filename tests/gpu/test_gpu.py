# SPDX-License-Identifier: Apache-2.0
import pytest

torch = pytest.importorskip("torch", reason="memoir's pools for GPUs are tested through PyTorch")
import scenarios  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs an NVIDIA GPU; bench/gpu.py runs these there"
    ),
]


@pytest.fixture(scope="module")
def outcomes() -> dict:
    cases = [("training", "native"), *scenarios.CASES]
    return {(one["scenario"], one["policy"]): one for one in scenarios.in_processes(cases)}


@pytest.mark.parametrize(("scenario", "policy"), scenarios.CASES)
def test_scenario(outcomes, scenario, policy):
    outcome = outcomes[scenario, policy]
    assert "result" in outcome, outcome["error"]
    if scenario == "training":
        native = outcomes["training", "native"]["result"]["numbers"]
        assert scenarios.same_numbers(outcome["result"]["numbers"], native)
