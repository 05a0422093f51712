# SPDX-License-Identifier: Apache-2.0
"""One run of bench/gpu.py, in a process of its own:

    gpu_worker.py about
    gpu_worker.py loop ALLOCATOR LENGTHS STEPS WIDTH [CAP]
    gpu_worker.py map PIECE
    gpu_worker.py prices PIECE
    gpu_worker.py allocate ALLOCATOR COUNT

ALLOCATOR is one of PyTorch's (set by PYTORCH_ALLOC_CONF), or a policy of memoir's. Prints one line of JSON."""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable

PYTORCH = ("default", "expandable_segments", "cudaMallocAsync")


def start(allocator: str, cap: int | None = None) -> None:
    import torch

    if allocator not in PYTORCH:
        import memoir.torch

        memoir.torch.use_pool(allocator, cap=cap)
    elif cap is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total))


def statistics_of(allocator: str) -> dict:
    import torch

    if allocator in PYTORCH:
        return torch.cuda.memory_stats()
    import memoir.torch

    return memoir.torch.stats()


def about() -> dict:
    import torch

    if not torch.cuda.is_available():
        return {"device": None, "why": f"torch {torch.__version__} finds no CUDA device"}
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "total_bytes": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
    }


def lengths_of(kind: str, steps: int) -> list[tuple[int, int]]:
    """Sequences and their length, step by step, the same for every allocator: "varying", or four "repeating" in turn."""
    import torch

    generator = torch.Generator().manual_seed(1)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    drawn = [(draw(2, 9), draw(32, 1025)) for _ in range(steps if kind == "varying" else 4)]
    return [drawn[step % len(drawn)] for step in range(steps)]


def loop(allocator: str, lengths: str, steps: int, width: int, cap: int | None = None) -> dict:
    """Training steps of a small transformer."""
    start(allocator, cap)
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.1, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    times: list[float] = []
    device_calls: list[int] = []
    failed = None
    try:
        model = model.cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for batch, length in lengths_of(lengths, steps):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            x = torch.randn(batch, length, width, device="cuda")
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            del x, loss
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            seen = statistics_of(allocator)
            device_calls.append(seen["num_device_alloc"] + seen["num_device_free"])
    except torch.OutOfMemoryError as error:
        failed = str(error)
    seen = statistics_of(allocator)
    calls = ("num_alloc_retries", "num_sync_all_streams", "num_stream_waits", "num_planned_allocs")
    return {
        "steps": len(times),
        "out_of_memory": failed,
        "times": times,
        "device_calls": device_calls,
        # cudaMallocAsync counts no bytes as they were asked for
        "peak_live": seen.get("requested_bytes.all.peak") or seen["allocated_bytes.all.peak"],
        "peak_reserved": seen["reserved_bytes.all.peak"],
        **{name: seen[name] for name in calls if name in seen},
    }


def map_(piece: str) -> dict:
    """Seconds to take 4 GiB from the device and to give them back, in pieces of this size."""
    import memoir.torch

    memoir.torch.use_pool("span", piece=piece)
    import torch

    torch.empty(1, device="cuda")
    seconds: dict[str, list[float]] = {"take": [], "give_back": []}
    for _ in range(5):
        begin = time.perf_counter()
        x = torch.empty(4 * 2**30, dtype=torch.uint8, device="cuda")
        seconds["take"].append(time.perf_counter() - begin)
        del x
        begin = time.perf_counter()
        torch.cuda.empty_cache()
        seconds["give_back"].append(time.perf_counter() - begin)
    return seconds


class _Place(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Memory(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("place", _Place),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("place", _Place), ("flags", ctypes.c_int))


def prices(piece: int, count: int = 64, rounds: int = 5) -> dict:
    """Microseconds that each call to the driver takes for memory of this size: the median of the rounds, each over
    `count` calls in a row, with nothing queued on the device."""
    import torch

    torch.empty(1, device="cuda")
    cuda = ctypes.CDLL("libcuda.so.1")
    size, big, made = (
        ctypes.c_size_t(piece),
        ctypes.c_size_t(piece * count),
        _Memory(type=1, place=_Place(1, 0)),
    )
    access, stream = _Access(_Place(1, 0), 3), ctypes.c_void_p(torch.cuda.Stream().cuda_stream)
    base, event, context = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    handles, pointers = (ctypes.c_uint64 * count)(), (ctypes.c_uint64 * count)()
    seconds: dict[str, list[float]] = {}

    def call(name: str, *arguments: object) -> None:
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name} answers {result}")

    def timed(name: str, each: Callable[[int], tuple], symbol: str = "") -> None:
        begin = time.perf_counter()
        for i in range(count):
            call(symbol or name, *each(i))
        seconds.setdefault(name, []).append((time.perf_counter() - begin) / count)

    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    call(
        "cuMemAddressReserve",
        ctypes.byref(base),
        big,
        ctypes.c_size_t(0),
        ctypes.c_uint64(0),
        ctypes.c_uint64(0),
    )
    call("cuEventCreate", ctypes.byref(event), 2)
    at = [ctypes.c_uint64(base.value + i * piece) for i in range(count)]
    zero = ctypes.c_uint64(0)
    for _ in range(rounds):
        timed("cuMemCreate", lambda i: (ctypes.byref(handles, 8 * i), size, ctypes.byref(made), zero))
        timed("cuMemMap", lambda i: (at[i], size, ctypes.c_size_t(0), ctypes.c_uint64(handles[i]), zero))
        timed("cuMemSetAccess", lambda i: (at[i], size, ctypes.byref(access), ctypes.c_size_t(1)))
        timed("cuMemUnmap", lambda i: (at[i], size))
        timed("cuMemRelease", lambda i: (ctypes.c_uint64(handles[i]),))
        timed("cuMemAlloc", lambda i: (ctypes.byref(pointers, 8 * i), size), "cuMemAlloc_v2")
        timed("cuMemFree", lambda i: (ctypes.c_uint64(pointers[i]),), "cuMemFree_v2")
        timed("cuCtxSynchronize", lambda i: ())
        call("cuEventRecord", event, None)
        timed("cuStreamWaitEvent", lambda i: (stream, event, 0))
        torch.cuda.synchronize()
    return {"us": {name: 1e6 * statistics.median(each) for name, each in seconds.items()}}


def allocate(allocator: str, count: int) -> dict:
    """Nanoseconds per torch.empty and its free, of sizes that come back, with ten tensors live; PyTorch's own part
    included."""
    start(allocator)
    import torch

    sizes = [512, 4096, 65536, 1 << 20, 5 << 20, 1000, 300_000, 2 << 20]
    live: list = []
    results = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        for i in range(count // 5):
            live.append(torch.empty(sizes[i % 8], dtype=torch.uint8, device="cuda"))
            if len(live) > 10:
                live.pop(0)
        results.append((time.perf_counter_ns() - begin) / (count // 5))
    return {"ns": results}


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "about":
        result = about()
    elif verb == "loop":
        result = loop(words[0], words[1], *map(int, words[2:]))
    elif verb == "map":
        result = map_(words[0])
    elif verb == "prices":
        result = prices(int(words[0]))
    else:
        result = allocate(words[0], int(words[1]))
    print(json.dumps(result), flush=True)
    time.sleep(0.1)  # a thread of autograd that wants Python's lock while Python ends would abort
