# SPDX-License-Identifier: Apache-2.0
"""_core.pyi and _torch.pyi are what nanobind makes of the extension modules, and what stubs.patterns adds is true."""

import ast
from pathlib import Path

import numpy as np
import pytest
from extension_stubs import MODULES, PACKAGE, PATTERNS, path_of, stub_of
from nanobind.stubgen import load_pattern_file

from memoir import _core

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("module", MODULES)
def test_the_stubs_are_of_the_modules_that_are_built(module):
    if module == "_torch":
        pytest.importorskip("memoir.torch")
    text, _ = stub_of(module)
    assert text == path_of(module).read_text(), "run .venv/bin/python tests/stubs/extension_stubs.py"


def test_every_rule_is_of_use():
    pytest.importorskip("memoir.torch")
    used = set().union(*(stub_of(module)[1] for module in MODULES))
    assert used == {rule.query.pattern for rule in load_pattern_file(str(PATTERNS))}


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()


def is_of(value: object, said: ast.expr) -> bool:
    """Whether a value is of the type that an annotation says."""
    if isinstance(said, ast.BinOp):  # A | B
        return is_of(value, said.left) or is_of(value, said.right)
    if isinstance(said, ast.Subscript):
        name = ast.unparse(said.value)
        inner = said.slice.elts if isinstance(said.slice, ast.Tuple) else [said.slice]
        if name == "NDArray":
            kind = getattr(np, ast.unparse(inner[0]).removeprefix("numpy."))
            if not isinstance(value, np.ndarray):
                return False
            return value.dtype.kind == "V" if kind is np.void else value.dtype == kind
        if name == "dict":
            return type(value) is dict and all(
                is_of(k, inner[0]) and is_of(v, inner[1]) for k, v in value.items()
            )
        if name == "list":
            return type(value) is list and all(is_of(one, inner[0]) for one in value)
        assert name == "tuple"
        return type(value) is tuple and len(value) == len(inner) and all(map(is_of, value, inner))
    name = ast.unparse(said)
    return name == "Any" or type(value).__name__ == name or (value is None and name == "None")


@pytest.fixture(scope="module")
def said() -> dict[str, ast.expr]:
    """Full name of a property or function -> what it returns, of all that have one overload."""
    found = {}
    for top in ast.parse(path_of("_core").read_text()).body:
        inside = top.body if isinstance(top, ast.ClassDef) else [top]
        prefix = f"{top.name}." if isinstance(top, ast.ClassDef) else ""
        for function in inside:
            if isinstance(function, ast.FunctionDef) and function.returns is not None:
                found[prefix + function.name] = function.returns
    return found


def samples(tmp_path: Path) -> list[object]:
    """An object of each class that has properties."""
    csv = tmp_path / "x.csv"
    csv.write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
    planned = tmp_path / "y.csv"
    planned.write_text("id,lower,upper,size,offset,arena\na,0,2,10,0,x\nb,1,3,20,10,x\n")
    read = _core.read_csv(str(csv))
    constrained = _core.ConstrainedProblem(read)
    constrained.set_locality()
    trace = _core.Trace.open(DATA / "small.v1.trace")
    workload = _core.Workload(trace)
    recorded = _core.read_pass(trace)
    found = _core.search(read.problem)
    simulation = _core.simulate(workload, "span", phases=True)
    program = recorded.record(_core.run_planner("boxing", recorded.problem), "boxing")
    return [
        *(read, _core.read_csv(str(planned)), read.problem, found, found.plan),
        *(constrained, _core.plan_constrained(constrained, "auto")),
        *(trace, recorded, program, program.memories[0], program.recorded_for()),
        *(workload, simulation, simulation.calls, simulation.times, _core.find_cap(workload, "span")),
    ]


def test_properties_are_of_their_types(tmp_path, said):
    checked = 0
    for thing in samples(tmp_path):
        of = type(thing).__name__
        for name in (name for name in dir(type(thing)) if isinstance(getattr(type(thing), name), property)):
            value = getattr(thing, name)
            assert is_of(value, said[f"{of}.{name}"]), f"{of}.{name} is {value!r}"
            checked += 1
    assert checked > 100


def test_functions_return_their_types(tmp_path, said):
    (tmp_path / "x.csv").write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
    problem = _core.read_csv(str(tmp_path / "x.csv")).problem
    constrained = _core.ConstrainedProblem(problem)
    good, bad = _core.Plan(np.array([0, 10], np.uint64), 30), _core.Plan(np.array([0, 0], np.uint64), 30)
    arenas = np.zeros(2, np.uint64)
    trace = _core.Trace.open(DATA / "small.v1.trace")
    returned = {
        "planners": [_core.planners()],
        "policies": [_core.policies()],
        "plan_quickly": [_core.plan_quickly(problem)],
        "stream_csv": [_core.stream_csv(str(tmp_path / "x.csv"), str(tmp_path / "out.csv"))],
        "check": [_core.check(problem, good), _core.check(problem, bad)],
        "check_constrained": [
            _core.check_constrained(constrained, plan.offsets, arenas) for plan in (good, bad)
        ],
        "measure": [_core.measure(constrained, good.offsets, arenas)],
        "devices_of": [_core.devices_of(trace)],
        "Trace.meta_keys": [trace.meta_keys()],
        "Plan.__reduce__": [good.__reduce__()],
        "ConstrainedProblem.plain": [constrained.plain()],
    }
    assert returned["check"][1] is not None and returned["check_constrained"][1] is not None
    for name, values in returned.items():
        if name == "Plan.__reduce__":
            kind, (offsets, arena_size) = values[0]
            assert kind is _core.Plan and is_of(offsets, said["Plan.offsets"]) and type(arena_size) is int
            continue
        for value in values:
            assert is_of(value, said[name]), f"{name} gives {value!r}"
