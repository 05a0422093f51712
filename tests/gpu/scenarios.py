# SPDX-License-Identifier: Apache-2.0
"""What must hold with PyTorch on a GPU. Each scenario runs in a process of its own, since a process has one allocator:

python tests/gpu/scenarios.py training memoir

prints one line of JSON, or fails, and

python tests/gpu/scenarios.py training:memoir graphs:split ...

runs many out of one process that has imported PyTorch, and prints a line of JSON for each: for test_gpu.py on a GPU,
test_scenarios.py on the tests' own device (tests/support/fake_cuda), and bench/gpu.py without pytest.

Bytes are checked through fills and copies alone, which the fake device does as a real one; what kernels compute is
checked where they do."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator

import torch

from memoir import _core

MiB = 2**20
KEEPS = ("rmm", "rmm_arena", "static_tensors")  # policies that never give anything back


def start(policy: str, **options) -> None:
    """policy "native" is PyTorch's own allocator, for what the others' results are compared with."""
    if policy != "native":
        import memoir.torch

        memoir.torch.use_pool(policy, **options)


def stats() -> dict:
    import memoir.torch

    return memoir.torch.stats()


def computes() -> bool:
    """False on the tests' own device, whose kernels do nothing but fill."""
    return not torch.cuda.get_device_name().startswith("Fake")


def holds(tensor: torch.Tensor, value) -> bool:
    return bool((tensor.cpu() == value).all())


def small_transformer() -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()


def training(policy: str) -> dict:
    """Steps over inputs of varying length teach a model what they do under PyTorch's allocator. The losses of a model that
    ends in a LayerNorm hardly tell; what it learned does."""
    start(policy)
    model = small_transformer()
    begin = torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)  # Adam would blow rounding up
    generator = torch.Generator().manual_seed(1)
    numbers = []
    for _ in range(12):
        length = int(torch.randint(16, 400, (1,), generator=generator))
        x = torch.randn(4, length, 256, generator=generator).cuda()
        weights = torch.randn(4, length, 256, generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        y = model(x)
        loss = (y * weights).sum() / length + y.square().mean()
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())
    if not computes():
        return {"numbers": None}
    learned = torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu() - begin
    numbers.append(learned.norm().item())
    for _ in range(8):
        direction = torch.randn(len(learned), generator=generator)
        numbers.append(torch.dot(learned, direction).item() / numbers[12])
    return {"numbers": numbers}


def same_numbers(some: list[float], others: list[float]) -> bool:
    """Of two runs of training(): atomics add in another order each time."""
    return all(abs(a - b) <= 5e-4 * max(1, abs(b)) for a, b in zip(some, others, strict=True))


def accounting(policy: str) -> dict:
    """Statistics follow what lives; memory goes back to the device."""
    start(policy, history=1000)
    before = torch.cuda.mem_get_info()[0]
    x = torch.ones(512 * MiB, dtype=torch.uint8, device="cuda")
    y = torch.ones(3, device="cuda")
    held = stats()
    assert held["allocated_bytes.all.current"] == 512 * MiB + 12, held
    assert held["reserved_bytes.all.current"] >= 512 * MiB + 12
    assert holds(x, 1) and holds(y, 1)
    base = x.data_ptr()
    assert base % 256 == 0
    del x
    torch.cuda.empty_cache()
    assert stats()["allocated_bytes.all.current"] < MiB
    if policy not in KEEPS:
        assert before - torch.cuda.mem_get_info()[0] < 256 * MiB  # the context grows with kernels
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
    if policy not in KEEPS:
        assert holds(torch.zeros(400 * MiB, dtype=torch.uint8, device="cuda"), 0)
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
    seen = []
    for i in range(100):
        x = torch.full((MiB,), i, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            seen.append((i, x.clone()))
        x.record_stream(side)
        del x  # the default stream goes on at once, and may get other bytes only
        torch.full((MiB,), -1, dtype=torch.int32, device="cuda")
        with torch.cuda.stream(third):
            torch.full((MiB,), -2, dtype=torch.int32, device="cuda")
        if len(seen) == 20:  # not each time: looking waits, and then nothing could go wrong
            with torch.cuda.stream(side):
                assert all(holds(copied, value) for value, copied in seen), i
            seen.clear()
    return stats()


def graphs(policy: str) -> dict:
    """Captured graphs replay right while others allocate and free; their memory goes back with them."""
    start(policy)
    model = small_transformer().eval()
    x = torch.randn(4, 64, 256, device="cuda")
    three = torch.full((MiB,), 3.0, device="cuda")
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
                passing = three.clone()
                copied = passing.clone()
                del passing
            captured.append((graph, y, copied))
        torch.cuda.empty_cache()
        for i in range(20):
            noise = [torch.full((n * MiB,), 7.0, device="cuda") for n in (1, 3, 8)]
            for graph, y, copied in captured:
                graph.replay()
                assert holds(copied, 3), i
                assert not computes() or torch.allclose(y, wanted, rtol=1e-4, atol=1e-4), i
            assert all(holds(one, 7) for one in noise), i
            del noise
            torch.cuda.empty_cache()
    before = stats()["reserved_bytes.all.current"]
    del graph, y, copied, captured
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after = stats()["reserved_bytes.all.current"]
    assert policy in KEEPS or after < before
    return {"with_graphs": before, "after": after}


def threads(policy: str) -> dict:
    start(policy, cap=4096 * MiB)
    failures = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(200):
                    n = int(torch.randint(1, MiB, (1,), generator=generator))
                    x = torch.full((n,), i, dtype=torch.int32, device="cuda")
                    if not holds(x, i):
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
    assert holds(x, 1) and holds(y, 1)
    assert 64 * MiB <= held["allocated_bytes.all.current"] < 128 * MiB, held
    try:
        with torch.cuda.use_mem_pool(pool):
            torch.empty(512 * MiB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return held
    raise AssertionError("the cap is not kept to")


def steady(policy: str) -> dict:
    """A loop that repeats comes to take no memory from the device and to give none back. ("calls" tells since when.)"""
    start(policy)
    model = small_transformer()
    calls = []
    for _ in range(16):
        loss = model(torch.ones(8, 128, 256, device="cuda")).square().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
        del loss
        now = stats()
        calls.append(now["num_device_alloc"] + now["num_device_free"])
    assert calls[11] == calls[-1], calls
    return {"calls": calls}


def program(policy: str) -> dict:
    """What programs do in addition to allocating: they ask for statistics, load data in other processes, run on several threads
    and devices, and end with tensors in their hands."""
    start(policy)
    assert torch.cuda.memory_allocated() == 0
    x = torch.ones(8 * MiB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == 8 * MiB <= torch.cuda.max_memory_reserved()
    del x
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 8 * MiB
    assert torch.accelerator.max_memory_allocated() == 8 * MiB
    torch.accelerator.empty_cache()
    assert policy in KEEPS or torch.cuda.memory_reserved() == torch.accelerator.memory_reserved() < 8 * MiB
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    assert "GPU reserved memory" in torch.cuda.memory_summary()
    assert all(
        block["state"] == "inactive" for one in torch.cuda.memory_snapshot() for block in one["blocks"]
    )
    torch.cuda.set_per_process_memory_fraction(0.75)
    assert torch.cuda.get_per_process_memory_fraction() == 0.75

    loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=16, num_workers=2, pin_memory=True)
    seen = [batch.to("cuda", non_blocking=True) for batch in loader]
    assert holds(torch.stack([one.cpu() for one in seen]).flatten(), torch.arange(64))

    for device in range(torch.cuda.device_count()):
        there = torch.full((MiB,), device, device=f"cuda:{device}")
        assert holds(there.to("cuda:0").to(f"cuda:{device}"), device)
    global left
    left = torch.ones(MiB, device="cuda")  # until the process ends
    return {"devices": torch.cuda.device_count(), **stats()}


def graphed_training(policy: str) -> dict:
    """torch.cuda.make_graphed_callables: forward and backward passes in graphs that share one pool."""
    start(policy)
    model = small_transformer()
    sample = torch.randn(4, 64, 256, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    for i in range(5):
        loss = graphed(torch.randn(4, 64, 256, device="cuda", requires_grad=True)).square().mean()
        loss.backward()
        kept = torch.full((MiB,), float(i), device="cuda")
        torch.cuda.empty_cache()
        assert holds(kept, i)
    return stats()


EVERY = (
    training,
    accounting,
    out_of_memory,
    fraction,
    streams,
    graphs,
    threads,
    steady,
    program,
    graphed_training,
)
# Of the policies that a device has, those that need no plan and do not call the device for every tensor.
POLICIES = tuple(
    name
    for name, _, settings in _core.policies("device")
    if name != "direct" and all(setting[0] != "plan" for setting in settings)
)
CASES = [
    *((one.__name__, policy) for policy in POLICIES for one in EVERY),
    ("mempool", "direct"),
    ("mempool", "memoir_plain"),
    ("mempool", "memoir"),
]


def in_processes(cases, environment: dict[str, str] | None = None) -> Iterator[dict]:
    """What `run_cases` prints, from a process of its own, as it comes."""
    command = [sys.executable, __file__, *(":".join(case) for case in cases)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def run_cases(cases, seconds: int = 300) -> None:
    """Each case in a child of this process, which must not have used CUDA. Prints, per case, {"scenario", "policy"} and
    "result" or "error"."""
    for scenario, policy in cases:
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                run_here(scenario, policy, said, seconds)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
        results = [line for line in text.splitlines() if line.startswith("{")]  # warnings may follow it
        good = status == 0 and results
        outcome = {"result": json.loads(results[-1])} if good else {"error": f"{text}\nended with {status}"}
        print(json.dumps({"scenario": scenario, "policy": policy, **outcome}), flush=True)


def run_here(scenario: str, policy: str, said, seconds: int) -> None:
    """Never returns. Ends as programs do, so that what PyTorch and memoir do at the end is done."""
    for stream in (1, 2):
        os.dup2(said.fileno(), stream)
    signal.alarm(seconds)
    try:
        result = globals()[scenario](policy)
        check_misuse()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    print(json.dumps(result), flush=True)
    time.sleep(0.1)  # a thread of autograd that wants Python's lock while Python ends would abort
    sys.exit(0)


def check_misuse() -> None:
    """The tests' own driver writes down what a real one would have made wrong bytes of."""
    if not computes():
        driver = ctypes.CDLL(None)
        driver.fake_misuse.restype = ctypes.c_char_p
        driver.fake_run_all()
        assert driver.fake_misuse_count() == 0, driver.fake_misuse(0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and ":" not in sys.argv[1]:
        print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
    else:
        run_cases([case.split(":") for case in sys.argv[1:]])
