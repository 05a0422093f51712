# SPDX-License-Identifier: Apache-2.0
"""Real programs, each plain and under the recorder: the same results, and traces that can be read.

A few by default, all with --full. What a machine lacks is skipped."""

import os
import shutil
import subprocess
import sys

import pytest
from memoir._core import Trace

from memoir.record import native

PYTHON = os.path.realpath(sys.executable)
SQL = """create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) insert into t select x, 'row ' || x from c;
create index i on t(b); select count(distinct b), sum(length(b)) from t;"""
GIT = """set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; rm -rf repo; git init -q repo; cd repo
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config user.email a@b; git config user.name c
for i in 1 2 3 4 5; do seq $((i * 1000)) > file$i; git add .; git commit -qm "commit $i"; done
git gc -q; git log --format=%H; git fsck; git diff HEAD~2 --stat"""
C = 'int puts(const char*); int main(void) { puts("compiled"); return 0; }'
PERL = 'my %h; $h{$_ % 997} .= "$_," for 1..50000; print join("\\n", map { length $h{$_} } sort keys %h)'

THREADS = """import concurrent.futures as c
print(sum(c.ThreadPoolExecutor(8).map(lambda i: len(str(i) * 50), range(3000))))"""
FORKS = """import multiprocessing as m
print(sum(m.get_context("fork").Pool(3).map(len, [[1] * i for i in range(300)])))"""
CXX = """#include <regex>
int main() { return std::regex_match("ab", std::regex("a.")) ? 0 : 1; }"""
# The one left out lists the descriptors of a process, and sees the trace's: docs/notebook/record/test-suites.md.
TESTS = (
    "-i test_pass_fds_redirected "
    "test_dict test_list test_threading test_subprocess test_fork1 test_mmap test_ctypes test_re"
)
NEEDS = {"lua": "lua5.4"}  # where the program has another name

# name -> command of a shell; `{python}` is this Python.
QUICK = {
    "perl": f"perl -e '{PERL}'",
    "sqlite3": f'sqlite3 :memory: "{SQL}"',
    "git": GIT,
    "python": "{python} -m test -q test_struct | grep -E '^(Total tests|Result)'",
    "threads": f"{{python}} -c '{THREADS}'",
    "forks": f"{{python}} -c '{FORKS}'",
    "sort": "seq 100000 | sort -R --random-source=/dev/zero | sort -n | tail -1",
    "awk": 'awk \'BEGIN { for (i = 0; i < 50000; i++) a[i] = i "x"; print length(a["49999"]) }\'',
}
FULL = {
    "gcc": f"echo '{C}' | gcc -x c -O2 - -o compiled && ./compiled",
    "g++": f"echo '{CXX}' | g++ -x c++ -O2 - -o regex && ./regex",
    "clang": f"echo '{C}' | clang -x c -O2 - -o compiled && ./compiled",
    "make": "printf 'all:\\n\\t@seq 5 | xargs -n1 echo\\n' > Makefile && make -j2",
    "xz": "seq 200000 | xz -T2 | xz -d | cksum",
    "zstd": "seq 200000 | zstd -T2 | zstd -d | cksum",
    "tar": "mkdir -p some && for i in 1 2 3; do seq 1000 > some/$i; done; tar cz some | tar tz | sort",
    "node": "node -e 'let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(a.length)'",
    "ruby": "ruby -e 'puts (1..50000).map { |i| i.to_s * 3 }.group_by(&:size).map { |k, v| [k, v.size] }.inspect'",
    "lua": "lua5.4 -e 'local t = {} for i = 1, 1e5 do t[i] = tostring(i) end print(#table.concat(t))'",
    "php": "php -r 'for ($i = 0, $a = []; $i < 50000; $i++) $a[] = str_repeat(\"x\", $i % 99); echo count($a);'",
    "gdb": "gdb -batch -ex 'print 6 * 7' /bin/true",
    "cmake": "cmake --version && cmake -E echo done",
    "vim": "printf 'b\\na\\n' > lines && vim -es -u NONE -c '%sort' -c 'wq' lines; cat lines",
    "openssl": "seq 10000 | openssl dgst -sha256",
    "curl": "echo served > page && curl -s file://$PWD/page",
    "python's own tests": f"{{python}} -m test -q {TESTS} | grep -E '^(Total tests|Result)'",
}


def run(command: str, folder, environment) -> tuple[int, str]:
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.returncode, without_times(done.stdout)


def without_times(text: str) -> str:
    """What a program says, but for how long it took."""
    return "\n".join(line for line in text.splitlines() if "duration" not in line and " sec" not in line)


def check(name: str, command: str, tmp_path) -> None:
    needed = PYTHON if "{python}" in command else NEEDS.get(name, name)
    if shutil.which(needed) is None:
        pytest.skip(f"no {needed} here")
    command = command.replace("{python}", PYTHON)
    environment = dict(os.environ, LC_ALL="C")
    traces = tmp_path / "traces"
    traces.mkdir()
    under = native.environment(traces / "x.trace", base=environment)
    # Tests of others have clocks, and some fail where the machine is busy: what differs each time is ours.
    for attempt in range(3 if command.startswith(PYTHON) else 1):
        plain = run(command, tmp_path / f"plain{attempt}", environment)
        recorded = run(command, tmp_path / f"recorded{attempt}", under)
        if recorded == plain:
            break
    assert recorded == plain
    events = sum(len(Trace.open(str(trace)).events) for trace in traces.glob("*.trace"))
    assert events > 100


@pytest.mark.parametrize("name", QUICK)
def test_program(name, tmp_path):
    check(name, QUICK[name], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_more_programs(name, tmp_path):
    check(name, FULL[name], tmp_path)
