# SPDX-License-Identifier: Apache-2.0
"""Shapes and lengths that were never seen are planned at once, from what a few others allocated."""

import memoir.torch
import pytest
import torch


def recorded(model) -> int:
    return memoir.torch.stats(model).recorded_passes


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_generation_is_in_step_while_the_cache_grows(name):
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 100, "eos_token_id": None}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, bos_token_id=1, **common)
        net = transformers.GPT2LMHeadModel(config)
    elif name == "llama":
        config = transformers.LlamaConfig(
            num_hidden_layers=2, num_attention_heads=2, hidden_size=32, intermediate_size=64, **common
        )
        net = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.T5Config(
            num_layers=2,
            num_decoder_layers=2,
            d_model=32,
            d_kv=16,
            num_heads=2,
            d_ff=64,
            decoder_start_token_id=0,
            pad_token_id=0,
            **common,
        )
        net = transformers.T5ForConditionalGeneration(config)
    net = net.eval()
    model = memoir.torch.remember(net)
    how = {"max_new_tokens": 40, "do_sample": False, "num_beams": 3 if name == "t5" else 1}
    with torch.no_grad():
        for prompt in (9, 14):
            ids = torch.randint(2, 100, (1, prompt))
            model.generate(ids, **how | {"max_new_tokens": 10})
            before = memoir.torch.stats(model)
            assert torch.equal(model.generate(ids, **how), net.generate(ids, **how))
            after = memoir.torch.stats(model)
            passes = after.calls - before.calls
            assert passes >= 39
            assert after.in_step_passes - before.in_step_passes >= 0.95 * passes
    assert recorded(model) <= 8


class SmallUNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inwards = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.down = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.time = torch.nn.Linear(16, 16)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.outwards = torch.nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, sample, timestep: int, prompt: str = ""):
        angles = timestep * torch.exp(-torch.arange(8) / 4)
        embedded = self.time(torch.cat([angles.sin(), angles.cos()]))
        high = torch.relu(self.inwards(sample))
        low = torch.relu(self.down(high) + embedded[None, :, None, None])
        return self.outwards(torch.cat([high, self.up(low)], 1))


def test_integers_and_strings_do_not_matter_until_allocations_differ():
    net = SmallUNet().eval()
    model = memoir.torch.remember(net)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        for timestep in range(202):
            arguments = (x, 1000 - timestep, f"prompt {timestep}")
            result = model(*arguments)
            if timestep % 20 == 0:
                assert torch.equal(result, net(*arguments))
    stats = memoir.torch.stats(model)
    assert stats.recorded_passes <= 3
    assert stats.in_step_passes >= 198


def test_values_that_decide_what_is_allocated_are_told_apart():
    def work(x, repeats, mode):
        for _ in range(repeats):
            x = x * 2 if mode == "double" else (x + 1).relu()
        return x.sum()

    model = memoir.torch.remember(work)
    x = torch.ones(5000)
    with torch.inference_mode():
        ways = [(2, "double"), (7, "double"), (4, "other")]
        for call in range(90):
            assert torch.equal(model(x, *ways[call % 3]), work(x, *ways[call % 3]))
        before = memoir.torch.stats(model)
        for call in range(30):
            model(x, *ways[call % 3])
        after = memoir.torch.stats(model)
    assert after.in_step_passes - before.in_step_passes == 30
    assert after.recorded_passes < 30


def test_shapes_that_never_repeat_are_planned_at_once():
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 8),
    ).eval()
    model = memoir.torch.remember(net)
    with torch.inference_mode():
        for rows in range(10, 82):
            x = torch.randn(rows, 32)
            assert torch.equal(model(x), net(x))
            stats = memoir.torch.stats(model)
            assert stats.arena_size <= 1.3 * max(stats.peak_live_bytes, 1)
        for rows in (500, 7, 3000):
            x = torch.randn(rows, 32)
            assert torch.equal(model(x), net(x))
    stats = memoir.torch.stats(model)
    assert stats.recorded_passes <= 3
    assert stats.in_step_passes >= 70


def test_image_sizes_that_never_repeat_are_mostly_planned():
    """Strided convolutions round their sizes: what they round like is learned from the passes themselves."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=2, padding=3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, stride=2, padding=1),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    ).eval()
    model = memoir.torch.remember(net)
    with torch.inference_mode():
        for height in range(40, 112):
            x = torch.randn(1, 3, height, 48)
            assert torch.equal(model(x), net(x))
    stats = memoir.torch.stats(model)
    assert stats.plain_passes == 0
    assert stats.planned > 3 * stats.fallen_back
