# SPDX-License-Identifier: Apache-2.0
"""Commands over small files that ask for much: they end with a line, leave nothing behind, and go on with --yes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from memoir._core import EventKind, Trace
from memoir.views import stack_export
from native_trace import NativeTrace

from memoir import _core
from memoir.base import work_budget

NOTHING = 1 << 40  # less than that is allowed, whatever the bytes of the file add
# The command line with a small budget, so that the test is quick.
COMMAND = """
import sys
from memoir.base import work_budget
work_budget.EVERY, work_budget.SECONDS, work_budget.MEMORY = 0.001, {seconds}, {memory}
work_budget.OUTPUT = {output}
from memoir import cli
cli.main()
"""


def memoir(*words, seconds=8.0, memory=1 << 29, output=1 << 26, cwd=None) -> subprocess.CompletedProcess:
    start = COMMAND.format(seconds=seconds, memory=memory, output=output)
    return subprocess.run(
        [sys.executable, "-c", start, *map(str, words)], cwd=cwd, capture_output=True, text=True
    )


@pytest.fixture
def trace(tmp_path) -> Path:
    made = NativeTrace()
    frame = made.python("f", "f.py", 1)
    for i in range(40_000):  # so that none is done before the budget is looked at
        made.allocate(1, i + 1, 4096 + 64 * i, 16, made.stack(frame))
    path = tmp_path / "x.trace"
    path.write_bytes(made.bytes())
    return path


@pytest.mark.parametrize(
    "words",
    [("show", "-o", "x.html"), ("simulate", "--workers", "2"), ("plan",), ("export", "--to", "folded")],
    ids=" ".join,
)
def test_a_command_that_needs_more_than_its_budget_says_so(words, trace):
    found = memoir(words[0], "x.trace", *words[1:], seconds=-NOTHING, cwd=trace.parent)
    assert found.returncode == 2 and found.stderr.count("\n") == 1
    assert found.stderr.startswith("memoir: x.trace asks for more than ") and "--yes" in found.stderr
    assert [path.name for path in trace.parent.iterdir()] == ["x.trace"]


def test_with_yes_it_goes_on_and_memory_counts_too(trace):
    asked = memoir("show", "x.trace", memory=-NOTHING, cwd=trace.parent)
    assert asked.returncode == 2 and "of memory" in asked.stderr
    written = memoir("export", "x.trace", "--to", "chrome", output=-NOTHING, cwd=trace.parent)
    assert (
        written.returncode == 2 and "of output" in written.stderr and len(list(trace.parent.iterdir())) == 1
    )
    assert (
        memoir("show", "x.trace", "--yes", seconds=-NOTHING, memory=-NOTHING, cwd=trace.parent).returncode
        == 0
    )


@pytest.mark.parametrize("mixed", [False, True])
def test_what_policies_take_is_by_events_and_not_by_bytes(mixed, tmp_path):
    made, live = NativeTrace(), []
    for i in range(1000):
        size = 100 + 16 * i if mixed and i % 2 else (1 << 44) - 4099 * i
        live.append(4096 + (i << 48))
        made.allocate(1 + i % 3, 2 * i + 1, live[-1], size)
        if len(live) > 5:
            made.free(1, 2 * i + 2, live.pop(i % 5))
    path = tmp_path / "x.trace"
    path.write_bytes(made.bytes())
    policies = [name for name, _, _ in _core.policies()]
    policies += ["memoir,piece=64MiB", "span,granule=4KiB", "rmm_arena,size=1TiB", "static_tensors,pool=1TiB"]
    for more in ((), ("--cap", "1.05x", "--continue"), ("--find-cap",), ("-o", str(tmp_path / "x.html"))):
        words = [word for policy in policies for word in ("--policy", policy)]
        ended = memoir("simulate", path, *words, *more)  # within its budget
        refused = [line for line in ended.stderr.splitlines() if "--policy" in line]
        assert ended.returncode == 1 and len(refused) == 1
        assert "llama" in refused[0] and "keeps a record for each page" in refused[0]


def test_what_keeps_the_thread_waiting_ends_too():
    """A regular expression never lets go of the interpreter."""
    text = "import re; from memoir.base import work_budget; work_budget.SECONDS = 0.2\n"
    text += "with work_budget.within_budget([]): re.match('(a+)+$', 'a' * 60 + '!')"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2 and "asks for more than 0 s of the processor" in ended.stderr


def test_holes_are_no_bytes(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"id,lower,upper,size\n")
        file.truncate(100 << 30)
    with work_budget.within_budget([tmp_path / "sparse"]):
        assert work_budget._active.size <= 1 << 14
    with work_budget.within_budget([tmp_path]):
        assert work_budget._active.size <= 1 << 14


def test_links_and_other_names_of_a_file_are_no_bytes(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 1_000_000)
    (tmp_path / "folder").mkdir()
    for number in range(5):
        (tmp_path / f"folder/link{number}").symlink_to(tmp_path / "large")
        (tmp_path / f"{number}").symlink_to("large")
    with work_budget.within_budget([tmp_path / "folder"]):
        assert work_budget._active.size == 0
    with work_budget.within_budget(tmp_path / f"{number}" for number in range(5)):
        assert work_budget._active.size == 1_000_000


def deep(kind: str, sites: int) -> bytes:
    """A chain of frames, one more at each of so many sites; 4,000 are the most of a stack."""
    made = NativeTrace()
    made.meta("command", "p")
    if kind == "inlined":  # as many functions in each frame
        frame = made.native("/x.so", 5, [("h", "h", 1)] * sites)
    else:
        frame = made.python("f" * (4000 if kind == "long" else 1), "f.py", 1)
    for i in range(sites):
        made._define(0x56, i + 1, i if i % 4000 else 0, 1, frame)
        made.allocate(1, i + 1, 0x100000 + 16 * i, 16, i + 1)
    return made.bytes()


@pytest.mark.parametrize("kind", ["short", "long", "inlined"])
def test_stacks_are_walked_as_the_tree_that_they_are(kind, tmp_path):
    sites = 2000
    (tmp_path / "x.trace").write_bytes(deep(kind, sites))
    text = (33 << 10) + 200 if kind == "long" else 512 * 20  # bytes of a stack at most
    for name, words in {
        **{f"{to}.x": ("export", "--to", to) for to in ("snapshot", "chrome", "perfetto", "pprof", "folded")},
        "show.html": ("show",), "show.json": ("show", "--json"), "diff.html": ("diff", "x.trace"),
        "diff.json": ("diff", "x.trace", "--json"), "simulate.html": ("simulate",), "oom.json": ("oom",),
    }.items():  # fmt: skip
        suffixes = {"snapshot": ".pickle", "chrome": ".json", "perfetto": ".pftrace", "pprof": ".pb"}
        to = tmp_path / Path(name).with_suffix(
            suffixes.get(words[-1], Path(name).suffix.replace("x", "folded"))
        )
        output = () if name.endswith(".json") else ("-o", to)
        ended = memoir(words[0], "x.trace", *words[1:], *output, seconds=6.0, cwd=tmp_path)
        assert "asks for more than" not in ended.stderr, (name, ended.stderr)
        assert ended.returncode == 0 or name == "oom.json", (name, ended.stderr)
        written = len(ended.stdout) + (to.stat().st_size if output else 0)
        assert written < sites * text + (1 << 20), name


def test_deep_stacks_end_with_what_is_left_out(tmp_path):
    (tmp_path / "x.trace").write_bytes(deep("short", 1000))
    trace = Trace.open(tmp_path / "x.trace")
    site = int(trace.events[trace.events["kind"] == int(EventKind.kAllocate)]["site"][-1])
    names = [frame["function"] for frame in trace.site_frames(site, cut=True)]
    assert names == ["f"] * 384 + ["[488 frames]"] + ["f"] * 128
    assert trace.site_chain(site).split(" > ")[384] == "[488 frames]"
    lines = b"".join(stack_export.folded(trace, "peak")).decode().splitlines()
    stacks = {line.rpartition(" ")[0] for line in lines}
    assert ";".join(names) in stacks and ";".join(["f"] * 512) in stacks
    assert len(stacks) == 1000 and sum("frames]" in stack for stack in stacks) == 488


def test_the_budget_grows_with_files_folders_and_what_is_allowed(tmp_path):
    (tmp_path / "a").write_bytes(bytes(1_000_000))
    with work_budget.within_budget([tmp_path]):
        budget = work_budget._active
        assert budget.size == 1_000_000 and budget.seconds == pytest.approx(work_budget.SECONDS + 10)
        work_budget.allow(5)
        with work_budget.outside():
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
        assert budget.seconds == pytest.approx(work_budget.SECONDS + 15) and budget.charged <= -0.1
        work_budget.charge(0.05)
        assert budget.charged <= -0.05
    assert work_budget._active is None
    work_budget.allow(5)  # without a budget it changes nothing


def test_a_machine_without_memory_gets_a_line(memoir_cli, trace, monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr("memoir.cli.parts.show_trace.open_named", refuse)
    assert memoir_cli("show", trace) == (2, "", "memoir: not enough memory\n")
