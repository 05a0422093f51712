# SPDX-License-Identifier: Apache-2.0
"""memoir's planner for ExecuTorch's exports, instead of its `greedy`.

    ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(memoir.executorch.memory_planning_algo))

What memoir cannot plan, or not in less memory, `greedy` plans: an export never fails for memoir's sake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from memoir.frameworks.plug import DEADLINE, Placed, hand_over, place

__all__ = ["algorithm", "memory_planning_algo"]


def memory_planning_algo(
    alignment: int, specs: Any, graph_module: Any, graph_signature: Any, extra_padding: int = 0
) -> list[int]:
    """For MemoryPlanningPass. Sets the memory and the offset of each TensorSpec, and returns the bytes of each memory.
    Where memoir fails, with one warning, or takes more memory than `greedy`, the plan is that of `greedy`."""
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy

    specs = list(specs)
    algorithms = [algorithm, greedy]
    try:
        best = MemoryPlanningAlgorithmSuite(algorithms)
        return list(best(alignment, specs, graph_module, graph_signature, extra_padding))
    except Exception as error:
        theirs = MemoryPlanningAlgorithmSuite([greedy])
        sizes = list(theirs(alignment, specs, graph_module, graph_signature, extra_padding))
        hand_over("ExecuTorch", f"{type(error).__name__}: {error}")  # what fails there too raises there
        return sizes


def algorithm(
    alignment: int,
    specs: Any,
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int = 0,
    *,
    deadline: float = DEADLINE,
) -> Any:
    """One of the algorithms of a MemoryPlanningAlgorithmSuite: a MemoryAlgoResult, the specs left as they are. Raises
    memoir.Error or ValueError where a spec's storage is not among the specs, or does not hold it."""
    from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult

    specs = list(specs)
    for spec in specs:
        spec.realign(alignment)
    storages = _storages(specs)
    by_memory: dict[int, list[_Storage]] = defaultdict(list)
    for storage in storages:
        by_memory[storage.memory].append(storage)
    # What submodules take lies at the bottom of each memory, all the time: their results may be read after them.
    below = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])
    result = MemoryAlgoResult({}, [0] * (max(by_memory, default=1) + 1))
    for memory, held in sorted(by_memory.items()):
        bottom = below[memory] if memory < len(below) else 0
        bottom += -bottom % alignment
        placed = place(
            [storage.lower for storage in held],
            [storage.upper for storage in held],
            [storage.size for storage in held],
            alignment,
            deadline,
        )
        for storage, offset, number in zip(held, placed.offsets, _objects(held, placed), strict=True):
            for spec, shift in storage.members:
                result.spec_dict[spec] = SpecAllocResult(memory, number, bottom + offset + shift)
        result.bufsizes[memory] = bottom + placed.arena_size + extra_padding
    return result


class _Storage:
    """One range of memory, and the specs that lie in it: the first is the storage, the others parts of it."""

    def __init__(self, spec: Any) -> None:
        self.memory = 1 if spec.mem_id is None else int(spec.mem_id)
        self.size = int(spec.allocated_memory)
        self.lower, self.upper = _lifetime(spec)
        self.members = [(spec, 0)]

    def add(self, spec: Any, shift: int) -> None:
        if shift % spec.alignment:
            raise ValueError(f"a tensor lies at byte {shift} of its storage, which is not aligned")
        if shift < 0 or shift + int(spec.allocated_memory) > self.size:
            raise ValueError(f"a tensor at byte {shift} ends outside its storage of {self.size} bytes")
        lower, upper = _lifetime(spec)
        self.lower, self.upper = min(self.lower, lower), max(self.upper, upper)
        self.members.append((spec, shift))


def _lifetime(spec: Any) -> tuple[int, int]:
    first, last = spec.lifetime
    if first is None or last is None:
        raise ValueError("a tensor has no lifetime")
    return int(first), int(last) + 1  # theirs are inclusive


def _storages(specs: Iterable[Any]) -> list[_Storage]:
    """The ranges to place: a spec with a `storage_base` lies in that one's range, which may itself lie in another's."""
    specs = list(specs)
    found = {spec: _Storage(spec) for spec in specs if getattr(spec, "storage_base", None) is None}
    for spec in specs:
        base, shift = spec, 0
        seen = set()
        while getattr(base, "storage_base", None) is not None:
            if base in seen:
                raise ValueError("a tensor's storage lies in itself")
            seen.add(base)
            shift += int(base.storage_base_offset)
            base = base.storage_base
        if base is spec:
            continue
        if base not in found:
            raise ValueError("a tensor's storage is not planned here")
        found[base].add(spec, shift)
    return list(found.values())


def _objects(held: list[_Storage], placed: Placed) -> list[int]:
    """For each storage the number of its memory object. Their verifier wants one number for all that share a byte."""
    order = sorted(range(len(held)), key=lambda index: placed.offsets[index])
    numbers = [0] * len(held)
    number, end = -1, 0
    for index in order:
        if number < 0 or placed.offsets[index] >= end:
            number += 1
        numbers[index] = number
        end = max(end, placed.offsets[index] + held[index].size)
    return numbers
