# SPDX-License-Identifier: Apache-2.0
"""memoir.plan(): every planner against brute force, the arrays it takes, and what it refuses."""

import ctypes
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from memoir.planning.arrays import as_problem
from memoir.planning.planners import PLANNERS, solver_process
from memoir.planning.planners.mip import PAIR_LIMIT, live_pairs

import memoir
from memoir import _core

DATA = Path(__file__).parents[1] / "data" / "planning"


def random_problem(rng, count, alignments=(1,)):
    lower = rng.integers(0, 10, count)
    upper = lower + rng.integers(1, 8, count)
    return lower, upper, rng.integers(1, 12, count), rng.choice(alignments, count)


def best_arena(lower, upper, size, alignment):
    """First fit by lowest offset, in every order: as slow and as plain as can be."""
    best = None
    for order in itertools.permutations(range(len(lower))):
        offsets = {}
        for i in order:
            offset, moved = 0, True
            while moved:
                moved = False
                for j, other in offsets.items():
                    lives = lower[i] < upper[j] and lower[j] < upper[i]
                    if lives and offset < other + size[j] and other < offset + size[i]:
                        offset, moved = -(-(other + size[j]) // alignment[i]) * alignment[i], True
            offsets[i] = offset
        top = max(offsets[i] + size[i] for i in order)
        best = top if best is None else min(best, top)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_every_planner_against_brute_force_and_the_solvers_equal_to_it(seed):
    pytest.importorskip("highspy")
    pytest.importorskip("ortools")
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 6, (1, 2, 4) if seed % 2 else (1,))
    best = best_arena(*(column.tolist() for column in problem))
    for name in PLANNERS:
        result = memoir.plan(problem, name, deadline=600)
        assert result.load <= result.lower_bound <= best <= result.arena_size, name
        if name in ("mip", "cpsat", "auto", "exact"):
            assert result.arena_size == best, name
            assert result.optimal, name


# Its load is 10 and its best arena 11, as tests/plan/test_planners.cc finds by brute force.
ABOVE_ITS_LOAD = ([4, 1, 6, 5, 2, 7, 3, 0], [6, 2, 10, 7, 7, 10, 4, 5], [2, 4, 5, 2, 2, 5, 2, 5])


def test_mip_proves_more_than_the_load():
    pytest.importorskip("highspy")
    result = memoir.plan(ABOVE_ITS_LOAD, "mip", deadline=600)
    assert (result.load, result.lower_bound, result.arena_size, result.optimal) == (10, 11, 11, True)
    infeasible = memoir.plan(ABOVE_ITS_LOAD, "mip", deadline=600, capacity=10)
    assert infeasible.fits is False
    assert infeasible.proven_infeasible


@pytest.fixture
def started(monkeypatch):
    """The processes of the solvers, as they are started."""
    processes = []

    class Started(subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Started)
    return processes


def test_mip_keeps_its_deadline_and_gives_its_best(started):
    pytest.importorskip("highspy")
    csv = _core.read_csv(str(DATA / "minimalloc" / "A.1048576.csv"))
    result = memoir.plan(csv.problem, "mip", deadline=0.5)
    (process,) = started
    assert process.returncode in (0, -signal.SIGKILL)  # by then: HiGHS alone takes minutes
    assert result.arena_size <= _core.plan_quickly(csv.problem)[0].arena_size
    assert _core.check(csv.problem, _core.Plan(result.offsets, result.arena_size)) is None
    assert not result.optimal


@pytest.mark.full
def test_cpsat_proves_more_than_the_load_and_says_so():
    pytest.importorskip("ortools")
    result = memoir.plan(ABOVE_ITS_LOAD, "cpsat", deadline=600)
    assert (result.load, result.lower_bound, result.arena_size, result.optimal) == (10, 11, 11, True)
    assert result.bound_reason == "CP-SAT proved that no plan is smaller than 11 bytes"
    assert memoir.plan(ABOVE_ITS_LOAD, "cpsat", deadline=600, capacity=10).proven_infeasible


def test_cpsat_keeps_its_deadline_and_stops_at_the_capacity(started):
    pytest.importorskip("ortools")
    problem = _core.read_csv(str(DATA / "minimalloc" / "A.1048576.csv")).problem
    quick = _core.plan_quickly(problem)[0].arena_size
    result = memoir.plan(problem, "cpsat", deadline=0.5)
    assert started[0].returncode in (0, -signal.SIGKILL)
    assert result.arena_size <= quick
    assert _core.check(problem, _core.Plan(result.offsets, result.arena_size)) is None
    roomy = memoir.plan(problem, "cpsat", deadline=600, capacity=quick - 1)
    assert roomy.fits and started[1].returncode == 0  # it ended by itself, before the deadline


@pytest.mark.full
def test_cpsat_refuses_what_it_could_not_finish():
    pytest.importorskip("ortools")
    huge = 2**56 + 1
    with pytest.raises(memoir.Error, match="cpsat counts to 1,125,899,906,842,624"):
        memoir.plan((*ABOVE_ITS_LOAD[:2], [s * huge + 1 for s in ABOVE_ITS_LOAD[2]]), "cpsat")
    rng = np.random.default_rng(3)
    lower = rng.integers(0, 1000, 20_001)
    problem = (lower, lower + rng.integers(1, 500, 20_001), rng.integers(1, 10**6, 20_001))
    with pytest.raises(memoir.Error, match="cpsat takes at most 20,000 buffers, not 20,001"):
        memoir.plan(problem, "cpsat")


@pytest.mark.parametrize(("planner", "module"), [("cpsat", "ortools"), ("mip", "highspy")])
def test_a_solver_that_is_not_installed(monkeypatch, planner, module):
    for name in [name for name in sys.modules if name == module or name.startswith(module + ".")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(memoir.Error, match=rf"needs .*pip install 'memoir-alloc\[{planner}\]'"):
        memoir.plan(ABOVE_ITS_LOAD, planner)


# Tells what it knows, says that it did in a file, and looks at no clock.
SLEEPER = """import os, time
from memoir.planning.planners import solver_process
def work(task, tell):
    tell({'bound': 2})
    tell({'offsets': [9, 9]})
    tell({'offsets': [task['place'], 0]})
    tell({'bound': 3})
    with open(task['told'] + '.new', 'w') as file:
        file.write(str(os.getpid()))
    os.rename(task['told'] + '.new', task['told'])
    time.sleep(3600)
solver_process.serve(work)
"""
WAITER = """import signal, subprocess, sys, time
from memoir.planning.planners.solver_process import solve
signal.signal(signal.SIGINT, signal.default_int_handler)
wait = subprocess.Popen.wait
def waiting(*arguments):
    open(sys.argv[1] + '.waiting', 'w').close()
    return wait(*arguments)
subprocess.Popen.wait = waiting
found = solve("x: X", "sleeper", {"place": 4, "told": sys.argv[1]}, time.monotonic() + 3600)
print(found.offsets, found.bound, found.interrupted)
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder whose modules the solvers' processes find."""
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return tmp_path / "modules"


def solved(module, seconds=600.0, **task):
    return solver_process.solve("x: X", module, task, time.monotonic() + seconds)


def test_a_solver_that_looks_at_no_clock_is_ended_and_its_best_kept(modules, tmp_path, started):
    (modules / "sleeper.py").write_text(SLEEPER)
    for seconds in (1, 10, 100):  # where Python takes that long to start
        found = solved("sleeper", seconds, place=4, told=str(tmp_path / "told"))
        if found.bound == 3:
            break
    assert (found.offsets, found.bound, found.interrupted) == ([4, 0], 3, False)
    assert started[-1].returncode == -signal.SIGKILL


@pytest.fixture
def waiter(tmp_path):
    """A process that waits for a solver, in a session of its own, and the solver's number."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    told, waiting = tmp_path / "told", tmp_path / "told.waiting"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITER, told],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not (told.exists() and waiting.exists()):
            assert process.poll() is None
            time.sleep(0.01)
        yield process, int(told.read_text())
    finally:
        process.kill()
        process.communicate()


def is_gone(number):
    """Also when nobody has asked for its status."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_ctrl_c_keeps_the_best(waiter):
    process, solver = waiter
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate(timeout=300)[0] == "[4, 0] 3 True\n"
    assert is_gone(solver)


def test_a_solver_ends_with_whoever_waits_for_it(waiter):
    process, solver = waiter
    assert not is_gone(solver)
    process.kill()
    process.wait()
    until = time.monotonic() + 300
    while not is_gone(solver) and time.monotonic() < until:
        time.sleep(0.01)
    try:
        assert is_gone(solver)
    finally:
        if not is_gone(solver):
            os.kill(solver, signal.SIGKILL)


def test_a_solver_that_fails_says_why(modules):
    (modules / "failing.py").write_text(
        "import sys\nsys.stderr.buffer.write(b'\\xff\\n')\nraise SystemExit('no memory')"
    )
    (modules / "refusing.py").write_text(
        "from memoir.planning.planners import solver_process\n"
        "solver_process.serve(lambda task, tell: tell({'error': 'too wide'}))\n"
    )
    with pytest.raises(memoir.Error, match="^x: X failed with 1: no memory$"):
        solved("failing")
    with pytest.raises(memoir.Error, match="^too wide$"):
        solved("refusing")


def test_a_solver_that_a_signal_ends_keeps_what_it_told(modules):
    (modules / "killed.py").write_text(
        "import os, signal\n"
        "from memoir.planning.planners import solver_process\n"
        "def work(task, tell):\n"
        "    for line in task['lines']:\n"
        "        tell(line)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "solver_process.serve(work)\n"
    )
    found = solved("killed", lines=[{"offsets": [0, 7]}, {"bound": 5}, {"offsets": [3, 0]}])
    assert (found.offsets, found.bound, found.interrupted) == ([3, 0], 5, False)
    with pytest.raises(memoir.Error, match="^x: X was ended by SIGKILL before it found anything"):
        solved("killed", lines=[])


def test_nothing_of_the_current_folder_is_run(modules, tmp_path, monkeypatch):
    (modules / "telling.py").write_text(
        "from memoir.planning.planners import solver_process\n"
        "solver_process.serve(lambda task, tell: tell({'bound': 4}))\n"
    )
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in ("json", "runpy", "numpy", "memoir", "telling", "ctypes", "sitecustomize"):
        (folder / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit(3)\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in an interactive session
    assert solved("telling").bound == 4
    assert not (folder / "ran").exists()


def test_mip_leaves_stdout_to_us(capfd):
    pytest.importorskip("highspy")
    memoir.plan(ABOVE_ITS_LOAD, "mip", deadline=600)
    ctypes.CDLL(None).fflush(None)  # what C still holds
    assert capfd.readouterr().out == ""


def test_mip_stops_when_the_plan_fits():
    result = memoir.plan(([0, 1], [2, 3], [5, 5]), "mip", capacity=100, deadline=0)
    assert result.fits and result.optimal


def test_mip_refuses_what_it_could_not_finish():
    pytest.importorskip("highspy")
    rng = np.random.default_rng(3)
    lower = rng.integers(0, 1000, 1500)
    problem = (lower, lower + rng.integers(1, 500, 1500), rng.integers(1, 10**6, 1500))
    assert not memoir.plan(problem).optimal  # or mip would have nothing to do
    assert live_pairs(as_problem(problem), PAIR_LIMIT) is None
    with pytest.raises(memoir.Error, match=r"mip takes at most 200,000 pairs .* 1,500 buffers"):
        memoir.plan(problem, "mip")


def test_live_pairs_are_those_that_overlap():
    rng = np.random.default_rng(1)
    lower, upper, size, _ = random_problem(rng, 40)
    first, second = live_pairs(as_problem((lower, upper, size)), 10**6)
    found = {tuple(sorted(pair)) for pair in zip(first.tolist(), second.tolist(), strict=True)}
    assert len(found) == len(first)
    pairs = itertools.combinations(range(40), 2)
    assert found == {(i, j) for i, j in pairs if lower[i] < upper[j] and lower[j] < upper[i]}


def test_the_forms_of_a_problem():
    columns = {"lower": [0, 2, 4], "upper": [4, 7, 9], "size": [2, 4, 2]}
    expected = memoir.plan(columns)
    assert expected.arena_size == expected.load == 6
    assert expected.optimal
    assert expected.offsets.dtype == np.uint64
    structured = np.array(list(zip(*columns.values(), strict=True)), [(name, "i4") for name in columns])
    for problem in (
        structured,
        tuple(columns.values()),
        [*columns.values(), [1, 1, 1]],
        {name: np.array(values, np.int16) for name, values in columns.items()},
        as_problem(columns),
    ):
        assert memoir.plan(problem).offsets.tolist() == expected.offsets.tolist()
    strided = np.array([columns["lower"], columns["lower"]]).T[:, 0]  # not contiguous
    assert memoir.plan((strided, columns["upper"], columns["size"])).arena_size == 6
    assert memoir.plan(([], [], [])).arena_size == 0


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (([0], [4]), "a problem is lower, upper, size"),
        ({"lower": [0], "upper": [4]}, r"missing \['size'\]"),
        ({"lower": [0], "upper": [4], "size": [1], "offset": [0]}, r"unknown \['offset'\]"),
        (([0, 1], [4], [1]), "have 2, 1, 1 and 2 elements"),
        (([0, -1], [4, 4], [1, 1]), "buffer 1 has the lower -1: it must not be negative"),
        (([0], [4], [1.5]), "size must be an array of integers, not float64"),
        (([[0]], [4], [1]), "lower must be a one-dimensional array, not 2-dimensional"),
        (([4], [4], [1]), r"buffer 0 has the lifetime \[4, 4\)"),
        (([0], [4], [1], [0]), "buffer 0 has the alignment 0"),
        ((np.array([0]), np.array([4]), np.array([2**64 - 1], np.uint64)), "2\\^63 bytes or more"),
    ],
)
def test_what_is_no_problem(problem, message):
    with pytest.raises(memoir.Error, match=message):
        memoir.plan(problem)


def test_bad_arguments():
    problem = ([0], [4], [1])
    with pytest.raises(
        memoir.Error, match="no planner called 'best'; there are auto, exact, first_fit, greedy_by_size"
    ):
        memoir.plan(problem, "best")
    with pytest.raises(memoir.Error, match="deadline"):
        memoir.plan(problem, deadline=-1)
    with pytest.raises(memoir.Error, match="deadline"):
        memoir.plan(problem, deadline=float("nan"))
    with pytest.raises(memoir.Error, match="capacity"):
        memoir.plan(problem, capacity=-1)
    with pytest.raises(memoir.Error, match="threads"):
        memoir.plan(problem, threads=-1)


@pytest.mark.parametrize("planner", ["auto", "exact"])
def test_search_is_repeatable_under_a_work_limit(planner):
    problem = _core.read_csv(str(DATA / "minimalloc" / "D.1048576.csv")).problem
    one, two = (
        memoir.plan(problem, planner, work_limit=100_000, seed=5, threads=threads) for threads in (1, 3)
    )
    assert np.array_equal(one.offsets, two.offsets)
    assert one.lower_bound == two.lower_bound == 986112
    assert "the load at tick" in one.bound_reason


@pytest.mark.parametrize("planner", ["auto", "exact"])
def test_search_proves_more_than_the_load(planner):
    result = memoir.plan(ABOVE_ITS_LOAD, planner, deadline=600)
    assert (result.load, result.lower_bound, result.arena_size, result.optimal) == (10, 11, 11, True)
    assert result.bound_reason.startswith("search")
    assert memoir.plan(ABOVE_ITS_LOAD, planner, deadline=600, capacity=10).proven_infeasible


def test_a_reason_names_the_ticks_of_the_whole_problem_and_not_of_a_part():
    lower, upper, size = ABOVE_ITS_LOAD
    later = ([0, *(tick + 500 for tick in lower)], [1, *(tick + 500 for tick in upper)], [1, *size])
    found = memoir.plan(later, "exact", deadline=600)
    assert (found.lower_bound, found.arena_size) == (11, 11)
    named = [int(word) for word in re.findall(r"ticks? (\d+)", found.bound_reason)]
    assert named
    assert all(500 <= tick < 510 for tick in named)
    at_the_load = memoir.plan(([0, 500, 502], [1, 505, 507], [1, 3, 4]), deadline=600)
    assert at_the_load.bound_reason.startswith("the load at tick 50")


def test_the_load_of_a_recorded_network_is_reached_and_proven():
    problem = _core.read_pass(_core.Trace.open(DATA.parent / "resnet18.trace")).problem
    result = memoir.plan(problem, deadline=600)
    assert result.optimal
    assert result.arena_size == result.lower_bound == _core.aligned_load(problem)


def test_capacity():
    problem = ([0, 1], [2, 3], [5, 5])
    assert memoir.plan(problem).fits is None
    assert memoir.plan(problem, capacity=10).fits is True
    result = memoir.plan(problem, capacity=9)
    assert result.fits is False
    assert result.proven_infeasible


def test_planning_releases_the_gil():
    rng = np.random.default_rng(2)
    lower = rng.integers(0, 30000, 30000)
    problem = as_problem((lower, lower + rng.integers(1, 200, 30000), rng.integers(1, 10**6, 30000)))
    ticks, done = [], threading.Event()

    def plan():
        memoir.plan(problem, "greedy_by_size")
        done.set()

    thread = threading.Thread(target=plan)
    thread.start()
    while not done.wait(0.001):
        ticks.append(1)
    thread.join()
    assert len(ticks) >= 3  # we ran meanwhile


def test_a_result_travels_to_other_processes():
    result = memoir.plan(([0, 1], [2, 3], [5, 6]), "bump")
    copy = pickle.loads(pickle.dumps(result))
    assert copy.summary() == result.summary()
    assert copy.offsets.tolist() == result.offsets.tolist() == [0, 5]


def test_offsets_are_checked_by_the_core():
    problem = as_problem(([0, 1], [2, 3], [5, 5]))
    assert _core.check(problem, _core.Plan(np.array([0, 5], np.uint64), 10)) is None
    assert _core.check(problem, _core.Plan(np.array([0, 4], np.uint64), 10)) == (
        0,
        1,
        "the two live at the same time and overlap",
    )
    with pytest.raises(memoir.Error, match="every buffer once"):
        _core.place_in_order(problem, np.array([0, 0], np.uint64))
    with pytest.raises(memoir.Error, match="every buffer once"):
        _core.place_in_order(problem, np.array([0, 2], np.uint64))


def test_prices_and_loops_of_arrays():
    problem = {"lower": [0, 2, 4], "upper": [2, 4, 6], "size": [8, 8, 4], "price": [(1, 0, 2), (2, 0, 20)]}
    result = memoir.plan(problem)
    assert (result.arena_size, result.paid, result.least_priced, result.optimal) == (12, 2, 14, True)
    assert memoir.plan(problem, capacity=16).paid == 0
    assert memoir.plan({**problem, "price": []}).paid is None
    with pytest.raises(memoir.Error, match="price must be rows of 3 integers"):
        memoir.plan({**problem, "price": [(1, 0)]})
    looped = memoir.plan({"lower": [0, 2, 4], "upper": [2, 4, 6], "size": [8, 8, 4], "loop": [0, 0, -1]})
    assert looped.arena_size == 8 and looped.optimal
