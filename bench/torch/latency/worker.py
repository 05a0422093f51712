# SPDX-License-Identifier: Apache-2.0
"""One allocator's process: `python -m latency.worker`, started by allocator_process.py with that allocator preloaded.

It imports the libraries once and then forks a child for every cell, so that a cell starts from a clean heap
without paying for the imports. Parent and child share stdin and stdout and take turns; every line is one
JSON object, and every request gets exactly one reply:

    parent  {"do": "hello", "libraries": [name], ...}     -> {"ready": ..., "malloc": path, "settings": {...}}
            {"do": "weights", net, side, seed, path}       -> {"saved": bytes}
            {"do": "verify", <cell>, weights}              -> {"calls": n, "different": [...]}
            {"do": "record", <cell>, weights, path}        -> {"recorded": bytes}
            {"do": "open", <cell>, weights, remember}      -> {"opened": ...}     now the child answers
    child   {"do": "run", "passes": n, "settle": n}        -> {"ns": [...], "minor": ..., ...}
            {"do": "mark"}                                 -> memory so far, peak forgotten
            {"do": "close"}                                -> memory, statistics  now the parent again

An exception in a child is a reply {"error": ...}; a child killed by a signal is reported by its parent.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latency import process


class Channel:
    """Lines of JSON over the original stdin and stdout; what the libraries print goes to stderr."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)

    def send(self, reply: dict[str, Any]) -> None:
        os.write(self._out, json.dumps(reply).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next request, or None at the end; unbuffered, so that parent and child can take turns."""
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(0, 1 << 16)
            if not piece:
                return None
            line += piece
        return json.loads(line)


class Callers:
    """n threads that call one function side by side; with n = 1 the calling thread does it."""

    def __init__(self, functions: list[Callable[[], Any]]) -> None:
        self._functions = functions
        self._barrier = threading.Barrier(len(functions) + 1)
        self._finished = 0
        self._lock = threading.Lock()
        self._asked = 0
        self._times: list[list[int]] = [[] for _ in functions]
        self._passes = [0] * len(functions)
        self._error: BaseException | None = None
        if len(functions) > 1:
            for index in range(len(functions)):
                threading.Thread(target=self._serve, args=(index,), daemon=True).start()

    def run(self, passes: int) -> tuple[list[int], int]:
        """Times of `passes` passes per caller in ns, and how many passes were made in all.

        Callers that are done keep calling, untimed, until the slowest is done too, so that every timed pass
        had company.
        """
        self._asked, self._finished = passes, 0
        if len(self._functions) == 1:
            self._work(0)
        else:
            try:
                self._barrier.wait()
                self._barrier.wait()
            except threading.BrokenBarrierError:
                raise self._error or RuntimeError("a caller's thread died") from None
        return [time for times in self._times for time in times], sum(self._passes)

    def _serve(self, index: int) -> None:
        import torch

        with torch.inference_mode():
            while True:
                self._barrier.wait()
                try:
                    self._work(index)
                except BaseException as error:
                    self._error = error
                    self._barrier.abort()
                    raise
                self._barrier.wait()

    def _work(self, index: int) -> None:
        function, clock, times = self._functions[index], time.perf_counter_ns, []
        for _ in range(self._asked):
            before = clock()
            function()  # its result dies here: frees are part of the pass
            times.append(clock() - before)
        with self._lock:
            self._finished += 1
        extra = 0
        while self._finished < len(self._functions):
            function()
            extra += 1
        self._times[index], self._passes[index] = times, len(times) + extra


class Cell:
    """One network at one batch, side and number of threads, ready to be called in this process."""

    def __init__(self, request: dict[str, Any]) -> None:
        import nets
        import torch

        self._cycles = process.Cycles()
        torch.set_num_threads(request["threads"])
        self.workload = nets.build(
            request["net"],
            batch=request["batch"],
            side=request["side"],
            seed=request["seed"],
            weights=Path(request["weights"]),
        )
        for tensor in (*self.workload.module.parameters(), *self.workload.module.buffers()):
            tensor.detach().view(-1)[:: 512 if tensor.numel() > 512 else 1].sum()  # map every page of it
        self._callable: Any = self.workload.module
        self._remembered = request["remember"]
        if self._remembered:
            import memoir.torch

            self._callable = memoir.torch.remember(self.workload.module)
        self._arguments = [self.workload.arguments() for _ in range(request["callers"])]
        call = self._callable
        self._callers = Callers(
            [lambda arguments=arguments: call(*arguments) for arguments in self._arguments]
        )
        gc.collect()
        gc.disable()  # a collection inside a pass would be Python's tail, not the allocator's
        process.give_back_free_memory()
        self.memory_before = process.memory()
        self._can_reset = process.reset_peak()

    def run(self, passes: int, settle: int) -> dict[str, Any]:
        """One turn: `settle` passes that nothing is counted of, then `passes` timed ones."""
        if settle:
            self._callers.run(settle)
        before, cycles, start = process.usage(), self._cycles.read(), time.perf_counter_ns()
        times, made = self._callers.run(passes)
        wall = time.perf_counter_ns() - start
        used = process.difference(before, process.usage())
        if cycles is not None:
            used["cycles"] = self._cycles.read() - cycles
        return {
            "ns": times,
            "made": made,
            "wall_ns": wall,
            "anonymous": process.memory()["anonymous"],
            **used,
        }

    def mark(self) -> dict[str, Any]:
        """Memory up to now; peaks are counted from here on."""
        now = process.memory() | {
            "peak_anonymous": process.peak_anonymous(),
            "peak_was_reset": self._can_reset,
        }
        process.reset_peak()
        return now

    def close(self) -> dict[str, Any]:
        reply = self.mark()
        if self._remembered:
            import memoir.torch

            reply["memoir"] = plain(memoir.torch.stats(self._callable))
        return reply | {"output": self._digest()}

    def _digest(self) -> str:
        return digest(self._callable(*self._arguments[0]))


def digest(output: Any) -> str:
    """A hash of every tensor of an output: shape, type and bits."""
    import torch
    from torch.utils._pytree import tree_leaves

    state = hashlib.sha256()
    for tensor in tree_leaves(output):
        state.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
        state.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def plain(stats: Any) -> dict[str, Any]:
    """memoir.torch's Stats as a dictionary of numbers."""
    return {name: value for name, value in vars(stats).items() if isinstance(value, (int, float))}


def _serve_cell(channel: Channel, request: dict[str, Any]) -> None:
    import torch

    with torch.inference_mode():
        cell = Cell(request)
        channel.send({"opened": cell.memory_before})
        while (request := channel.receive()) is not None:
            if request["do"] == "run":
                channel.send(cell.run(request["passes"], request["settle"]))
            elif request["do"] == "mark":
                channel.send(cell.mark())
            else:
                channel.send(cell.close())
                return


def _save_weights(channel: Channel, request: dict[str, Any]) -> None:
    import nets

    path = Path(request["path"])
    nets.save_weights(nets.build(request["net"], batch=1, side=request["side"], seed=request["seed"]), path)
    channel.send({"saved": path.stat().st_size})


def _verify(channel: Channel, request: dict[str, Any]) -> None:
    """Plain PyTorch's outputs on two inputs, then memoir's on the same ones in turn, bit by bit."""
    import memoir.torch
    import torch

    with torch.inference_mode():
        cell = Cell(request)
        workload = cell.workload
        inputs = [workload.arguments(), workload.arguments(seed=request["seed"] + 1)]
        expected = [digest(workload.module(*arguments)) for arguments in inputs]
        steady = [digest(workload.module(*arguments)) for arguments in inputs] == expected
        remembered = memoir.torch.remember(workload.module)
        turns = [0, 0, 1, 1, 0, 1]
        different = [
            call for call, turn in enumerate(turns) if digest(remembered(*inputs[turn])) != expected[turn]
        ]
        stats = plain(memoir.torch.stats(remembered))
    channel.send(
        {"calls": len(turns), "different": different, "plain_repeats_itself": steady, "memoir": stats}
    )


def _record(channel: Channel, request: dict[str, Any]) -> None:
    """Writes the trace of one steady pass."""
    import memoir.torch
    import torch

    with torch.inference_mode():
        workload = Cell(request).workload
        memoir.torch.record(
            workload.module, *workload.arguments(), path=request["path"], warm_up=2, force=True
        )
    channel.send({"recorded": Path(request["path"]).stat().st_size})


_SERVES = {"weights": _save_weights, "verify": _verify, "record": _record, "open": _serve_cell}


def _in_child(
    channel: Channel, serve: Callable[[Channel, dict[str, Any]], None], request: dict[str, Any]
) -> None:
    child = os.fork()
    if child == 0:
        try:
            serve(channel, request)
        except BaseException as error:
            traceback.print_exc()
            channel.send({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        finally:
            os._exit(0)  # no interpreter teardown: other threads may still be in a pass
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        channel.send({"error": f"killed by {signal.Signals(number).name}"})


def _hello(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    versions = {"torch": torch.__version__}
    for name in request["libraries"]:
        versions[name] = importlib.import_module(name).__version__
    if "transformers" in versions:
        importlib.import_module("transformers.models.qwen2.modeling_qwen2")  # else every child would load it
    gc.collect()
    gc.freeze()
    settings = process.jemalloc_settings(tuple(request["settings"])) if request["settings"] else {}
    if request["tuned_glibc"]:
        settings["maps_200_MiB"] = process.glibc_maps(200 << 20)
    return {
        "ready": os.getpid(),
        "malloc": process.malloc_library(),
        "settings": settings,
        "versions": versions,
    }


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which then closes its workers
    channel = Channel()
    while (request := channel.receive()) is not None:
        if request["do"] == "hello":
            channel.send(_hello(request))
        else:
            _in_child(channel, _SERVES[request["do"]], request)


if __name__ == "__main__":
    main()
