# SPDX-License-Identifier: Apache-2.0
"""The built-in workloads: programs of one known pattern each (bench/programs), and real servers."""

from __future__ import annotations

import os
import shutil
import sys

from memoir._core import Error
from memoir.bench import machine
from memoir.bench.grid import Metric, Program

SPEED = Metric("operations_per_second", r"^operations_per_second: ([0-9.]+)")

# pattern -> what it is like and where it comes from; each program's head says more
PATTERNS = {
    "churn": "thread-local churn (threadtest, Hoard, ASPLOS 2000)",
    "larson": "a server whose objects change threads (Larson & Krishnan, ISMM 1998)",
    "xmalloc": "producers and consumers (Lever & Boreham, FREENIX 2000)",
    "stress": "mixed sizes and calls, contents checked (mimalloc, MSR-TR-2019-18)",
    "cycles": "growth and shrinkage that leave fragmentation (Wilson et al., IWMM 1995)",
    "sharing": "false sharing, active and passive (cache-thrash, cache-scratch, Hoard, ASPLOS 2000)",
    "tensors": "big blocks as tensors make them (PyTorch on a CPU)",
}
SERVERS = {"redis": "Redis through fill, delete and refill cycles"}
GROUPS = {"programs": tuple(PATTERNS), "servers": tuple(SERVERS)}


def programs(names: str, smoke: bool = False) -> tuple[Program, ...]:
    """The workloads that a comma-separated list of groups and patterns names, or memoir.Error."""
    chosen: list[str] = []
    for name in names.split(","):
        if name not in (*GROUPS, *PATTERNS, *SERVERS):
            raise Error(
                f"unknown suite {name!r}: use {', '.join((*GROUPS, *PATTERNS, *SERVERS))} "
                "(allocators are named before the options)"
            )
        chosen += GROUPS.get(name, (name,))
    return tuple(_redis(smoke) if name == "redis" else _own(name, smoke) for name in dict.fromkeys(chosen))


def default_threads() -> tuple[int, ...]:
    """Powers of two up to the cores of this machine, and the cores themselves."""
    cores = len(os.sched_getaffinity(0))
    counts = {1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores}
    return tuple(sorted(counts | {cores}))


def _own(name: str, smoke: bool) -> Program:
    command = [str(machine.tool(f"bench-{name}")), "--threads", "{threads}", "--load", "{load}"]
    return Program(name, tuple(command + ["--smoke"] * smoke), metrics=(SPEED,))


def _redis(smoke: bool) -> Program:
    server = shutil.which("redis-server")
    if server is None:
        raise Error("no redis-server on the PATH: apt-get install redis-server | dnf install redis")
    where = "--bind 127.0.0.1 --port {port} --io-threads {threads}"
    command = f"{server} {where} --appendonly no --loglevel warning"
    client = [sys.executable, "-m", "memoir.bench.redis_cycles", "--port", "{port}", "--load", "{load}"]
    return Program(
        "redis", (*command.split(), "--save", ""), tuple(client + ["--smoke"] * smoke), metrics=(SPEED,)
    )
