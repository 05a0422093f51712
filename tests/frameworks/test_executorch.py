# SPDX-License-Identifier: Apache-2.0
"""memoir.executorch: with TensorSpecs made here, and on programs that ExecuTorch exports and runs."""

import sys
import types
import warnings

import memoir.executorch
import memoir.frameworks.plug
import pytest

ALIGNMENT = 16


class Spec:
    """As much of a TensorSpec as a planning algorithm sees."""

    def __init__(self, first, last, size, memory=None, base=None, shift=0):
        self.lifetime, self.bytes, self.mem_id = [first, last], size, memory
        self.storage_base, self.storage_base_offset, self.alignment = base, shift, 1

    def realign(self, alignment):
        self.alignment = alignment

    @property
    def allocated_memory(self):
        return self.bytes + -self.bytes % self.alignment


class Result:
    def __init__(self, spec_dict, bufsizes):
        self.spec_dict, self.bufsizes = spec_dict, bufsizes


class Placed:
    def __init__(self, mem_id, mem_obj_id, mem_offset):
        self.mem_id, self.mem_obj_id, self.mem_offset = mem_id, mem_obj_id, mem_offset


@pytest.fixture
def words(monkeypatch):
    """The two words of ExecuTorch's that the algorithm answers in, where ExecuTorch is not."""
    module = types.ModuleType("executorch.exir.memory_planning")
    module.MemoryAlgoResult, module.SpecAllocResult = Result, Placed
    for name in ("executorch", "executorch.exir"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def run(specs, below=(), padding=0):
    module = types.SimpleNamespace(input_mem_buffer_sizes=list(below))
    return memoir.executorch.algorithm(ALIGNMENT, specs, module, None, padding)


def test_specs_that_live_together_do_not_overlap_and_lifetimes_are_inclusive(words):
    first, second, third = Spec(0, 1, 100), Spec(1, 2, 100), Spec(2, 3, 100)
    result = run([first, second, third])
    at = {spec: placed.mem_offset for spec, placed in result.spec_dict.items()}
    assert {at[first], at[second]} == {0, 112} and at[third] == at[first]
    assert result.bufsizes == [0, 224]


def test_a_part_lies_in_its_storage_which_lives_as_long(words):
    storage = Spec(0, 1, 64)
    part = Spec(1, 5, 16, base=storage, shift=32)
    of_part = Spec(5, 6, 16, base=part)
    other = Spec(6, 7, 64)
    placed = run([of_part, part, other, storage]).spec_dict
    assert placed[part].mem_offset == placed[of_part].mem_offset == placed[storage].mem_offset + 32
    assert placed[other].mem_offset != placed[storage].mem_offset
    assert placed[part].mem_obj_id == placed[of_part].mem_obj_id == placed[storage].mem_obj_id


def test_each_memory_is_planned_alone_above_what_submodules_take(words):
    fast, slow = [Spec(0, 3, 32, memory=1) for _ in range(2)], [Spec(0, 3, 48, memory=3)]
    result = run([*fast, *slow], below=[0, 40, 0, 8], padding=64)
    assert result.bufsizes == [0, 48 + 64 + 64, 0, 16 + 48 + 64]
    assert sorted(result.spec_dict[spec].mem_offset for spec in fast) == [48, 80]
    assert result.spec_dict[slow[0]].mem_offset == 16 and result.spec_dict[slow[0]].mem_id == 3


def test_tensors_without_bytes_and_programs_without_tensors(words):
    empty = Spec(0, 1, 0)
    assert run([empty, Spec(0, 1, 16)]).spec_dict[empty].mem_offset == 0
    assert run([]).bufsizes == [0, 0]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Spec(0, 1, 16, base=Spec(0, 1, 64)), "not planned here"),
        (Spec(None, None, 16), "no lifetime"),
    ],
)
def test_what_cannot_be_planned_is_refused(words, spec, says):
    with pytest.raises(ValueError, match=says):
        run([spec])


def test_a_part_that_ends_outside_its_storage_is_refused(words):
    storage = Spec(0, 1, 64)
    with pytest.raises(ValueError, match="outside its storage of 64 bytes"):
        run([storage, Spec(0, 1, 32, base=storage, shift=48)])


# --- with ExecuTorch itself


@pytest.fixture(scope="module")
def executorch():
    return pytest.importorskip("executorch.exir", reason="ExecuTorch is not here: pip install executorch")


def export(model, example, algorithm):
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass() if algorithm is None else MemoryPlanningPass(algorithm)
    edge = to_edge(torch.export.export(model, example))
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def run_exported(program, example):
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    return _load_for_executorch_from_buffer(program.buffer).forward(example)[0]


def arena(program):
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def models():
    import torch
    from torch import nn

    class Inception(nn.Module):
        """Branches of unequal widths, concatenated: where their greedy leaves holes."""

        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3, padding=1)
            self.branches = nn.ModuleList(nn.Conv2d(16, width, 3, padding=1) for width in (4, 20, 7))
            self.end = nn.Conv2d(31, 5, 1)

        def forward(self, x):
            x = self.stem(x).relu()
            return self.end(torch.cat([torch.sigmoid(branch(x)) * 2 for branch in self.branches], 1))

    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, 8))
            self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

        def forward(self, x):
            self.seen.add_(x)
            return self.layers(x) + 0 * self.seen  # what it holds at first is not exported

    class Branching(nn.Module):
        def forward(self, x):
            y = torch.cond(x.sum() > 0, lambda x: (x + 1).tanh() * x, lambda x: (x - 1).cos() * x, (x * 2,))
            return y * 3 + (x + 1).sigmoid() * y.tanh()  # y still lies in the memory of a branch

    torch.manual_seed(0)
    return {
        "inception": (Inception().eval(), (torch.randn(1, 3, 12, 12),)),
        "stateful": (Stateful().eval(), (torch.randn(4, 8),)),
        "branching": (Branching().eval(), (torch.randn(4, 8),)),
    }


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["inception", "stateful", "branching"])
def test_an_exported_program_runs_in_its_own_runtime_with_equal_outputs(executorch, name):
    import torch

    model, example = models()[name]
    theirs = export(model, example, None)
    ours = export(model, example, memoir.executorch.memory_planning_algo)
    assert arena(ours) <= arena(theirs)
    if name == "inception":
        assert arena(ours) < arena(theirs)
    output = run_exported(ours, example)
    assert torch.equal(output, run_exported(theirs, example))
    torch.testing.assert_close(output, model(*example), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_where_memoir_fails_greedy_plans_and_one_warning_says_so(executorch, monkeypatch):
    model, example = models()["stateful"]

    def fail(*_, **__):
        raise memoir.Error("no luck")

    monkeypatch.setattr(memoir.executorch, "place", fail)
    memoir.frameworks.plug.hand_over.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sizes = [arena(export(model, example, memoir.executorch.memory_planning_algo)) for _ in range(2)]
    assert sizes == [arena(export(model, example, None))] * 2
    assert sum("so its own planner does it: Error: no luck" in str(one.message) for one in caught) == 1
