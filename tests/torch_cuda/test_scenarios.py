# SPDX-License-Identifier: Apache-2.0
"""The scenarios of tests/gpu, through all of PyTorch's own code, on the fake device: kernels compute nothing there, but
who gets which memory, and when, is as on a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="memoir.torch needs PyTorch")
import build_fake_cuda  # noqa: E402
import scenarios  # noqa: E402

# Every scenario under memoir's own pool; of the others, with --full, what each does in its own way. bench/gpu.py runs all,
# there too.
OTHERS = {
    *(("streams", policy) for policy in scenarios.POLICIES),
    ("graphs", "pytorch"),
    ("graphs", "span"),
    ("threads", "expandable"),
}
CASES = [case for case in scenarios.CASES if case[1] == "memoir" or case[0] == "mempool"]
CASES += [
    pytest.param(*case, marks=pytest.mark.full)
    for case in scenarios.CASES
    if case in OTHERS and case[1] != "memoir"
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    try:
        library = build_fake_cuda.build_runtime(tmp_path_factory.mktemp("fake_gpu"))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return build_fake_cuda.with_fake_gpu(library, devices=2)


@pytest.fixture(scope="module")
def outcomes(environment, request) -> dict:
    """Of the cases that this run is about."""
    here = [item.callspec.params for item in request.session.items if item.path == Path(__file__)
            and hasattr(item, "callspec")]  # fmt: skip
    cases = [(case["scenario"], case["policy"]) for case in here]
    return {(one["scenario"], one["policy"]): one for one in scenarios.in_processes(cases, environment)}


@pytest.mark.parametrize(("scenario", "policy"), CASES)
def test_scenario(outcomes, scenario, policy):
    outcome = outcomes[scenario, policy]
    assert "result" in outcome, outcome["error"]


def test_bytes_that_are_reused_too_early_are_found(environment):
    """A program that forgets record_stream: what the scenario is there for."""
    code = (
        "import scenarios, torch; torch.Tensor.record_stream = lambda *_: None; scenarios.streams('memoir')"
    )
    folder = Path(scenarios.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=folder
    )
    assert done.returncode != 0 and "assert all(holds(copied, value)" in done.stderr, done.stderr
