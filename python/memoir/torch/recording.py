# SPDX-License-Identifier: Apache-2.0
"""Recording on purpose: a trace file of some passes, with what the exported graph would have shown next to it."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from memoir import Error, _torch
from memoir.base.files import Folder
from memoir.torch.memory import describe_recording
from memoir.torch.signature import describe

MODELS_NAMED = 256  # models whose modules' paths are kept


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
    `memoir show` prints them next to those that really happened. force: overwrites the file. Returns the last result.
    """
    path = Path(path)
    if path.exists() and not force:
        raise Error(f"{path}: exists already; pass force=True to overwrite it")
    for _ in range(warm_up):
        function(*args, **kwargs)
    with Folder(path.parent) as folder:
        name = f"{path.name}.{secrets.token_hex(4)}.unfinished"  # readable if this process is killed
        try:
            result = _record_into(folder.place(name), path, function, args, kwargs, passes, graph)
            folder.finish(name, path.name, folder, force=force, private=True)
        finally:
            folder.remove(name)
    return result


def _record_into(
    unfinished: Path,
    path: Path,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    passes: int,
    graph: bool,
) -> Any:
    recording = _torch.Recording(str(unfinished))
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
            number = recording.pass_begin()
            result = function(*args, **kwargs)
            recording.pass_end(number)
    finally:
        recording.end()
    if recording.dropped:
        raise Error(f"{path}: {recording.dropped} events could not be written: is the disk full?")
    recording.close()
    return result


def record_program(path: str | None) -> None:
    """Records every thread from here to the end of the process, each outermost module call as a pass: what `memoir
    record` starts in the program that it runs. A process that is forked from it is recorded into a trace of its own,
    x.<pid>.trace. path: None: into the trace of the recorder of malloc, which is preloaded and follows forks by itself.
    Never raises: a program must not fail for being recorded."""
    program: _RecordedProgram | _ToldProgram
    program = _RecordedProgram(Path(path)) if path is not None else _ToldProgram()
    program.begin()
    if program.recording is None:
        return
    hooks = torch.nn.modules.module
    handles = (
        hooks.register_module_forward_pre_hook(program.enter),
        hooks.register_module_forward_hook(program.leave, always_call=True),
    )
    os.register_at_fork(after_in_child=program.begin_in_child)
    multiprocessing.util.register_after_fork(program, lambda child: child.end_with_worker())

    def finish() -> None:
        for handle in handles:
            handle.remove()
        program.end()

    atexit.register(finish)


class _ThreadsCalls(threading.local):
    """The module calls that a thread is in."""

    depth = 0
    number = 0  # of the pass
    names: Mapping[int, str] = {}  # of the modules of the outermost one, by id


class _ModuleNames:
    """The paths of the modules in a model. They are taken once for each model, so a module that it gets later is known by
    its class. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], Mapping[int, str]]] = {}

    def of(self, model: torch.nn.Module) -> Mapping[int, str]:
        known = self._known.get(id(model))
        if known is not None and known[0]() is model:
            return known[1]
        try:
            names = {id(module): path for path, module in model.named_modules()}
            if len(self._known) >= MODELS_NAMED:
                self._known.clear()
            self._known[id(model)] = weakref.ref(model), names
        except Exception:  # a module of the program's own making: it must not fail for being recorded
            return {}
        return names


class _Passes:
    """A pass around each module call that is inside no other on its thread."""

    def __init__(self) -> None:
        self.recording: _torch.Recording | _torch.ProgramsRecording | None = None
        self.calls = _ThreadsCalls()
        self.words = ("", "")
        self.names = _ModuleNames()

    def enter(self, module: torch.nn.Module, args: Any) -> None:
        calls = self.calls
        recording = self.recording
        if calls.depth == 0 and recording is not None:
            self._describe(recording, module, args)
            calls.number = recording.pass_begin()
            calls.names = self.names.of(module)
        if isinstance(recording, _torch.ProgramsRecording):
            recording.module_begin(calls.names.get(id(module)) or type(module).__name__)
        calls.depth += 1

    def _describe(
        self, recording: _torch.Recording | _torch.ProgramsRecording, module: torch.nn.Module, args: Any
    ) -> None:
        """What the pass is called with, as remember() matches a plan by it: the last one counts, as the last pass is
        planned."""
        try:
            words, model = describe(args, {}), type(module).__name__
        except Exception:  # the program's own __repr__, perhaps: a program must not fail for being recorded
            return
        if (model, words) != self.words:
            self.words = (model, words)
            recording.meta("model", model)
            recording.meta("signature", words)

    def leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        calls = self.calls
        if calls.depth > 0:
            if isinstance(self.recording, _torch.ProgramsRecording):
                self.recording.module_end()
            calls.depth -= 1
            if calls.depth == 0 and calls.number and self.recording is not None:
                self.recording.pass_end(calls.number)
                calls.number = 0


class _ToldProgram(_Passes):
    """What is known of PyTorch goes to the recorder of the whole program."""

    def begin(self) -> None:
        try:
            recording = _torch.ProgramsRecording()
        except Error:  # the recorder said why it does not record
            return
        describe_recording(recording, " ".join(sys.argv[:1]), "the whole program")
        if recording.begin_everywhere():
            self.recording = recording

    def begin_in_child(self) -> None:
        """The child has a trace of its own, and what is told goes there."""
        self.calls = _ThreadsCalls()
        if self.recording is not None:
            describe_recording(self.recording, " ".join(sys.argv[:1]), "the whole program")

    def end_with_worker(self) -> None:
        """Its recorder ends by itself."""

    def end(self) -> None:
        self.recording = None


class _RecordedProgram(_Passes):
    """The recording of all threads into a trace of tensors."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.recording: _torch.Recording | None = None

    def begin(self, path: Path | None = None) -> None:
        path = self.path if path is None else path
        try:
            self.recording = _torch.Recording(str(path))
        except Error as error:
            self.recording = None
            print(f"memoir: {error}; not recording", file=sys.stderr)
            return
        describe_recording(self.recording, " ".join(sys.argv[:1]), "the whole program")
        self.recording.begin_everywhere()

    def begin_in_child(self) -> None:
        """One of os.fork() that ends without its atexit leaves a trace that is readable up to its end all the same."""
        self.calls = _ThreadsCalls()
        self.begin(self.path.with_name(f"{self.path.stem}.{os.getpid()}{self.path.suffix}"))

    def end_with_worker(self) -> None:
        """A worker of multiprocessing runs finalizers of its own, and no atexit."""
        multiprocessing.util.Finalize(None, self.end, exitpriority=0)

    def end(self) -> None:
        recording, self.recording = self.recording, None
        if recording is None:
            return
        recording.end()
        if recording.dropped:
            print(f"memoir: {recording.dropped} events were lost: is the disk full?", file=sys.stderr)
        recording.close()


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
