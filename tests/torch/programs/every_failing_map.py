# SPDX-License-Identifier: Apache-2.0
"""Each call of mmap and its like that a remembered program makes fails once, in a child of its own: alone, and with all
that come after it for a while. What the callable returns is what it returns without memoir, then and later."""

import ctypes
import os
import signal
import sys

import memoir.torch
import torch

from memoir import _torch

STEP = int(sys.argv[1])  # each STEP-th call
torch.set_num_threads(1)
maps = ctypes.CDLL(None)
maps.failing_maps_set.argtypes = [ctypes.c_long, ctypes.c_long]
maps.failing_maps_calls.restype = ctypes.c_long
NEVER = 2**40


def work(x):
    y = torch.nn.functional.pad(x, (1, 1)) * 2
    z = torch.cat([y, y + 1]).relu()
    return (z.sum(), z[: x.shape[0]].clone())


INPUTS = [
    torch.arange(rows * 5000, dtype=torch.float32).reshape(rows, 5000) % 7 for rows in (4, 4, 4, 9, 9, 12, 40)
]
EXPECTED = [work(x) for x in INPUTS]


def same(results):
    return all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))


def pass_through(model):
    return all(same((model(x), expected)) for x, expected in zip(INPUTS, EXPECTED, strict=True))


def run(begin, end):
    """In a child that remembers for the first time. The number of calls that it made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        maps.failing_maps_set(begin, end)
        good = True
        try:
            model = memoir.torch.remember(work)
            good = pass_through(model)
        except BaseException as error:
            print(f"calls [{begin}, {end}): {error!r}", flush=True)
            good = False
        made = maps.failing_maps_calls()
        maps.failing_maps_set(NEVER, NEVER)
        good = good and not _torch.in_pass()
        # It is tried again, after as many plain calls as a busy machine makes learning cost.
        for _ in range(500):
            good = good and pass_through(model)
            stats = memoir.torch.stats(model)
            if stats.plan_hits >= 30:
                break
        if good and stats.plan_hits < 30:
            print(f"calls [{begin}, {end}): {stats}", flush=True)
            good = False
        os.write(writer, str(made).encode())
        os._exit(0 if good else 1)
    os.close(writer)
    made = os.read(reader, 100)
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"calls [{begin}, {end}): status {status}"
    return int(made)


calls = run(NEVER, NEVER)
assert calls > 10, calls
for call in range(0, calls, STEP):
    for several in (1, 5, NEVER):
        run(call, call + several)
print("calls", calls)
