# SPDX-License-Identifier: Apache-2.0
"""`memoir plan` and `memoir show` of plans, as they are typed.

MEMOIR_REWRITE_GOLDEN=1 pytest tests/cli/test_plan_cli.py writes the golden outputs again.
"""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from memoir.planning.planners import PLANNERS
from memoir.planning.planners.planner import Tolerance

import memoir as memoir_package
from memoir import _core

DATA = Path(__file__).parents[1] / "data"
INSTANCES = DATA / "planning" / "minimalloc"
PROBLEM = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "p.csv").write_text(PROBLEM)
    (tmp_path / "a.csv").write_bytes((INSTANCES / "A.1048576.csv").read_bytes())
    (tmp_path / "d.csv").write_bytes((INSTANCES / "D.1048576.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trace(folder):
    """Two passes; the second: three planned, one escaping, one of another thread, one of 0 bytes."""
    with _core.TraceWriter(str(folder / "x.trace")) as writer:
        writer.meta("model", "tiny")
        writer.define_site(5, 0, "aten::empty")
        writer.pass_begin(0)
        writer.allocate(1, 5, 1000)
        writer.free(1)
        writer.pass_end(0)
        writer.pass_begin(1)
        for number, (size, thread) in enumerate(
            [(100, 0), (60, 0), (7, 1), (500, 0), (0, 0), (100, 0)], start=2
        ):
            writer.allocate(number, 5, size, thread=thread)
            if number == 3:
                writer.free(2)
        for number in (3, 4, 6, 7):
            writer.free(number)
        writer.pass_end(1)
    return folder / "x.trace"


def golden(name, text):
    text = re.sub(r"\d+(\.\d+)? (ns|us|ms|s)\b", "TIME", text)
    text = re.sub(r" +(TIME)", r" \1", text)
    text = re.sub(r" +\n", "\n", text)
    text = re.sub(r" {2,}time\b", "  time", text)
    path = DATA / "cli" / f"{name}.txt"
    if os.environ.get("MEMOIR_REWRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_plan_of_csv(memoir, folder):
    code, out, err = memoir("plan", "p.csv", "-o", "y.csv")
    assert (code, err) == (0, "wrote y.csv\n")
    golden("plan_csv", out)
    assert (folder / "y.csv").read_text().splitlines()[:3] == [
        "id,lower,upper,size,offset",
        "b1,0,3,4,8",
        "b2,3,9,4,8",
    ]


def test_as_a_process_of_its_own(folder):
    command = [
        sys.executable,
        "-m",
        "memoir",
        "plan",
        "a.csv",
        "--planner",
        "gergov",
        "--capacity",
        "1MiB",
        "-o",
        "y.csv",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert done.stderr == "wrote y.csv\n"
    assert done.stdout.startswith("a.csv: 154 buffers")


# numpy alone takes longer to import than most problems take to plan.
HEAVY = {"numpy", "matplotlib", "highspy", "ortools", "torch"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.csv", "--json", "-o", "y.csv"],
        ["a.csv", "--capacity", "2MiB", "--alignment", "64", "-o", "y.plan"],
        ["a.csv", "--json", "--planner", "first_fit"],
        ["x.trace", "--json", "-o", "y.plan"],
    ],
    ids=" ".join,
)
def test_files_are_planned_without_heavy_imports(folder, trace, arguments):
    script = (
        "import sys; from memoir.cli import main\n"
        "try: main()\n"
        "finally: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, "plan", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & HEAVY


def test_plan_with_all_planners(memoir, folder):
    pytest.importorskip("highspy")
    pytest.importorskip("ortools")
    code, out, err = memoir("plan", "a.csv", "--planner", "all", "--deadline", "0")
    starved = "memoir: other programs left this search less"  # said on a busy machine
    assert code == 0 and not [line for line in err.splitlines() if not line.startswith(starved)]
    golden("plan_all", out)


def test_show_of_a_plan(memoir, folder):
    memoir("plan", "a.csv", "-o", "a.plan", "--planner", "best_fit")
    code, out, err = memoir("show", "a.plan")
    assert (code, err) == (0, "")
    golden("show_plan", out)


def test_json(memoir, folder):
    code, out, _ = memoir("plan", "a.csv", "--json", "--planner", "gergov", "--capacity", "2MiB")
    result = json.loads(out)
    assert code == 0
    assert result.pop("seconds") >= 0
    assert result == {
        "input": "a.csv",
        "planner": "gergov",
        "maker": "gergov",
        "buffers": 154,
        "load": 1048576,
        "lower_bound": 1048576,
        "arena_size": 1328128,
        "optimal": False,
        "capacity": 2 * 2**20,
        "fits": True,
        "bound_reason": "",
        "interrupted": False,
        "starved": False,
    }
    _, out, _ = memoir("plan", "p.csv", "--json", "--planner", "all")
    result = json.loads(out)
    hidden = {"bump", "mincost_flow", "greedy_by_conflicts", "first_fit_by_length", "first_fit_by_area"}
    shown = {"auto", "exact", "first_fit", "mip"} | {name for name, _ in _core.planners()} - hidden
    assert {row["planner"] for row in result["planners"]} == shown
    _, help_text, _ = memoir("plan", "--help")
    for name in (*hidden, "cpsat"):  # there by name, and in no list
        assert name not in help_text.replace("\n", " ").split("all of these")[0].replace(",", " ").split()
        assert memoir("plan", "p.csv", "--planner", name, "--deadline", "1")[0] == 0
    _, out, _ = memoir("plan", "p.csv", "--json", "--planner", "thesis")
    names = {row["planner"] for row in json.loads(out)["planners"]}
    assert names == {"bump", "greedy_by_size", "gergov", "mincost_flow", "mip"}
    assert (result["arena_size"], result["lower_bound"], result["optimal"]) == (12, 12, True)


def test_a_search_that_got_no_processor_says_so(memoir, folder, monkeypatch):
    auto = PLANNERS["auto"]

    def starved(problem, effort):
        return dataclasses.replace(auto.run(problem, effort), starved=True)

    monkeypatch.setitem(PLANNERS, "auto", dataclasses.replace(auto, run=starved))
    code, out, err = memoir("plan", "a.csv")
    assert code == 0 and "1,048,576" in out
    assert "less than 0.7 of a processor: a longer --deadline may find a smaller plan" in err
    code, out, err = memoir("plan", "a.csv", "--json")
    assert code == 0 and json.loads(out)["starved"] and err == ""


def test_a_tolerance(memoir, folder):
    # The cheap planners alone are within 60 % of the load, and none is nearer than 1 %.
    arguments = ["plan", "a.csv", "--json", "--work-limit", "100000"]
    closest = json.loads(memoir(*arguments)[1])
    close = json.loads(memoir(*arguments, "--tolerance", "60%")[1])
    assert closest["arena_size"] == closest["lower_bound"] == close["lower_bound"] < close["arena_size"]
    assert close["arena_size"] <= 1.6 * close["lower_bound"] and not close["optimal"]
    none = json.loads(memoir(*arguments, "--tolerance", "0")[1])
    assert none["arena_size"] == closest["arena_size"]
    for planner in ("exact", "first_fit", "best_fit"):
        found = json.loads(memoir(*arguments, "--planner", planner, "--tolerance", "512KiB")[1])
        assert found["arena_size"] <= found["lower_bound"] + 512 * 1024
    code, _, err = memoir("plan", "a.csv", "--tolerance", "1%", "--capacity", "2MiB")
    assert code == 2 and "give one of them" in err
    for wrong in ("1q", "-1", "1.5", "%", "x%", "1KiB%", "1e3"):
        code, _, err = memoir("plan", "a.csv", "--tolerance", wrong)
        assert code == 2 and "neither bytes (4096, '64KiB') nor a share of the bound ('0.5%')" in err


@pytest.mark.parametrize(("planner", "package"), [("mip", "highspy"), ("cpsat", "ortools")])
def test_a_tolerance_ends_solvers(planner, package):
    pytest.importorskip(package)
    # Three that take turns: a first fit needs 5 bytes, and 4 are enough.
    lower, upper, size = [0, 1, 2, 0, 3, 4], [2, 3, 5, 4, 6, 7], [1, 2, 1, 1, 2, 1]
    best = memoir_package.plan((lower, upper, size), planner)
    close = memoir_package.plan((lower, upper, size), planner, tolerance="100%")
    assert best.optimal and close.arena_size <= 2 * best.lower_bound
    assert close.lower_bound <= best.arena_size


def test_a_tolerance_is_bytes_or_percent():
    for given, size, share in [(7, 7, 0), ("64KiB", 65536, 0), ("0.5%", 0, 0.005), ("1_000", 1000, 0)]:
        tolerance = Tolerance.of(given)
        assert (tolerance.bytes, tolerance.share) == (size, pytest.approx(share))
    for wrong in (-1, 1.5, None, True, "1.5", "5 %%", 2**63):
        with pytest.raises(_core.Error, match="tolerance"):
            Tolerance.of(wrong)
    assert Tolerance.of("50%").above(100) == 150 and Tolerance.of(3).above(100) == 103


def test_exit_codes(memoir, folder):
    code, out, err = memoir("plan", "a.csv", "--capacity", "1000KiB", "-o", "y.csv")
    assert code == 1
    assert "no plan fits 1,024,000 bytes: 1,048,576 are live at tick 966,656" in out
    assert err.endswith("memoir: no plan fits the capacity of 1,024,000 bytes, so y.csv was not written\n")
    assert not (folder / "y.csv").exists()

    code, out, _ = memoir("plan", "a.csv", "--planner", "gergov", "--capacity", "1MiB", "-o", "y.csv")
    assert code == 3
    assert "no plan was found that fits 1,048,576 bytes, but there may be one" in out
    assert _core.read_csv(str(folder / "y.csv")).offsets is not None  # the best is written

    code, out, _ = memoir("plan", "a.csv", "--capacity", "1.5MiB")
    assert code == 0
    assert re.search(r"fits the capacity of 1,572,864 bytes, [0-9,]+ to spare", out)

    # Without a capacity any plan is one, though the deadline came before the proof that none is smaller.
    code, out, _ = memoir("plan", "d.csv", "--deadline", "0", "--json", "-o", "d.plan")
    assert code == 0
    assert json.loads(out)["optimal"] is False
    assert (folder / "d.plan").exists()
    # With one that is not met by then, nothing is proven: 3.
    code, out, _ = memoir("plan", "d.csv", "--deadline", "0", "--json", "--capacity", "986112")
    assert code == 3
    assert json.loads(out)["fits"] is False

    # Proven by the alignment, not by the load.
    code, out, _ = memoir("plan", "p.csv", "--capacity", "12", "--alignment", "64")
    assert code == 1
    assert "no plan fits 12 bytes: it takes 132 (the load at tick" in out


def test_alignment(memoir, folder):
    code, _, _ = memoir("plan", "a.csv", "--alignment", "4096", "-o", "y.plan")
    assert code == 0
    plan = _core.open_plan(str(folder / "y.plan"))
    assert not np.any(plan.offsets % np.uint64(4096))
    assert set(plan.alignments.tolist()) == {4096}


def test_plan_of_a_trace(memoir, trace, folder):
    code, out, err = memoir("plan", "x.trace", "-o", "x.plan")
    assert code == 0
    assert err.splitlines() == [
        "pass 1: 5 allocations, 3 of them planned",
        "not planned: 1 escaping (still live when it ended), 500 bytes",
        "not planned: 1 foreign (made by other threads), 7 bytes",
        "not planned: 1 empty (of 0 bytes), 0 bytes",
        "wrote x.plan",
    ]
    plan = _core.open_plan(str(folder / "x.plan"))
    assert plan.meta == [("model", "tiny")]
    assert plan.sizes.tolist() == [100, 60, 500, 0, 100]
    assert (plan.offsets == 2**64 - 1).tolist() == [False, False, True, True, False]
    assert plan.memories[0].load == 160
    result = json.loads(memoir("plan", "x.trace", "--json")[1])
    assert (result["pass"], result["allocations"], result["buffers"]) == (1, 5, 3)
    assert result["escaping"] == {"count": 1, "bytes": 500}
    assert memoir("plan", "x.trace", "-o", "x.csv")[0] == 0
    assert (folder / "x.csv").read_text().startswith("id,lower,upper,size,alignment,offset\n2,0,2,100,64,")
    shown = json.loads(memoir("show", "x.plan", "--json")[1])
    assert shown["unplanned"] == {"count": 2, "bytes": 500}
    assert shown["meta"] == {"model": "tiny"}


def test_plan_and_show_read_what_simulate_reads(memoir, folder):
    for path in (DATA / "gpu" / "silmont_mem.d0.trace", DATA / "snapshot.pickle"):
        code, out, err = memoir("plan", path, "--device", "0", "--json")
        assert code == 0
        planned = json.loads(out)
        assert planned["buffers"] > 0 and planned["device"] == 0
        _, out, _ = memoir("simulate", path, "--device", "0", "--policy", "span", "--json")
        (result,) = json.loads(out)["results"]
        assert planned["load"] <= result["floor"]  # what lives on when it ends is not planned
        code, out, err = memoir("show", path, "--json")
        assert code == 0
        assert result["floor"] in [row["peak_live_bytes"] for row in json.loads(out)["devices"]]


def test_one_device_is_planned(memoir, folder):
    with _core.TraceWriter(str(folder / "two.trace")) as writer:
        for number, device in ((1, 0), (2, 3), (3, 3)):
            writer.allocate(number, 0, 100 * number, device=device)
        for number, device in ((1, 0), (2, 3), (3, 3)):
            writer.free(number, device=device)
    code, _, err = memoir("plan", "two.trace")
    assert (code, err) == (
        2,
        "memoir: two.trace: the trace is of the devices 0, 3: choose one with --device\n",
    )
    assert memoir("plan", "two.trace", "--device", "1")[0] == 2
    code, out, err = memoir("plan", "two.trace", "--device", "3", "--json")
    assert (code, json.loads(out)["load"]) == (0, 500)
    assert "not planned: 1 elsewhere (on other devices), 100 bytes" in err
    code, _, err = memoir("plan", "p.csv", "--device", "0")
    assert code == 2 and "CSV" in err


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "PIPE"),
        ("simulate", "t.trace", "--device-costs", "PIPE"),
        ("simulate", "t.trace", "--policy", "lifetime,lifetimes=PIPE"),
        ("show", "PIPE", "--against", "PIPE"),
        ("run", "--model", "PIPE", "--", "true"),
    ],
)
def test_a_pipe_of_any_name_is_refused(words, tmp_path):
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,9,4\n")
    (tmp_path / "t.trace").write_bytes((DATA / "pools.trace").read_bytes())
    os.mkfifo(tmp_path / "x.model")
    words = [word.replace("PIPE", "x.model") for word in words]
    run = [sys.executable, "-m", "memoir", *words]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "x.model" in done.stderr and done.stderr.count("\n") == 1


def test_stream(memoir, folder):
    rows = sorted(
        (line.split(",") for line in (folder / "a.csv").read_text().splitlines()[1:]), key=lambda r: int(r[1])
    )
    text = "\n".join(["id,lower,upper,size", *(",".join(row[:4]) for row in rows)]) + "\n"
    (folder / "s.csv").write_text(text)
    code, out, err = memoir("plan", "s.csv", "--planner", "stream", "-o", "y.csv")
    assert (code, err) == (0, "wrote y.csv\n")
    assert out.startswith("s.csv: 154 buffers, at most ")
    planned = _core.read_csv(str(folder / "y.csv"))
    assert _core.check(planned.problem, _core.Plan(planned.offsets, 2**40)) is None
    code, out, err = memoir("plan", "s.csv", "--planner", "stream", "-o", "y.csv")
    assert code == 2 and "y.csv exists already" in err
    code, out, err = memoir(
        "plan", "s.csv", "--planner", "stream", "-o", "y.csv", "-f", "--json", "--capacity", "1MiB"
    )
    assert code == 3
    result = json.loads(out)
    assert (result["buffers"], result["load"], result["fits"]) == (154, 1048576, False)
    for bad, message in {
        "id,lower,upper,size\na,5,6,1\nb,4,6,1\n": "bad.csv:3: buffer 1 is born before",
        "id,lower,upper,size,gaps\na,5,6,1,\n": "bad.csv:1: a stream has the columns",
        "id,lower,upper,size\na,5,x,1\n": "bad.csv:2: upper is 'x'",
        "id,lower,upper\n": "bad.csv:1: no column 'size'",
        "id,lower,upper,size\na,5\n": "bad.csv:2: has 2 fields",
        "": "bad.csv: is empty",
    }.items():
        (folder / "bad.csv").write_text(bad)
        before = set(folder.iterdir())
        code, out, err = memoir("plan", "bad.csv", "--planner", "stream", "-o", "z.csv")
        assert (code, out) == (2, "") and message in err, err
        assert set(folder.iterdir()) == before
    assert memoir("plan", "s.csv", "--planner", "stream")[0] == 2
    assert memoir("plan", "none.csv", "--planner", "stream", "-o", "z.csv")[0] == 2


def test_gaps_are_used(memoir, folder):
    (folder / "g.csv").write_text("id,lower,upper,size,gaps\na,0,9,4,2-3\nb,2,3,4,\n")
    code, out, err = memoir("plan", "g.csv", "--json")
    assert code == 0
    assert err == ""
    assert json.loads(out)["arena_size"] == 4


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, [], "bad.csv: cannot be read: No such file or directory"),
        (b"", [], "bad.csv: is empty; the first line must name the columns"),
        (b"id,lower,upper\na,0,4\n", [], "bad.csv:1: no column 'size'"),
        (
            b"id,lower,upper,size\na,0,4,8\nb,4,-1,8\n",
            [],
            "bad.csv:3: upper is '-1': it must not be negative",
        ),
        (b"id,lower,upper,size\na,0,4,8\na,4,5,8\n", [], "bad.csv:3: id 'a' is used twice; first in line 2"),
        (
            b"id,lower,upper,size\na,0,4,18446744073709551615\n",
            [],
            "bad.csv:2: a size of 18446744073709551615",
        ),
        (b"id,lower,upper,size\na,0,4,8\nb,4", [], "bad.csv:3: has 2 fields; the header has 4 columns"),
        (b"\x89PNG\r\n\x1a\n", [], "bad.csv is neither a trace nor CSV"),
        (b"\x89memoirT", [], "bad.csv: "),
        (b"\x89memoirP", [], "bad.csv is a plan already"),
        (b"id,lower,upper,size\na,0,4,8\n", ["--alignment", "0"], "alignment 0: it must be at least 1"),
        (
            b"id,lower,upper,size\na,0,4,8\n",
            ["--alignment", "3000000000000000001"],
            "no offset can be a multiple",
        ),
        (b"id,lower,upper,size\na,0,4,8\n", ["--capacity", "12x"], "'12x' is not a size"),
        (b"id,lower,upper,size\na,0,4,8\n", ["--capacity", "1.3KiB"], "not a whole number of bytes"),
        (b"id,lower,upper,size\na,0,4,8\n", ["--planner", "best"], "'best' is not"),
        (b"id,lower,upper,size\na,0,4,8\n", ["-o", "y.txt"], "y.txt: the suffix says what to write"),
        (b"id,lower,upper,size\na,0,4,8\n", ["-o", "p.csv"], "p.csv exists already; pass -f to overwrite it"),
        (b"id,lower,upper,size\na,0,4,8\n", ["-o", "no/y.csv"], "no/y.csv: there is no folder no"),
    ],
)
def test_bad_input(memoir, folder, content, arguments, message):
    if content is not None:
        (folder / "bad.csv").write_bytes(content)
    before = {path.name for path in folder.iterdir()}
    output = [] if "-o" in arguments else ["-o", "y.plan"]
    code, out, err = memoir("plan", "bad.csv", *output, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1 or "Usage:" in err
    assert "Traceback" not in err
    assert {path.name for path in folder.iterdir()} == before  # no partial output
    assert (folder / "p.csv").read_text() == PROBLEM


def test_overwriting(memoir, folder):
    assert memoir("plan", "p.csv", "-o", "p.csv", "-f")[0] == 0
    assert (folder / "p.csv").read_text().startswith("id,lower,upper,size,offset\n")
    again = memoir("plan", "p.csv", "-o", "y.csv")  # its offset column is replaced
    assert again[0] == 0
    assert (folder / "y.csv").read_text() == (folder / "p.csv").read_text()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_heap_map(memoir, folder, suffix):
    pytest.importorskip("matplotlib")
    memoir("plan", "a.csv", "-o", "a.plan")
    code, out, err = memoir("show", "a.plan", "-o", f"map{suffix}")
    assert (code, err) == (0, f"wrote map{suffix}\n")
    assert out.endswith(f"next: memoir show a.plan --planner all -o map-planners{suffix}\n")
    content = (folder / f"map{suffix}").read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert memoir("show", "a.plan", "-o", f"map{suffix}")[0] == 2  # not overwritten
    memoir("show", "a.plan", "-o", f"map{suffix}", "-f")
    assert (folder / f"map{suffix}").read_bytes() == content  # the same bytes every time


def test_heap_maps_side_by_side(memoir, folder):
    pytest.importorskip("matplotlib")
    memoir("plan", "p.csv", "-o", "y.csv")
    code, out, _ = memoir("show", "y.csv", "--planner", "all", "-o", "maps.svg", "--deadline", "1")
    assert code == 0
    names = [name for name, planner in PLANNERS.items() if planner.shown]
    assert all(name in out for name in names)
    assert (folder / "maps.svg").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            PROBLEM.encode(),
            "x.csv: not every buffer has an offset; make a plan with memoir plan x.csv -o x.plan",
        ),
        (
            b"id,lower,upper,size,offset\na,0,4,8,0\nb,0,4,8,7\n",
            "x.csv: the offsets are not a plan: a and b: the two live",
        ),
        (b"id,lower,upper,size,offset\na,0,4,8,18446744073709551615\n", "beyond 64 bits"),
        (b"id,lower,upper,size,alignment,offset\na,0,4,8,4,2\n", "not a multiple of the alignment"),
        (b"\x89memoirP123", "x.csv: is cut off after 11 bytes"),
        (b"\x89memoirT", "x.csv: "),
        (
            b"\x7fELF\0\0\0\0",
            "x.csv is neither a trace, nor a plan, nor a lifetime profile, nor a model, nor CSV",
        ),
    ],
)
def test_show_bad_input(memoir, folder, content, message):
    (folder / "x.csv").write_bytes(content)
    code, out, err = memoir("show", "x.csv", "-o", "m.png")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "m.png").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_search_with_its_best_plan(tmp_path, number):
    # D with sizes made all different: no search here ends.
    problem = _core.read_csv(str(DATA / "planning" / "minimalloc" / "D.1048576.csv")).problem
    sizes = [int(size) * 64 + 97 * k for k, size in enumerate(problem.size, 1)]
    rows = zip(problem.lower, problem.upper, sizes, strict=True)
    lines = [f"{k},{lower},{upper},{size}" for k, (lower, upper, size) in enumerate(rows)]
    (tmp_path / "d.csv").write_text("\n".join(["id,lower,upper,size", *lines]) + "\n")
    script = "import sys; from memoir.cli import main; print('ready', flush=True); main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "plan", "d.csv", "-o", "out.csv", "-f", "--deadline", "600"]
    for wait in (1, 4, 16, 64):  # it must have begun to search
        program = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert program.stdout.readline() == b"ready\n"
        time.sleep(wait)
        program.send_signal(number)
        _, err = program.communicate(timeout=120)
        if program.returncode == 0:
            break
    assert program.returncode == 0, err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(lines) + 1
