#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a remembered model does on shapes and lengths that were never seen: how many passes are recorded, how many follow
their plan to the last allocation, how much larger than its load a plan is, and the time next to plain PyTorch's.

    bench/torch/every_shape.py [--programs gpt2,llama,t5,unet,squeezenet1_0,resnet50] [--shapes 72]
    bench/torch/every_shape.py --smoke                      one small language model and one small network

Language models are of random weights, four layers. Each shape is run once untimed (PyTorch makes its own caches for it),
then plain and remembered in random order. Ratios are remembered / plain with 95 % intervals.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator

import memoir.torch
import nets
import numpy as np
import torch
from memoir.bench.grid import shuffled
from memoir.bench.statistics import ratio_interval

Call = Callable[[torch.nn.Module], object]


def language_model(name: str) -> torch.nn.Module:
    import transformers

    common = {"vocab_size": 1000, "eos_token_id": None}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=128, bos_token_id=1, **common)
        return transformers.GPT2LMHeadModel(config)
    if name == "llama":
        config = transformers.LlamaConfig(
            num_hidden_layers=4, num_attention_heads=4, hidden_size=128, intermediate_size=256, **common
        )
        return transformers.LlamaForCausalLM(config)
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0}
    config = transformers.T5Config(
        num_layers=4, num_decoder_layers=4, d_model=128, d_kv=32, num_heads=4, d_ff=256, **ids, **common
    )
    return transformers.T5ForConditionalGeneration(config)


class UNet(torch.nn.Module):
    """Two scales, and a timestep that is an integer."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.inwards = torch.nn.Conv2d(3, width, 3, padding=1)
        self.down = torch.nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.time = torch.nn.Linear(16, 2 * width)
        self.up = torch.nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.outwards = torch.nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, sample: torch.Tensor, timestep: int) -> torch.Tensor:
        angles = timestep * torch.exp(-torch.arange(8) / 4)
        embedded = self.time(torch.cat([angles.sin(), angles.cos()]))
        high = torch.relu(self.inwards(sample))
        low = torch.relu(self.down(high) + embedded[None, :, None, None])
        return self.outwards(torch.cat([high, self.up(low)], 1))


def passes_of_images(shapes: int, side: int) -> Iterator[Call]:
    for i in range(shapes):
        x = torch.randn(1, 3, side + i, side)
        yield lambda module, x=x: module(x)


def passes_of_timesteps(count: int) -> Iterator[Call]:
    x = torch.randn(2, 3, 64, 64)
    for step in range(count):
        yield lambda module, step=step: module(x, 1000 - step)


def measure(module: torch.nn.Module, passes: Iterator[Call], skip: int) -> dict[str, object]:
    model = memoir.torch.remember(module)
    rows, loose = [], []
    for i, call in enumerate(passes):
        call(module)
        took = {}
        for way in shuffled(["plain", "remembered"], str(i)):
            begin = time.perf_counter()
            call(module if way == "plain" else model)
            took[way] = time.perf_counter() - begin
        stats = memoir.torch.stats(model)
        rows.append((took["plain"], took["remembered"]))
        if stats.peak_live_bytes:
            loose.append(stats.arena_size / stats.peak_live_bytes)
    return summary(memoir.torch.stats(model), loose) | {"time": ratio_interval(*np.array(rows[skip:]).T)}


def generate(name: str, tokens: int) -> dict[str, object]:
    """The passes of one generation after the first ten tokens, of a model that has seen none."""
    module = language_model(name).eval()
    model = memoir.torch.remember(module)
    how = {"do_sample": False, "num_beams": 3 if name == "t5" else 1}
    ids = torch.randint(3, 1000, (1, 16))
    first = module.generate(ids, max_new_tokens=4, **how)
    assert first is not None
    times: dict[str, list[float]] = {"plain": [], "remembered": []}
    model.generate(ids, max_new_tokens=10, **how)
    before = memoir.torch.stats(model)
    for repeat in range(4):
        for way in shuffled(list(times), f"{name}:{repeat}"):
            begin = time.perf_counter()
            (module if way == "plain" else model).generate(ids, max_new_tokens=tokens, **how)
            times[way].append(time.perf_counter() - begin)
    after = memoir.torch.stats(model)
    row = summary(after, [after.arena_size / max(after.peak_live_bytes, 1)])
    row["in step"] = (after.in_step_passes - before.in_step_passes) / (after.calls - before.calls)
    row["time"] = ratio_interval(np.array(times["plain"]), np.array(times["remembered"]))
    return row


def summary(stats: memoir.torch.Stats, loose: list[float]) -> dict[str, object]:
    return {
        "passes": stats.calls,
        "recorded": stats.recorded_passes,
        "plain": stats.plain_passes,
        "in step": stats.in_step_passes / max(stats.calls, 1),
        "planned": stats.planned / max(stats.planned + stats.fallen_back, 1),
        "arena": (math.exp(sum(map(math.log, loose)) / len(loose)), max(loose)) if loose else (1.0, 1.0),
    }


def run(program: str, options: argparse.Namespace) -> dict[str, object]:
    if program in ("gpt2", "llama", "t5"):
        return generate(program, options.tokens)
    if program == "unet":
        return measure(UNet().eval(), passes_of_timesteps(options.timesteps), skip=4)
    module = nets.build(program, batch=1, side=options.side).module
    return measure(module, passes_of_images(options.shapes, options.side), skip=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="gpt2,llama,t5,unet,squeezenet1_0,resnet50")
    parser.add_argument("--shapes", type=int, default=72)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--timesteps", type=int, default=202)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="does it work? two small programs")
    options = parser.parse_args()
    if options.smoke:
        options.programs, options.shapes, options.timesteps = "unet,dcgan", 6, 8
        options.side = 64
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(
        "| program | passes | recorded | plain | in step | planned | arena / load | remembered / plain [95 %] |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program in options.programs.split(","):
            row = run(program, options)
            ratio, low, high = row["time"]
            mean, worst = row["arena"]
            print(
                f"| {program} | {row['passes']} | {row['recorded']} | {row['plain']} | {row['in step']:.1%} | "
                f"{row['planned']:.1%} | {mean:.3f}, worst {worst:.3f} | {ratio:.3f} [{low:.3f}, {high:.3f}] |",
                flush=True,
            )


if __name__ == "__main__":
    main()
