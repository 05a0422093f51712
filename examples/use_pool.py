# SPDX-License-Identifier: Apache-2.0
"""A training loop on a GPU whose memory is memoir's pool, with its figures at the end.

python examples/use_pool.py
"""

import sys

import memoir.torch
import torch

if not torch.cuda.is_available():
    sys.exit("this example needs a GPU; `memoir simulate` tries the same pool on a recording without one")

memoir.torch.use_pool()  # before anything is on the GPU
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(20):
    x = torch.randn(64 + 8 * step, 1024, device="cuda")  # lengths that vary are what a pool is for
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
held = memoir.torch.device_stats()
print({name: held[name] for name in sorted(held) if isinstance(held[name], int)})
