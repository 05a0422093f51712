# SPDX-License-Identifier: Apache-2.0
"""A real training loop, recorded: the device pool finds it, plans it, and calls the device no more."""

import subprocess
import sys

import memoir

TRAINING = """
import sys
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
model = torch.nn.Sequential(torch.nn.Embedding(200, 64), torch.nn.TransformerEncoder(layer, 3), torch.nn.Linear(64, 200))
for step in range(int(sys.argv[1])):
    loss = model(torch.randint(0, 200, (8, 48))).square().mean()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.01 * weight.grad
    model.zero_grad()
"""


def recorded(path, steps):
    command = [sys.executable, "-m", "memoir", "record", "--only", "tensors", "-o", str(path), "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", TRAINING, str(steps)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
    return path


def test_a_recorded_training_loop_is_planned(tmp_path):
    traces = [recorded(tmp_path / f"{steps}.trace", steps) for steps in (7, 11)]
    calls = {}
    for setting in ("true", "false"):
        # Pools that move memory rather than grow: without a plan there is always something to do.
        results = [
            memoir.simulate(trace, f"memoir,granule=16KiB,patience=1000,learn={setting}") for trace in traces
        ]
        assert all(one.completed and one.peak_reserved < 1.03 * one.peak_live for one in results)
        calls[setting] = [one.calls.all for one in results]
    assert calls["true"][0] == calls["true"][1]  # four steps more, and no call more
    assert calls["false"][0] < calls["false"][1]
