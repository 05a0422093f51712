# SPDX-License-Identifier: Apache-2.0
"""memoir run --remember, --plan and --pool: Python programs, unchanged."""

import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="memoir run --remember is for programs with PyTorch")

import memoir.torch  # noqa: E402
from memoir.torch import program  # noqa: E402

from memoir import Error, malloc  # noqa: E402

try:
    malloc.library()
except Error as error:
    pytest.skip(str(error), allow_module_level=True)

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
    def forward(self, x):
        for _ in range(4):
            x = torch.relu(self.down(torch.relu(self.up(x))))
        return x
torch.manual_seed(0)
net = Net().eval()
"""
SERVE = """
def serve(passes=20):
    with torch.no_grad():
        return [float(net(torch.full((32, 64), float(i))).sum()) for i in range(passes)]
"""


def run(tmp_path, body, *options):
    script = tmp_path / "serve.py"
    script.write_text(NET + SERVE + body)
    return subprocess.run(
        [sys.executable, "-m", "memoir", "run", *map(str, options), "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
    )


def plain(tmp_path, body, *arguments):
    script = tmp_path / "plain.py"
    script.write_text(NET + SERVE + body)
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=True
    ).stdout


def reported(done, name="Net"):
    """calls, from a plan, in step, recorded, plain: sums over the processes that reported."""
    pattern = (
        rf"memoir: {name}[^:]*: (.+) calls, (.+) from a plan \((.+) in step\), (.+) recorded, (.+) plain"
    )
    found = [[int(text.replace(",", "")) for text in row] for row in re.findall(pattern, done.stderr)]
    assert found, done.stderr
    return [sum(column) for column in zip(*found, strict=True)]


def test_every_outermost_module_is_remembered(tmp_path):
    body = """
import subprocess, sys, threading
print(serve())
results = []
threads = [threading.Thread(target=lambda: results.append(serve())) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(one == results[0] for one in results)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "a process that it starts"], check=True)
"""
    done = run(tmp_path, body, "--remember", "--report")
    expected = plain(tmp_path, body, "alone")  # which its child prints again
    assert (done.returncode, done.stdout) == (0, 2 * expected), done.stderr
    calls, planned, in_step, recorded, plain_ones = reported(done)
    # From the second call on; how many are plain depends on what learning costs next to passes this short.
    assert calls == 2 * 79 == planned + recorded + plain_ones
    assert recorded <= 6 and planned >= 2 * 10 and in_step == planned
    assert "learning took " in done.stderr
    assert "Linear" not in done.stderr  # it is called by Net alone


def test_what_cannot_be_remembered_runs(tmp_path):
    body = """
import asyncio, io, memoir.torch
class Later(torch.nn.Module):
    async def forward(self, x): return x + 1
print(asyncio.run(Later()(torch.ones(2))))
remembered = memoir.torch.remember(net)
with torch.no_grad():
    print([float(remembered(torch.ones(8, 64)).sum()) for _ in range(5)])
    if {compiles}:
        compiled, x = torch.compile(net, backend="eager", fullgraph=True), torch.ones(8, 64)
        assert all(compiled(x).equal(net(x)) for _ in range(5))
    traced = torch.jit.trace(net, torch.ones(8, 64))
    print(float(traced(torch.ones(8, 64)).sum()))
file = io.BytesIO()
torch.save(net, file)
for i in range(50):  # modules come and go
    torch.nn.Linear(4, 4)(torch.ones(2, 4))
x = torch.ones(8, 64, requires_grad=True)
for _ in range(5): net(x).sum().backward()
print(float(x.grad.sum()))
try:
    net(torch.ones(3, 3))
except RuntimeError as error:
    print(error)
"""
    done = run(tmp_path, body.replace("{compiles}", "True"), "--remember", "--report")
    expected = plain(tmp_path, body.replace("{compiles}", "False"))  # importing the compiler takes seconds
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert "Linear" not in done.stderr  # each was called once
    assert int(re.search(r"memoir: (\d+) modules were called once", done.stderr)[1]) >= 50


def test_a_plan_is_followed_from_the_first_call(tmp_path):
    exec(NET, names := {})
    with torch.no_grad():
        memoir.torch.record(names["net"], torch.ones(32, 64), path=tmp_path / "net.trace")
    subprocess.run(
        [sys.executable, "-m", "memoir", "plan", "net.trace", "-o", "net.plan"], cwd=tmp_path, check=True
    )
    (tmp_path / "bad.plan").write_bytes(b"MEMOIRxx" * 10)
    done = run(
        tmp_path, "serve()", "--plan", tmp_path / "net.plan", "--plan", tmp_path / "bad.plan", "--report"
    )
    assert (
        done.returncode == 0 and "bad.plan: " in done.stderr and "the program runs without it" in done.stderr
    )
    assert reported(done) == [20, 20, 20, 0, 0]
    done = run(tmp_path, "", "--plan", tmp_path / "net.plan", "--report")
    assert done.returncode == 0 and "no module of class Net was called" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: tests/gpu has these")
def test_a_pool_that_cannot_be_had_is_said(tmp_path):
    done = run(tmp_path, "print(len(serve()))", "--pool", "memoir,cap=1GiB")
    assert (done.returncode, done.stdout) == (0, "20\n")
    assert "memoir: --pool memoir,cap=1GiB: " in done.stderr and "the program runs without it" in done.stderr


def test_what_follows_pool_is_a_policy_and_what_use_pool_takes(monkeypatch):
    asked = []
    monkeypatch.setattr(program, "use_pool", lambda policy, **options: asked.append((policy, options)))
    program.put_pool("memoir,cap=1.5GiB,slack=0.02")
    program.put_pool("guided,plan=[a,b.trace]")
    assert asked == [
        ("memoir,slack=0.02", {"cap": 3 << 29}),
        ("guided", {"plan": "a,b.trace"}),
    ]
    with pytest.raises(Error, match="cap=1 parsec: give bytes"):
        program.put_pool("memoir,cap=1 parsec")


def test_options_that_say_nothing_are_refused(tmp_path):
    done = run(tmp_path, "print(1)", "--report")
    assert done.returncode == 2 and "--report" in done.stderr and done.stdout == ""
    assert run(tmp_path, "print(1)", "--plan", tmp_path / "none.plan").returncode == 2
