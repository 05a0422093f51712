# SPDX-License-Identifier: Apache-2.0
"""Sequence models: what the core computes is what torch computes."""

import numpy as np
import pytest
from made_profiles import server
from memoir._core import LifetimeModel, network_tokens
from memoir.train.assembly import NETWORK, Parts, Settings, model_bytes
from memoir.train.contexts import read_contexts
from memoir.train.network import MOST_TOKENS, SPLITS, _vocabulary, fit_network, make_module, section

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def contexts():
    return read_contexts([server().profile()], 2.0)


def outputs_of(contexts, kind, module, hashes):
    stacks = [list(stack) for stack in contexts.stacks[:20]]
    tokens, begins = network_tokens(stacks, hashes, SPLITS[kind], MOST_TOKENS, 0)
    rows = []
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        numbers = torch.tensor(tokens[begin:end].astype(np.int64))[None]
        rows.append(module(numbers, torch.tensor([end - begin]))[0].detach().numpy())
    return stacks, np.array(rows)


@pytest.mark.parametrize("kind", ["lstm", "mingru"])
def test_the_core_answers_as_torch_does(contexts, kind):
    torch.manual_seed(3)
    hashes = _vocabulary(contexts.stacks, SPLITS[kind], 0)
    module = make_module(kind, len(hashes) + 3).eval()
    content = model_bytes(contexts, Settings(stages=NETWORK), Parts(network=section(kind, hashes, module)))
    model = LifetimeModel.from_bytes(content)
    stacks, wanted = outputs_of(contexts, kind, module, hashes)
    found = np.array([model.network_outputs(stack) for stack in stacks])
    assert np.abs(found - wanted).max() < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("kind", ["lstm", "mingru"])
def test_it_learns(contexts, kind):
    network = fit_network(contexts, kind)
    content = model_bytes(contexts, Settings(stages=NETWORK), Parts(network=network))
    said = LifetimeModel.from_bytes(content).predict_many(contexts.raw, contexts.sizes.tolist())
    right = (said["wall"].argmax(axis=1) == contexts.classes) & (said["stage"] == 4)
    assert right.mean() > 0.9
