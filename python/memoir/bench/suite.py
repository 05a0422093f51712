# SPDX-License-Identifier: Apache-2.0
"""The built-in workloads: programs of one known pattern each (bench/compare/programs), and real servers."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from memoir._core import Error
from memoir.bench.grid import Metric, Program
from memoir.bench.process import machine

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
    "slots": "random replacement of objects of all ages (alloc-test)",
    "generations": "groups of one size with overlapping lifetimes (sh6bench, sh8bench)",
    "numbers": "small results of long arithmetic (cfrac, PLDI 1993)",
}
REAL = {
    "sqlite": "SQLite in memory: insert, index, query, delete",
    "lua": "Lua: strings, tables, its collector",
    "python": "Python with every object from malloc: dictionaries, lists, strings",
    "compiler": "a C compiler on a generated file",
}
SERVERS = {"redis": "Redis through fill, delete and refill cycles"}
GROUPS = {"programs": tuple(PATTERNS), "real": tuple(REAL), "servers": tuple(SERVERS)}

_SQL = """
CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO t SELECT i, printf('%0*d', 20 + i * 7919 % 200, i * 104729 % 1000003) FROM n;
CREATE INDEX x ON t (v);
SELECT count(*), sum(length(v)) FROM t WHERE v > '0000005';
DELETE FROM t WHERE k % 3 = 0;
SELECT count(*) FROM t AS a JOIN t AS b ON a.v = b.v;
"""
_LUA = """
local kept, total = {{}}, 0
for i = 1, {rounds} do
  kept[i % 5000] = {{ name = string.rep("x", i % 200), values = {{ i, i + 1, i + 2 }} }}
  if i % 3 == 0 then total = total + #(kept[i % 5000].name .. i) end
end
print("total: " .. total)
"""
_START = (
    "import sys; sys.path[:] = filter(None, sys.path); module = sys.argv.pop(1); "
    "import runpy; runpy.run_module(module, run_name='__main__')"
)
_PYTHON = """
kept, total = {{}}, 0
for i in range({rounds}):
    kept[i % 5000] = dict(name="x" * (i % 200), values=[i, i + 1, i + 2])
    total += len(kept[i % 5000]["name"]) + len(str(i))
print("total:", total)
"""
_C = (
    'BEGIN { for (i = 0; i < N; ++i) printf "int f%d(int x) { int y = x * %d; '
    'for (int i = 0; i < x; ++i) y ^= y << (i & 7); return y; }\\n", i, i }'
)


def programs(names: str, smoke: bool = False) -> tuple[Program, ...]:
    """The workloads that a comma-separated list of groups and patterns names, or memoir.Error.

    Of a group of real programs those that are not installed are left out; see missing().
    """
    wanted = _chosen(names)
    found = []
    for name in wanted:
        if name == "redis":
            found.append(_redis(smoke))
        elif name in REAL:
            try:
                found.append(_real(name, smoke))
            except Error:
                if name in names.split(","):
                    raise
        else:
            found.append(_own(name, smoke))
    if not found:
        raise Error(f"--suite {names}: {'; '.join(missing(names))}")
    return tuple(found)


def missing(names: str) -> list[str]:
    """Why programs of the groups in this list are left out."""
    found = []
    for name in _chosen(names):
        if name in REAL:
            try:
                _real(name, True)
            except Error as error:
                found.append(str(error))
    return found


def _chosen(names: str) -> list[str]:
    chosen: list[str] = []
    for name in names.split(","):
        if name not in (*GROUPS, *PATTERNS, *REAL, *SERVERS):
            raise Error(
                f"unknown suite {name!r}: use {', '.join((*GROUPS, *PATTERNS, *REAL, *SERVERS))} "
                "(allocators are named before the options)"
            )
        chosen += GROUPS.get(name, (name,))
    return list(dict.fromkeys(chosen))


def default_threads() -> tuple[int, ...]:
    """Powers of two up to the cores of this machine, and the cores themselves."""
    cores = len(os.sched_getaffinity(0))
    counts = {1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores}
    return tuple(sorted(counts | {cores}))


def _own(name: str, smoke: bool) -> Program:
    command = [str(machine.tool(f"bench-{name}")), "--threads", "{threads}", "--load", "{load}"]
    return Program(name, tuple(command + ["--smoke"] * smoke), metrics=(SPEED,))


def _real(name: str, smoke: bool) -> Program:
    """As many processes as threads, each with its work; memoir.Error where the program is not installed."""
    scale = 1 if smoke else 100
    if name == "sqlite":
        sql = _SQL.replace("{rows}", f"{{={300 * scale}*load}}")
        one = [_program("sqlite3", "apt-get install sqlite3 | dnf install sqlite"), ":memory:", sql]
    elif name == "lua":
        lua = next(
            (found for found in map(shutil.which, ("lua", "lua5.4", "lua5.3", "luajit")) if found), None
        )
        one = [lua or _program("lua", "apt-get install lua5.4 | dnf install lua"), "-e"]
        one.append(_LUA.replace("{rounds}", f"{{={10_000 * scale}*load}}"))
    elif name == "python":
        code = _PYTHON.replace("{rounds}", f"{{={5_000 * scale}*load}}")
        one = ["env", "PYTHONMALLOC=malloc", sys.executable, "-S", "-c", code]
    else:
        compiler = _program("cc", "apt-get install gcc | dnf install gcc")
        made = f"awk -v N={{={10 * scale}*load}} {shlex.quote(_C.replace('{', '{{').replace('}', '}}'))}"
        one = ["sh", "-c", f"{made} | {compiler} -O1 -x c -c -o /dev/null -"]
    copies = "i=0; while [ $i -lt {threads} ]; do i=$((i+1)); " + shlex.join(one) + " & done; wait"
    return Program(name, ("sh", "-c", copies))


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Error(f"no {name} on the PATH: {package}")
    return found


def _redis(smoke: bool) -> Program:
    server = shutil.which("redis-server")
    if server is None:
        raise Error("no redis-server on the PATH: apt-get install redis-server | dnf install redis")
    where = "--bind 127.0.0.1 --port {port} --io-threads {threads}"
    command = f"{server} {where} --appendonly no --loglevel warning"
    client = [
        sys.executable,
        "-c",
        _START,  # as `-m` would, but without looking in the current folder, which may be a stranger's
        "memoir.bench.process.redis_cycles",
        "--port",
        "{port}",
        "--load",
        "{load}",
    ]
    return Program(
        "redis", (*command.split(), "--save", ""), tuple(client + ["--smoke"] * smoke), metrics=(SPEED,)
    )
