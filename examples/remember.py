# SPDX-License-Identifier: Apache-2.0
"""A network whose passes run from one planned slab: the first call records, the next ones allocate nothing.

python examples/remember.py
"""

import memoir.torch
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.AdaptiveAvgPool2d(1)
).eval()
model = memoir.torch.remember(net)

with torch.inference_mode():
    for _ in range(5):
        x = torch.randn(4, 3, 64, 64)
        assert torch.equal(model(x), net(x))  # the same numbers, to the bit

stats = memoir.torch.stats(model)
print(
    f"{stats.plan_hits} of {stats.calls} calls followed the plan, in a slab of {stats.slab_bytes / 2**20:.1f} MiB"
)
