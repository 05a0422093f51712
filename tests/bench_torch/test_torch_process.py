# SPDX-License-Identifier: Apache-2.0
"""What a worker asks of the kernel and its allocator, in processes of its own where it must."""

import json
import os
import subprocess
import sys
import time

import pytest
from latency import process
from latency.allocator_process import AllocatorProcess
from latency.variants import VARIANTS, environment, why_unavailable
from memoir.bench.process.workers import Failure


def ask(bench, variant, code):
    """Runs code in a process of the variant; returns what its `answer` became."""
    program = f"import json\nfrom latency import process\n{code}\nprint(json.dumps(answer))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(VARIANTS[variant]) | {"PYTHONPATH": str(bench)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_peak_is_that_of_memory_given_back_since():
    block, base = 64 << 20, process.memory()["anonymous"]
    if not process.reset_peak():
        pytest.skip("this kernel does not forget peaks")
    memory = bytearray(os.urandom(1 << 20) * 64)
    assert len(memory) == block
    del memory
    assert process.peak_anonymous() >= base + block
    for _ in range(50):  # where a core is busy, the kernel counts late what was given back
        assert process.reset_peak()
        if process.peak_anonymous() < base + block:
            return
        time.sleep(0.1)
    raise AssertionError("the peak stays after a reset")


def test_faults_are_counted():
    import mmap

    before = process.usage()
    with mmap.mmap(-1, 64 * 4096) as pages:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(64):
            pages[page * 4096] = 1
    assert 64 <= process.difference(before, process.usage())["minor"] < 2000


def test_cycles_grow_or_are_none():
    clock = process.Cycles(kind=1, event=1)  # PERF_TYPE_SOFTWARE, task clock: there without counters too
    first = clock.read()
    sum(range(200_000))
    assert first is None or clock.read() > first
    cycles = process.Cycles().read()
    assert cycles is None or cycles >= 0


def test_plain_malloc_is_the_c_library_s_and_the_tuned_one_keeps_large_blocks(bench):
    assert "libc" in ask(bench, "glibc", "answer = process.malloc_library()")
    maps = "answer = process.glibc_maps(200 << 20)"
    if ask(bench, "glibc", maps) is None:
        pytest.skip("not glibc")
    assert ask(bench, "glibc", maps) is True
    assert ask(bench, "glibc_tuned", maps) is False


@pytest.mark.parametrize("name", ["jemalloc_1mb", "tcmalloc", "mimalloc"])
def test_a_preloaded_allocator_serves_malloc_with_its_settings(bench, name):
    reason = why_unavailable(VARIANTS[name])
    if reason:
        pytest.skip(reason)
    code = "process.give_back_free_memory()\nanswer = process.malloc_library()"
    assert name.split("_")[0] in ask(bench, name, code)
    if name == "jemalloc_1mb":
        code = "answer = process.jemalloc_settings(('oversize_threshold', 'dirty_decay_ms'))"
        assert ask(bench, name, code) == {"oversize_threshold": 1 << 20, "dirty_decay_ms": 10_000}


def test_what_goes_wrong_in_a_worker_is_a_failure_and_the_next_request_is_answered(tmp_path):
    worker = AllocatorProcess(VARIANTS["glibc"], timeout=120)
    try:
        worker.greet([])
        assert worker.prove()["versions"]["torch"]
        weights = dict(do="weights", side=64, seed=0, path=str(tmp_path / "weights"))
        with pytest.raises(Failure, match="KeyError") as caught:
            worker.ask(net="nonesuch", **weights)
        assert any("nonesuch" in line for line in caught.value.last_lines)
        assert worker.ask(net="dcgan", **weights)["saved"] > 1 << 20
    finally:
        worker.stop()


def test_a_malloc_that_is_not_the_variant_s_is_refused():
    worker = AllocatorProcess(VARIANTS["glibc"], timeout=120)
    try:
        worker.variant = VARIANTS["glibc_tuned"]  # whose settings this process was not given
        worker.greet([])
        with pytest.raises(Failure, match="GLIBC_TUNABLES had no effect"):
            worker.prove()
    finally:
        worker.stop()
