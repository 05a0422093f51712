# SPDX-License-Identifier: Apache-2.0
import os
import pickle
import subprocess
import sys
from pathlib import Path

import memoir.torch
import pytest
import torch

import memoir


def test_the_policies_are_listed_with_their_settings():
    pools = memoir.torch.pools()
    assert {"memoir", "pytorch", "expandable", "split", "binned", "rmm", "direct"} <= set(pools)
    assert pools["memoir"]["settings"]["slack"]["unit"] == "share"
    assert "piece" in pools["expandable"]["settings"]
    assert all(one["what"] for one in pools.values())


def test_what_cannot_be_changes_nothing_and_then_the_pool_takes_pytorchs_place(run):
    out = run("""
print(error(lambda: memoir.torch.use_pool("mermoir")))
print(error(lambda: memoir.torch.use_pool("memoir", slak=1)))
print(error(lambda: memoir.torch.use_pool("memoir", slack="much")))
for bad in ({"cap": 0}, {"cap": -1}, {"history": -1}):
    try:
        memoir.torch.use_pool(**bad)
        raise SystemExit("taken")
    except ValueError:
        pass
initialized, torch.cuda.is_initialized = torch.cuda.is_initialized, lambda: True
print(error(lambda: memoir.torch.use_pool()))
torch.cuda.is_initialized = initialized
memoir.torch.use_pool("memoir", cap=48 * MiB, history=100, slack=0.05)
assert fake.fake_calls(b"cuInit") == 0    # a process may still fork, and its child use CUDA
assert torch.cuda.memory._get_current_allocator().allocator() is not None
torch._C._cuda_getAllocator()
pointer = allocate(3 * MiB)
ctypes.memset(pointer, 1, 3 * MiB)
stats = memoir.torch.stats()
assert stats["policy"] == "memoir,slack=0.05" and stats["cap_bytes"] == 48 * MiB
assert stats["allocated_bytes.all.current"] == 3 * MiB
assert stats["reserved_bytes.all.peak"] == fake.fake_used(0) == 4 * MiB
assert stats["num_ooms"] == 0 and memoir.torch.stats(device=1)["active.all.current"] == 0
allocate(MiB, device=1)
assert memoir.torch.stats(device=1)["allocation.all.current"] == 1
free(pointer, 3 * MiB)
memoir.torch.reset_peak_stats()
assert memoir.torch.stats()["allocated_bytes.all.peak"] == 0
print(error(lambda: memoir.torch.use_pool("split")))
assert fake.fake_misuse_count() == 0, fake.fake_misuse(0)
""")
    lines = out.splitlines()
    assert "there is no policy 'mermoir'; did you mean 'memoir'?" in lines[0]
    assert "has no setting 'slak'; did you mean 'slack'?" in lines[1]
    assert "slack=much" in lines[2]
    assert lines[3] == "memoir.torch.use_pool must be called before the first use of CUDA in the process"
    assert "in use already, with policy memoir,slack=0.05" in lines[4]


def test_a_loop_is_planned_and_calls_the_device_no_more_which_the_statistics_tell(run):
    run("""
import random, time
fake.fake_reset(1, 512 << 20, 64 << 10)
memoir.torch.use_pool("memoir", patience=1000)    # it moves memory rather than grow: there is something to plan
random.seed(1)
step = [(random.choice((1 << 14, 1 << 20, 3 << 20)) + 512 * random.randrange(99), random.randrange(1, 25)) for _ in range(300)]
calls, planned = [], 0
for _ in range(100):      # a thread makes the plan, and a round begins it: which one, the machine decides
    live = []
    for at, (size, lives) in enumerate(step):
        for one in [one for one in live if one[0] <= at]:
            free(*one[1:])
            live.remove(one)
        live.append((at + lives, allocate(size), size))
    for one in live:
        free(*one[1:])
    stats = memoir.torch.stats()
    calls.append(stats["num_device_alloc"] + stats["num_device_free"])
    planned += stats["num_loop_plans"] > 0
    if planned == 5:
        break
    if not planned:
        time.sleep(0.02)
assert calls[1] > calls[0] and calls[-4] == calls[-1], calls
assert stats["num_loop_plans"] == 1 and stats["num_loop_plans_dropped"] == 0, stats
assert stats["num_planned_allocs"] >= 4 * len(step) and stats["num_departed_allocs"] == 0, stats
assert fake.fake_misuse_count() == 0, fake.fake_misuse(0)
""")


def test_without_a_driver_only_the_use_fails(tmp_path):
    code = """
import memoir.torch
assert memoir.torch.pools() and memoir.torch.stats()["segment.all.peak"] == 0
for use in (memoir.torch.use_pool, memoir.torch.pool):
    try:
        use()
    except memoir.Error as error:
        print(error)
"""
    environment = {**os.environ, "MEMOIR_CUDA_DRIVER": str(tmp_path / "libnone.so")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no CUDA driver on this machine") == 2
    assert done.stdout.count("libnone.so") == 2


def test_a_pool_for_mempools_has_functions_and_statistics_of_its_own(run):
    out = run("""
class Made:  # MemPool itself needs a device
    def __init__(self, allocator):
        self.allocator = allocator
torch.cuda.MemPool = Made
pools = [memoir.torch.pool("direct", cap=8 * MiB), memoir.torch.pool("memoir_plain", plain_step="4MiB")]
function = _library.library().memoir_cuda_alloc_1
function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
assert function(6 * MiB, 0, None) and not function(6 * MiB, 0, None)
assert memoir.torch.stats(pools[0])["num_ooms"] == 1
assert memoir.torch.stats(pools[1])["reserved_bytes.all.peak"] == 0
pools += [memoir.torch.pool() for _ in range(127)]
print(error(lambda: memoir.torch.pool()))
free_1 = _library.library().memoir_cuda_free_1
free_1.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
pointer = function(1 * MiB, 0, None)
del pools[0]  # something lives in it: its slot is not another's yet
print(error(lambda: memoir.torch.pool()))
try:
    memoir.torch.stats(lambda: 0)
    raise SystemExit("taken")
except TypeError:
    pass
""")
    assert out.count("all 129 of memoir's MemPools are in use") == 2


@pytest.mark.parametrize(
    "policy", ["direct", "memoir", "memoir_plain", "split", "binned", "rmm", "pytorch", "expandable"]
)
def test_a_mempool_that_ends_gives_everything_back_and_its_slot(run, policy):
    run(f"""
class Made:
    def __init__(self, allocator):
        pass
torch.cuda.MemPool = Made
for round in range(200):
    pool = memoir.torch.pool({policy!r}, cap=48 * MiB)
    slot = pool.memoir_slot
    assert slot == 1, slot
    take, give = (getattr(_library.library(), f"memoir_cuda_{{what}}_{{slot}}") for what in ("alloc", "free"))
    take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    give.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    segments = [take(size * MiB, 0, None) for size in (3, 20, 6)]
    assert all(segments)
    for segment in segments[:2]:
        give(segment, 0, 0, None)
    if round % 2:
        del pool  # before its last segment, as PyTorch does
        assert fake.fake_used(0) > 0
        give(segments[2], 0, 0, None)
    else:
        give(segments[2], 0, 0, None)
        del pool
    assert fake.fake_used(0) == 0, (round, fake.fake_used(0))
assert fake.fake_misuse_count() == 0, fake.fake_misuse(0)
""")


def test_a_snapshot_is_one_of_pytorchs_and_callbacks_make_room(run, tmp_path):
    path = tmp_path / "x.pickle"
    out = run(f"""
memoir.torch.use_pool("span", history=1000, cap=32 * MiB, collect=True)
stream = fake.fake_stream_create()
a, b = allocate(1000), allocate(5 * MiB, 0, stream)
free(a, 1000)
record = _library.library().memoir_cuda_record_stream
record.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
record(b, None)
fake.fake_launch_fill(None, b, 5 * MiB, 1)
free(b, 5 * MiB, 0, stream)
allocate(77, 1)
memoir.torch.snapshot({str(path)!r})
print(error(lambda: memoir.torch.snapshot({str(path)!r})))
memoir.torch.snapshot({str(path)!r}, force=True)
print(error(lambda: memoir.torch.snapshot({str(tmp_path / "none" / "x")!r})))
kept = [allocate(20 * MiB)]
def drop(device):
    print("drop", device)
    free(kept.pop(), 20 * MiB)
memoir.torch.on_low_memory(drop)
assert allocate(20 * MiB)
""")
    assert "drop 0" in out
    assert "exists: choose another name" in out
    assert "No such file or directory" in out
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "any").touch()
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode
    data = path.read_bytes()
    assert data[1] <= 4  # the pickle's protocol
    taken = pickle.loads(data)
    assert set(taken) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert len(taken["device_traces"]) == 2
    states = {block["state"] for segment in taken["segments"] for block in segment["blocks"]}
    assert states == {"inactive", "active_pending_free", "active_allocated"}
    for segment in taken["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    actions = [entry["action"] for entry in taken["device_traces"][0]]
    assert actions.count("alloc") == 2 and actions.count("free_requested") == 2
    assert actions.count("free_completed") == 1 and "segment_map" in actions
    times = [entry["time_us"] for entry in taken["device_traces"][0]]
    assert times == sorted(times)

    command = [sys.executable, "-m", "memoir", "import", str(path), "-o", str(tmp_path / "x.trace")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


THROWS = """
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <cstdio>
int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::puts(dlerror()), 1;
  auto open = (const char* (*)(int, const char*, unsigned long, unsigned long))dlsym(library, "memoir_cuda_open");
  auto allocate = (void* (*)(size_t, int, void*))dlsym(library, "memoir_cuda_alloc");
  try {
    allocate(1, 0, nullptr);
  } catch (const c10::OutOfMemoryError&) {
    return 1;
  } catch (const c10::Error& error) {
    std::printf("Error %s\\n", error.what_without_backtrace());
  }
  open(0, "memoir", ~0ul, 0);
  try {
    allocate(1ul << 40, 0, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    std::printf("OutOfMemoryError %s\\n", error.what_without_backtrace());
  } catch (const c10::Error& error) {
    std::printf("Error %s\\n", error.what_without_backtrace());
  }
}
"""


def test_a_refusal_is_pytorchs_own_exception(fake_driver, tmp_path):
    from memoir.torch import _library

    root = Path(torch.__file__).parent
    source, program = tmp_path / "throws.cc", tmp_path / "throws"
    source.write_text(THROWS)
    compiler = os.environ.get("CXX", "c++")
    libraries = [str(root / "lib" / "libc10.so"), "-ldl", f"-Wl,-rpath,{root / 'lib'}"]
    subprocess.run(
        [compiler, "-std=c++20", "-w", f"-I{root / 'include'}", str(source), *libraries, "-o", str(program)],
        check=True,
    )
    paths = [str(root / "lib"), *map(str, (root.parent / "nvidia").glob("*/lib"))]
    environment = {**os.environ, "MEMOIR_CUDA_DRIVER": str(fake_driver), "LD_LIBRARY_PATH": ":".join(paths)}
    old = tmp_path / "old.c"
    old.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(old), "-o", str(tmp_path / "libold.so")], check=True)
    done = subprocess.run(
        [program, str(_library.path())],
        capture_output=True,
        text=True,
        env={**environment, "MEMOIR_CUDA_DRIVER": str(tmp_path / "libold.so")},
    )
    assert "has no cuGetErrorName: memoir's device pools need the driver of CUDA 11.2 or newer" in done.stdout
    done = subprocess.run([program, str(_library.path())], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error memoir's allocator was not set up" in done.stdout
    assert (
        "OutOfMemoryError memoir: out of memory on device 0 (Fake GPU 0), policy memoir: 1024.00 GiB"
        in done.stdout
    )
