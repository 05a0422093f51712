# SPDX-License-Identifier: Apache-2.0
"""Recording on purpose: a trace file of some passes, with what the exported graph would have shown beside it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from memoir import Error, _torch
from memoir.torch.memory import describe_recording
from memoir.torch.signature import describe


def record(
    function: Callable[..., Any],
    *args: Any,
    path: str | os.PathLike[str],
    passes: int = 1,
    warm_up: int = 1,
    graph: bool = False,
    force: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls `function(*args, **kwargs)` and records every allocation of the calls into a trace file.

    passes: calls that are recorded, each a pass of the trace. warm_up: calls before them, which are not (a first call
    makes caches that later ones find). graph: also exports the graph (torch.export) and notes its allocations, so that
    `memoir show` prints them beside those that really happened. force: overwrites the file. Returns the last result.
    """
    path = Path(path)
    if path.exists() and not force:
        raise Error(f"{path}: exists already; pass force=True to overwrite it")
    for _ in range(warm_up):
        function(*args, **kwargs)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")  # readable if this process is killed
    unfinished.unlink(missing_ok=True)
    recording = _torch.Recording(str(unfinished))
    try:
        describe_recording(
            recording, getattr(function, "__qualname__", type(function).__name__), describe(args, kwargs)
        )
        if graph:
            if not isinstance(function, torch.nn.Module):
                raise TypeError(f"graph=True needs an nn.Module, not {type(function).__name__}")
            count, size = graph_allocations(function, *args, **kwargs)
            recording.meta("graph_allocations", str(count))
            recording.meta("graph_bytes", str(size))
        recording.begin(large_apart=False)
        try:
            for _ in range(passes):
                recording.pass_begin()
                result = function(*args, **kwargs)
                recording.pass_end()
        finally:
            recording.end()
        if recording.dropped:
            raise Error(f"{path}: {recording.dropped} events could not be written: is the disk full?")
        recording.close()
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return result


def record_program(path: str) -> None:
    """Records the calling thread from here to the end of the process, each outermost module call as a pass: what
    `memoir record` starts in the program that it runs. Never raises: a program must not fail for being recorded."""
    try:
        recording = _torch.Recording(path)
    except Error as error:
        print(f"memoir: {error}; not recording", file=sys.stderr)
        return
    describe_recording(recording, " ".join(sys.argv[:1]), "the whole program")
    recording.begin(large_apart=False)
    passes = _OutermostCalls(recording)
    hooks = torch.nn.modules.module
    handles = (
        hooks.register_module_forward_pre_hook(passes.enter),
        hooks.register_module_forward_hook(passes.leave, always_call=True),
    )

    def finish() -> None:
        for handle in handles:
            handle.remove()
        recording.end()
        if recording.dropped:
            print(f"memoir: {recording.dropped} events were lost: is the disk full?", file=sys.stderr)
        recording.close()

    atexit.register(finish)


class _OutermostCalls:
    """Marks a pass around each module call that is inside no other, on the recorded thread."""

    def __init__(self, recording: _torch.Recording):
        self.recording = recording
        self.thread = threading.get_ident()
        self.depth = 0

    def enter(self, module: torch.nn.Module, args: Any) -> None:
        if threading.get_ident() == self.thread:
            if self.depth == 0:
                self.recording.pass_begin()
            self.depth += 1

    def leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if threading.get_ident() == self.thread and self.depth > 0:
            self.depth -= 1
            if self.depth == 0:
                self.recording.pass_end()


def graph_allocations(module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """The allocations and bytes that the graph of `module` shows: one for each output tensor of each operator in
    torch.export's graph that is not a view or an in-place result (MemoMalloc, table 3.1, counts the graph's so)."""
    with torch.no_grad():
        exported = torch.export.export(module, args, kwargs or None, strict=False)
    count = size = 0
    for node in exported.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        values = node.meta.get("val")
        values = values if isinstance(values, (tuple, list)) else [values]
        for value, returned in zip(values, node.target._schema.returns, strict=False):
            if isinstance(value, torch.Tensor) and returned.alias_info is None:
                count += 1
                size += value.untyped_storage().nbytes()
    return count, size
