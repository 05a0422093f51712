# SPDX-License-Identifier: Apache-2.0
"""The networks: all are there, every pass does the same work, and memoir changes no bit of an output."""

import nets
import pytest
import torch
from latency.worker import digest

THESIS = (
    "dcgan deeplabv3_resnet50 fcn_resnet50 googlenet wide_resnet50_2 vgg16 inception_v3 regnet_x_8gf "
    "squeezenet1_0 mnasnet0_75 efficientnet_b4 resnext101_32x8d resnet50"
)


def built(name, **options):
    if name.startswith("qwen"):
        pytest.importorskip("transformers")
    return nets.build(name, **({"batch": 2, "side": 64} | options))


def test_the_evaluation_is_the_thesis_and_two_more_kinds():
    assert set(nets.EVALUATION) == {*THESIS.split(), "vit_b_16", "qwen_prefill", "qwen_decode"}


@pytest.mark.parametrize("name", nets.SMALL)
def test_a_pass_repeats_itself_and_a_seed_repeats_the_network(name):
    workload, twin = built(name), built(name)
    other = built(name, seed=1)
    with torch.inference_mode():
        first = digest(workload.module(*workload.arguments()))
        again = workload.arguments()
        assert [digest(workload.module(*again)) for _ in range(3)] == [first] * 3
        assert digest(twin.module(*twin.arguments())) == first
        assert digest(other.module(*other.arguments())) != first
        assert digest(workload.module(*workload.arguments(seed=5))) != first


@pytest.mark.parametrize("name", nets.SMALL)
def test_mapped_weights_are_the_drawn_ones(name, tmp_path):
    workload = built(name)
    nets.save_weights(workload, tmp_path / "weights.pt")
    mapped = built(name, weights=tmp_path / "weights.pt")
    parameters = list(mapped.module.parameters())
    assert len(parameters) == len(list(workload.module.parameters()))  # tied weights are still tied
    with torch.inference_mode():
        assert digest(mapped.module(*mapped.arguments())) == digest(workload.module(*workload.arguments()))


@pytest.mark.parametrize("name", nets.SMALL)
def test_activations_are_neither_lost_nor_overflowing(name):
    workload = built(name)
    sizes = []
    for module in workload.module.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
            module.register_forward_hook(lambda _, __, output: sizes.append(output.abs().max().item()))
    with torch.inference_mode():
        workload.module(*workload.arguments())
    assert sizes and all(1e-6 < size < 1e6 for size in sizes)


def test_dcgan_takes_the_sides_of_the_evaluation():
    for side in (64, 128, 256):
        for name in ("dcgan", "dcgan_generator"):
            workload = nets.build(name, batch=1, side=side)
            with torch.inference_mode():
                output = workload.module(*workload.arguments())
            assert output.shape == ((1, 3, side, side) if "generator" in name else (1, (side // 16 - 3) ** 2))


def test_a_side_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="inception_v3 needs a side of at least 75 pixels"):
        nets.build("inception_v3", batch=1, side=64)


@pytest.mark.parametrize("name", nets.SMALL)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_remembered_outputs_are_bit_for_bit_plain_pytorch_s(name, mode):
    memoir_torch = pytest.importorskip("memoir.torch")
    workload = built(name)
    with mode():
        inputs = [workload.arguments(), workload.arguments(seed=1)]
        expected = [digest(workload.module(*arguments)) for arguments in inputs]
        model = memoir_torch.remember(workload.module)
        order = [0, 0, 1, 0, 1]
        assert [digest(model(*inputs[turn])) for turn in order] == [expected[turn] for turn in order]
    stats = memoir_torch.stats(model)
    assert stats.planned > 0 and stats.fallen_back == 0
