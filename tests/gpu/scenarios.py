# SPDX-License-Identifier: Apache-2.0
"""What must hold on a real GPU. Each scenario runs in a process of its own, since a process has one allocator:

python tests/gpu/scenarios.py training memoir

prints one line of JSON, or fails. test_gpu.py runs them under pytest, bench/gpu.py without it."""

from __future__ import annotations

import gc
import json
import sys
import threading

import torch

MiB = 2**20


def start(policy: str, **options) -> None:
    """policy "native" is PyTorch's own allocator, for what the others' results are compared with."""
    if policy != "native":
        import memoir.torch

        memoir.torch.use_pool(policy, **options)


def stats() -> dict:
    import memoir.torch

    return memoir.torch.stats()


def small_transformer() -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()


def training(policy: str) -> dict:
    """Steps over inputs of varying length: the losses are those of PyTorch's allocator."""
    start(policy)
    model = small_transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(20):
        length = int(torch.randint(16, 400, (1,), generator=generator))
        x = torch.randn(4, length, 256, generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    return {"losses": losses}


def accounting(policy: str) -> dict:
    """Statistics follow what lives; memory goes back to the device."""
    start(policy, history=1000)
    before = torch.cuda.mem_get_info()[0]
    x = torch.ones(64 * MiB, dtype=torch.uint8, device="cuda")
    y = torch.ones(3, device="cuda")
    held = stats()
    assert held["allocated_bytes.all.current"] == 64 * MiB + 12, held
    assert held["reserved_bytes.all.current"] >= 64 * MiB + 12
    assert x.sum().item() == 64 * MiB and y.sum().item() == 3
    base = x.data_ptr()
    assert base % 256 == 0
    del x
    torch.cuda.empty_cache()
    assert stats()["allocated_bytes.all.current"] < MiB
    if policy != "rmm":  # which never gives anything back
        assert before - torch.cuda.mem_get_info()[0] < 64 * MiB
    import memoir.torch

    taken = memoir.torch.snapshot()
    assert any(entry["action"] == "alloc" for entry in taken["device_traces"][0])
    return stats()


def out_of_memory(policy: str) -> dict:
    """An error that PyTorch's users know how to catch, after which work goes on."""
    start(policy, cap=512 * MiB)
    kept = [torch.empty(40 * MiB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    try:
        torch.empty(600 * MiB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    else:
        raise AssertionError("no error")
    assert "out of memory on device 0" in text and "600.00 MiB asked for" in text, text
    assert "No layout could have held it" in text and "320.00 MiB in 8" in text, text
    kept.clear()
    if policy != "rmm":
        assert torch.zeros(400 * MiB, dtype=torch.uint8, device="cuda").sum().item() == 0
    assert stats()["reserved_bytes.all.peak"] <= 512 * MiB
    return {"text": text}


def fraction(policy: str) -> dict:
    start(policy)
    torch.cuda.set_per_process_memory_fraction(0.01)
    size = torch.cuda.get_device_properties(0).total_memory // 50
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.empty(size, dtype=torch.uint8, device="cuda")
        return {}
    raise AssertionError("a fraction is not kept to")


def streams(policy: str) -> dict:
    """Bytes freed while another stream still reads them are left alone; nothing is shared by accident."""
    start(policy, cap=2048 * MiB)
    side, third = torch.cuda.Stream(), torch.cuda.Stream()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for i in range(200):
        x = torch.full((4 * MiB,), i % 100, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            seen = (x != i % 100).sum()
        x.record_stream(side)
        del x  # the default stream goes on at once, and may get other bytes only
        torch.full((4 * MiB,), -1, dtype=torch.int32, device="cuda")
        with torch.cuda.stream(third):
            torch.full((4 * MiB,), -2, dtype=torch.int32, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        seen.record_stream(torch.cuda.current_stream())
        wrong += seen
    assert wrong.item() == 0
    return stats()


def graphs(policy: str) -> dict:
    """Captured graphs replay right while others allocate and free; their memory goes back with them."""
    start(policy)
    model = small_transformer().eval()
    x = torch.randn(4, 64, 256, device="cuda")
    with torch.no_grad():
        wanted = model(x).clone()
        captured = []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        pool = torch.cuda.graph_pool_handle()
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = model(x)
            captured.append((graph, y))
        torch.cuda.empty_cache()
        for i in range(20):
            noise = [torch.full((n * MiB,), 7.0, device="cuda") for n in (1, 5, 20)]
            for graph, y in captured:
                graph.replay()
                assert torch.allclose(y, wanted, rtol=1e-4, atol=1e-4), i
            assert all((n == 7).all() for n in noise)
            del noise
            torch.cuda.empty_cache()
    before = stats()["reserved_bytes.all.current"]
    del graph, y, captured
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after = stats()["reserved_bytes.all.current"]
    assert policy == "rmm" or after < before
    return {"with_graphs": before, "after": after}


def threads(policy: str) -> dict:
    start(policy, cap=4096 * MiB)
    failures = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(200):
                    n = int(torch.randint(1, 4 * MiB, (1,), generator=generator))
                    x = torch.full((n,), i, dtype=torch.int32, device="cuda")
                    if not (x == i).all():
                        failures.append((seed, i))
        except Exception as error:
            failures.append(repr(error))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[:3]
    assert stats()["allocation.all.current"] == 0
    return stats()


def mempool(policy: str) -> dict:
    """Under PyTorch's own allocator, a MemPool that takes its segments from memoir."""
    import memoir.torch

    pool = memoir.torch.pool(policy, cap=256 * MiB)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(64 * MiB, dtype=torch.uint8, device="cuda")
    y = torch.ones(64 * MiB, dtype=torch.uint8, device="cuda")
    held = memoir.torch.stats(pool)
    assert x.sum().item() + y.sum().item() == 128 * MiB
    assert 64 * MiB <= held["allocated_bytes.all.current"] < 128 * MiB, held
    try:
        with torch.cuda.use_mem_pool(pool):
            torch.empty(512 * MiB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return held
    raise AssertionError("the cap is not kept to")


def steady(policy: str) -> dict:
    """From the third iteration of a loop that repeats on, no call takes memory from the device or gives it back."""
    start(policy)
    model = small_transformer()
    calls = []
    for _ in range(8):
        loss = model(torch.ones(8, 128, 256, device="cuda")).square().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
        del loss
        now = stats()
        calls.append(now["num_device_alloc"] + now["num_device_free"])
    assert calls[3] == calls[-1], calls
    return {"calls": calls}


EVERY = (training, accounting, out_of_memory, fraction, streams, graphs, threads, steady)
POLICIES = ("memoir", "pytorch", "expandable", "split", "binned", "rmm", "span")
CASES = [
    *((one.__name__, policy) for policy in POLICIES for one in EVERY),
    ("mempool", "direct"),
    ("mempool", "memoir_plain"),
    ("mempool", "memoir"),
]

if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
