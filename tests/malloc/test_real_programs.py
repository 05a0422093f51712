# SPDX-License-Identifier: Apache-2.0
"""Programs of this machine with the malloc preloaded: they say what they say without it."""

import shutil
import subprocess
import sys

import pytest

PYTHON = """
import json, threading, sys
rows = [json.loads(json.dumps({"a": list(range(40)), "b": "x" * i})) for i in range(3000)]
threads = [threading.Thread(target=lambda: sorted(str(i) for i in range(20000))) for _ in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(rows), sum(len(r["b"]) for r in rows))
"""
POOL = "import multiprocessing as m; p = m.get_context('fork').Pool(3); print(sum(p.map(len, [[1] * i for i in range(500)])))"
SQL = """create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 50000) insert into t select x, 'row ' || x from c;
create index i on t(b); select count(distinct b), sum(length(b)) from t;"""
COMMANDS = {
    "python": [sys.executable, "-c", PYTHON],
    "python_pool": [sys.executable, "-c", POOL],
    "perl": ["perl", "-e", 'my %h; $h{$_} = $_ x 3 for 1..50000; print scalar(keys %h), "\\n"'],
    "node": ["node", "-e", "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(a.length)"],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "sort": ["sh", "-c", "seq 200000 | sort -R --random-source=/dev/zero | sort -n | tail -1"],
    "awk": ["awk", 'BEGIN { for (i = 0; i < 100000; i++) a[i] = i "x"; print length(a["99999"]) }'],
    "git": ["git", "-c", "core.pager=", "--version"],
    "gcc": ["gcc", "-E", "-x", "c", "/dev/null", "-o", "-"],
    "xz": ["sh", "-c", "seq 100000 | xz -T2 | xz -d | cksum"],
}


@pytest.mark.parametrize(
    "settings", [{}, {"background_from": "1", "split_from": "1"}], ids=["default", "eager"]
)
@pytest.mark.parametrize("name", COMMANDS)
def test_program(name, settings, under):
    command = COMMANDS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    plain = subprocess.run(command, capture_output=True, text=True)
    run = under(command, settings)
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout), run.stderr


def test_a_compiler_under_it_compiles(under, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    source = tmp_path / "x.cc"
    source.write_text(
        "#include <map>\n#include <string>\nint main() { return std::map<std::string, int>().size(); }\n"
    )
    run = under(["g++", "-O1", source, "-o", tmp_path / "x"])
    assert run.returncode == 0, run.stderr
    assert subprocess.run([tmp_path / "x"]).returncode == 0
