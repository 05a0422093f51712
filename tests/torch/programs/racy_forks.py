# SPDX-License-Identifier: Apache-2.0
"""Forks while three threads call a module of ever other shapes, remembered or plain; each child calls it too. Prints how
many children hung or were wrong."""

import os
import random
import signal
import sys
import threading

import memoir.torch
import torch

forks, way = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)).eval()
model = memoir.torch.remember(net, max_slabs=3, max_plans=4) if way == "remembered" else net
inputs = [torch.randn(rows, 16) for rows in (4, 9, 30, 31, 64, 100, 7)]
with torch.inference_mode():
    expected = [net(x) for x in inputs]
stop = threading.Event()
failures = []


def decided():
    """Calls that followed a plan, or ran plain because learning would have cost more than they."""
    stats = memoir.torch.stats(model)
    return stats.plan_hits + stats.plain_passes


def call(seed):
    torch.set_num_threads(1)
    generator = random.Random(seed)
    with torch.inference_mode():
        while not stop.is_set():
            at = generator.randrange(len(inputs))
            if not torch.equal(model(inputs[at]), expected[at]):
                failures.append(seed)
            if way == "remembered" and generator.random() < 0.01:  # so that recordings go on
                memoir.torch.forget(model)


threads = [threading.Thread(target=call, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
bad = 0
for _ in range(forks):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # who hangs is ended, and counted
        good = True
        with torch.inference_mode():
            before = decided() if way == "remembered" else 0
            for _ in range(8):
                for x, result in zip(inputs, expected, strict=True):
                    good = good and torch.equal(model(x), result)
            if way == "remembered":
                good = good and decided() > before
        os._exit(0 if good else 1)
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads:
    thread.join()
assert not failures
print("bad", bad)
