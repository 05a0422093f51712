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


ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}  # what a convolution allocates depends on it

PLANNED = """
import torch, sys
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).eval()
model = net
if len(sys.argv) > 1:
    import memoir.torch
    model = memoir.torch.remember(net, plan=sys.argv[1])
with torch.inference_mode():
    for _ in range(3):
        model(torch.ones(1, 3, 32, 32))
if len(sys.argv) > 1:
    stats = memoir.torch.stats(model)
    print(f"{stats.recorded_passes} recorded, {stats.in_step_passes} in step")
"""

# Threads, a module that is remembered, and a child.
BUSY = """
import multiprocessing, threading, torch, memoir.torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).eval()
linear = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
def serve(passes):
    with torch.inference_mode():
        for _ in range(passes):
            net(torch.randn(1, 3, 64, 64))
            torch.empty(0)  # has no memory
threads = [threading.Thread(target=serve, args=(3,)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
model = memoir.torch.remember(linear)
with torch.inference_mode():
    for _ in range(6):
        model(torch.ones(32, 64))
serve(1)
worker = multiprocessing.get_context("fork").Process(target=serve, args=(4,))
worker.start()
worker.join()
print(memoir.torch.stats(model).in_step_passes, worker.pid, worker.exitcode)
"""


# Importing torch under the recorder takes seconds and a million events: tests share two such recordings.


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The folder of serve.py, which is PLANNED, and of its recording x.trace."""
    folder = tmp_path_factory.mktemp("planned")
    (folder / "serve.py").write_text(PLANNED)
    run_recorded(folder)
    return folder


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """The folder of BUSY's recording x.trace, and the words that the program prints."""
    folder = tmp_path_factory.mktemp("busy")
    (folder / "serve.py").write_text(BUSY)
    return folder, run_recorded(folder).stdout.split()


def run_recorded(folder, *options):
    """Records serve.py in the folder, which must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", str(folder / "x.trace"), *options]
        + ["--", sys.executable, str(folder / "serve.py")],
        capture_output=True,
        text=True,
        env=ONE_THREAD,
    )
    assert done.returncode == 0, done.stderr
    return done


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
    told = subprocess.run(
        [sys.executable, "-m", "memoir", "plan", trace, "--only", "malloc"], capture_output=True, text=True
    )
    assert told.returncode == 0 and "planned" in told.stderr + told.stdout
    missing = subprocess.run(
        [sys.executable, "-m", "memoir", "record", "-o", trace, "--", "no-such-program"],
        capture_output=True,
        text=True,
    )
    assert missing.returncode == 2 and "no-such-program: cannot be run" in missing.stderr


def test_tensors_and_malloc_together(planned, tmp_path):
    assert passes(planned / "x.trace") == 3
    trace = Trace.open(str(planned / "x.trace"))
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

    (tmp_path / "serve.py").write_text(PLANNED)
    run_recorded(tmp_path, "--only", "tensors")
    # Plans know of the tensors and their operators alone, as a recording of tensors has them.
    both, tensors_alone = (
        Trace.open_plannable(str(planned / "x.trace")),
        Trace.open(str(tmp_path / "x.trace")),
    )
    for of in (both, tensors_alone):
        assert read_pass(of).allocations == read_pass(tensors_alone).allocations
    chains = [
        [of.site_chain(int(site)) for site in of.events["site"][of.events["kind"] == 1]]
        for of in (both, tensors_alone)
    ]
    assert chains[0] == chains[1]
    ids = [of.events["site"][of.events["kind"] == 1].tolist() for of in (both, tensors_alone)]
    assert ids[0] == ids[1]  # a plan's requests are found by them


def test_a_plan_of_the_tensors_in_such_a_trace_is_followed(planned, tmp_path):
    run = [sys.executable, "-m", "memoir"]
    path, plan = str(planned / "x.trace"), str(tmp_path / "x.plan")
    done = subprocess.run([*run, "plan", path, "-o", plan], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen, which = open_chosen(path)
    families = chosen.events["family"][chosen.events["kind"] == int(EventKind.kAllocate)]
    assert which == "tensors" and has_more(chosen, which)
    assert len(families) and set(families.tolist()) == {int(Family.kTensor)}
    (task,) = tasks_of([path], ["span"])
    assert task.only == "tensors"
    done = subprocess.run(
        [sys.executable, str(planned / "serve.py"), plan], capture_output=True, text=True, env=ONE_THREAD
    )
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


def unknown_bytes(trace) -> float:
    """The share of the bytes that no operator is known of."""
    events = trace.events
    allocations = events[events["kind"] == 1]
    unknown = allocations[allocations["site"] == 0]
    return float(unknown["size"].sum() / allocations["size"].sum())


def test_every_thread_of_a_server_has_passes_and_operators(busy):
    folder, _ = busy
    trace = Trace.open(str(folder / "x.trace"))
    assert passes(folder / "x.trace") == 3 * 3 + 6 + 1
    events = trace.events
    assert len(set(events[events["kind"] == 4]["thread"])) == 3 + 1
    assert unknown_bytes(trace) < 0.01
    events = events[np.flatnonzero(events["kind"] == 4)[0] :]  # importing torch has a million sites
    names = {trace.site_chain(int(site)) for site in set(events["site"].tolist())}
    assert any("conv2d" in name for name in names)
    modules = {
        trace.site_name(trace.innermost(site, FrameKind.kModulePath))
        for site in set(events[events["kind"] == 1]["site"].tolist())
    }
    assert {"0", "1", "2"} <= modules, "the paths of the modules stand in the stacks"


def test_a_program_that_remembers_is_recorded_and_remembered(busy):
    folder, printed = busy
    assert printed[0] == "5"
    trace = Trace.open_plannable(str(folder / "x.trace"))  # the tensors alone
    events = trace.events
    linear = [s for s in set(events["site"].tolist()) if "addmm" in trace.site_chain(s)]
    made = events[(events["kind"] == 1) & np.isin(events["site"], linear)]
    assert len(made) == 12  # two layers, six passes, whoever served them
    assert unknown_bytes(trace) < 0.01


def test_a_forked_worker_has_a_trace_of_its_own(busy):
    folder, (_, worker, exit_code) = busy
    assert exit_code == "0"
    assert passes(folder / f"x.{worker}.trace") == 4
    assert Trace.open(str(folder / f"x.{worker}.trace")).complete
