# SPDX-License-Identifier: Apache-2.0
"""memoir record, around real programs."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="memoir record's programs need PyTorch")

from memoir._core import EventKind, Family, FrameKind, Trace, read_pass  # noqa: E402
from memoir.simulation import tasks_of  # noqa: E402
from memoir.traces.files import has_more, open_chosen, open_for_plans  # noqa: E402

SERVER = """
import torch, sys
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)).eval()
with torch.inference_mode():
    for _ in range(3):
        net(torch.randn(1, 3, 32, 32))
print("served", *sys.argv[1:])
{end}
"""


REMEMBERED = """
import torch, sys, memoir.torch
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).eval()
model = net
if len(sys.argv) > 1:
    model = memoir.torch.remember(net, plan=sys.argv[1])
with torch.inference_mode():
    for _ in range(3):
        model(torch.ones(32, 64))
if len(sys.argv) > 1:
    stats = memoir.torch.stats(model)
    print(f"{stats.recorded_passes} recorded, {stats.in_step_passes} in step")
"""


def record(tmp_path, end="", options=("--only", "tensors"), arguments=()):
    script = tmp_path / "serve.py"
    script.write_text(SERVER.format(end=end))
    return subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", str(tmp_path / "x.trace"), *options]
        + ["--", sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
    )


def passes(path) -> int:
    kinds = list(Trace.open(str(path)).events["kind"])
    return kinds.count(4)


def test_a_program_is_recorded_pass_by_pass(tmp_path):
    done = record(tmp_path, arguments=["-x", "5"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "served -x 5\n"
    assert "next: memoir show" in done.stderr
    trace = Trace.open(str(tmp_path / "x.trace"))
    assert trace.complete and trace.meta("torch")
    assert passes(tmp_path / "x.trace") == 3
    assert any("conv2d" in trace.site_chain(int(site)) for site in set(trace.events["site"]))


def test_the_exit_code_is_the_programs(tmp_path):
    assert record(tmp_path, end="sys.exit(7)").returncode == 7


def test_after_a_kill_the_trace_holds_what_came_before(tmp_path):
    done = record(tmp_path, end=f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    assert done.returncode == 128 + signal.SIGKILL
    assert "ended before the trace was closed" in done.stderr
    assert passes(tmp_path / "x.trace") == 3


def test_a_program_without_torch_and_one_that_does_not_exist(tmp_path):
    trace = str(tmp_path / "x.trace")
    none = subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", trace, "--", sys.executable, "-c", "print(5)"],
        capture_output=True,
        text=True,
    )
    assert (none.returncode, none.stdout) == (0, "5\n")
    assert "events in" in none.stderr
    assert Trace.open(trace).meta("recorder") == "native"
    chosen, which = open_chosen(trace)
    assert which == "both" and (chosen.events["kind"] == int(EventKind.kAllocate)).sum() > 1000
    assert len(open_for_plans(trace).events) == len(chosen.events)
    missing = subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", trace, "--", "no-such-program"],
        capture_output=True,
        text=True,
    )
    assert missing.returncode == 2 and "no-such-program: cannot be run" in missing.stderr


def test_tensors_and_malloc_together(tmp_path):
    done = record(tmp_path, options=())
    assert done.returncode == 0, done.stderr
    assert passes(tmp_path / "x.trace") == 3
    path = str(tmp_path / "x.trace")
    trace = Trace.open(path)
    assert trace.complete and trace.meta("recorder") == "native" and trace.meta("torch")
    events = trace.events
    made = events[events["kind"] == int(EventKind.kAllocate)]
    tensors = made[made["family"] == 0]
    assert len(made) > 10_000 and 9 <= len(tensors) < 100
    # A tensor is one object with the malloc that served it: nothing else lives there meanwhile.
    address_of = np.zeros(int(made["object"].max()) + 1, np.uint64)
    address_of[made["object"]] = made["address"]
    kinds = events["kind"]
    of_objects = events[(kinds == int(EventKind.kAllocate)) | (kinds == int(EventKind.kFree))]
    live: set[int] = set()
    for event in of_objects[np.isin(address_of[of_objects["object"]], tensors["address"])]:
        address = int(address_of[event["object"]])
        if event["kind"] == int(EventKind.kAllocate):
            assert address not in live
            live.add(address)
        else:
            live.remove(address)
    # Native frames, Python's and operators are one stack, each kind where it stands.
    conv = next(
        f
        for f in map(trace.site_frames, tensors["site"].tolist())
        if f[-1]["kind"] != FrameKind.kOperator and any("convolution" in frame["function"] for frame in f)
    )
    kinds = [frame["kind"] for frame in conv]
    python, operator = kinds.index(FrameKind.kPython), kinds.index(FrameKind.kOperator)
    assert python < operator
    assert {FrameKind.kNative} <= set(kinds[:python]) & set(kinds[python:operator]) & set(kinds[operator:])
    assert any(frame["function"] == "Conv2d.forward" or frame["function"] == "forward" for frame in conv)

    whole = (tmp_path / "x.trace").read_bytes()
    alone = record(tmp_path, options=("-f", "--only", "tensors"))
    assert alone.returncode == 0, alone.stderr
    # Plans know of the tensors and their operators alone, as a recording of tensors has them.
    (tmp_path / "both.trace").write_bytes(whole)
    both, tensors_alone = Trace.open_plannable(str(tmp_path / "both.trace")), Trace.open(path)
    for of in (both, tensors_alone):
        assert read_pass(of).allocations == read_pass(tensors_alone).allocations
    chains = [
        [of.site_chain(int(site)) for site in of.events["site"][of.events["kind"] == 1]]
        for of in (both, tensors_alone)
    ]
    assert chains[0] == chains[1]
    ids = [of.events["site"][of.events["kind"] == 1].tolist() for of in (both, tensors_alone)]
    assert ids[0] == ids[1]  # a plan's requests are found by them


def test_a_plan_of_the_tensors_in_such_a_trace_is_followed(tmp_path):
    script = tmp_path / "serve.py"
    script.write_text(REMEMBERED)
    run = [sys.executable, "-m", "memoir"]
    path, plan = str(tmp_path / "x.trace"), str(tmp_path / "x.plan")
    for command in (
        [*run, "record", "-o", path, "--", sys.executable, str(script)],
        [*run, "plan", path, "-o", plan],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    chosen, which = open_chosen(path)
    families = chosen.events["family"][chosen.events["kind"] == int(EventKind.kAllocate)]
    assert which == "tensors" and has_more(chosen, which)
    assert len(families) and set(families.tolist()) == {int(Family.kTensor)}
    (task,) = tasks_of([path], ["span"])
    assert task.only == "tensors"
    told = subprocess.run([*run, "plan", path, "--only", "malloc"], capture_output=True, text=True)
    assert told.returncode == 0 and "planned" in told.stderr + told.stdout
    done = subprocess.run([sys.executable, str(script), plan], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 recorded, 3 in step\n"


def test_malloc_alone(tmp_path):
    trace = str(tmp_path / "x.trace")
    command = [sys.executable, "-m", "memoir", "record", "-o", trace, "--only", "malloc", "--"]
    done = subprocess.run([*command, sys.executable, "-c", "print(5)"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert Trace.open(trace).meta("recorder") == "native"


def test_an_existing_trace_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "x.trace").write_text("precious")
    refused = record(tmp_path)
    assert refused.returncode == 2 and "exists already" in refused.stderr
    assert (tmp_path / "x.trace").read_text() == "precious"
    assert record(tmp_path, options=["-f", "--only", "tensors"]).returncode == 0


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "memoir",
            "record",
            "-o",
            str(tmp_path / "x.trace"),
            "--",
            sys.executable,
            "-c",
            "print(5)",
        ],
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(tmp_path)),
    )
    assert done.stdout == "mine\nmine\n5\n"  # in memoir's own process, and in the program's


def run_recorded(tmp_path, program):
    script = tmp_path / "program.py"
    script.write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", str(tmp_path / "x.trace"), "--", sys.executable]
        + [str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def unknown_bytes(trace) -> float:
    """The share of the bytes that no operator is known of."""
    events = trace.events
    allocations = events[events["kind"] == 1]
    unknown = allocations[allocations["site"] == 0]
    return float(unknown["size"].sum() / allocations["size"].sum())


def test_every_thread_of_a_server_has_passes_and_operators(tmp_path):
    done = run_recorded(
        tmp_path,
        """
import threading, torch
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).eval()
def serve():
    with torch.inference_mode():
        for _ in range(3):
            net(torch.randn(1, 3, 64, 64))
            torch.empty(0)  # has no memory
threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
    )
    assert done.returncode == 0, done.stderr
    trace = Trace.open(str(tmp_path / "x.trace"))
    assert passes(tmp_path / "x.trace") == 9
    events = trace.events
    assert len(set(events[events["kind"] == 4]["thread"])) == 3
    assert unknown_bytes(trace) < 0.01
    events = events[np.flatnonzero(events["kind"] == 4)[0] :]  # importing torch has a million sites
    names = {trace.site_chain(int(site)) for site in set(events["site"])}
    assert any("conv2d" in name for name in names)
    modules = {
        trace.site_name(trace.innermost(int(site), FrameKind.kModulePath))
        for site in set(events[events["kind"] == 1]["site"])
    }
    assert {"0", "1", "2"} <= modules, "the paths of the modules stand in the stacks"


def test_a_program_that_remembers_is_recorded_and_remembered(tmp_path):
    done = run_recorded(
        tmp_path,
        """
import torch, memoir.torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
model = memoir.torch.remember(net)
with torch.inference_mode():
    for _ in range(6):
        model(torch.ones(32, 64))
print(memoir.torch.stats(model).in_step_passes)
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5\n"
    trace = Trace.open_plannable(str(tmp_path / "x.trace"))  # the tensors alone
    assert passes(tmp_path / "x.trace") == 6
    events = trace.events
    linear = [s for s in set(events["site"]) if "addmm" in trace.site_chain(int(s))]
    made = events[(events["kind"] == 1) & [site in linear for site in events["site"]]]
    assert len(made) == 12  # two layers, six passes, whoever served them
    assert unknown_bytes(trace) < 0.01


def test_a_forked_worker_has_a_trace_of_its_own(tmp_path):
    done = run_recorded(
        tmp_path,
        """
import multiprocessing, torch
torch.set_num_threads(1)
net = torch.nn.Linear(64, 64).eval()
def work():
    with torch.inference_mode():
        for _ in range(4):
            net(torch.ones(32, 64))
with torch.inference_mode():
    net(torch.ones(32, 64))
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
print(worker.pid, worker.exitcode)
""",
    )
    assert done.returncode == 0, done.stderr
    worker, exit_code = done.stdout.split()
    assert exit_code == "0"
    assert passes(tmp_path / "x.trace") == 1
    assert passes(tmp_path / f"x.{worker}.trace") == 4
    assert Trace.open(str(tmp_path / f"x.{worker}.trace")).complete
