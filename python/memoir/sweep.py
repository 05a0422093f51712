# SPDX-License-Identifier: Apache-2.0
"""The one engine of every sweep: a plain function over many tuples of plain arguments.

    swept = sweep(measure, [("a.trace", "split"), ("b.trace", "split")])
    [outcome.value for outcome in swept.outcomes if outcome.error is None]

Outcomes come in the order of the tasks. A task that fails is reported with its arguments and does not end the sweep,
even when its process dies; Ctrl-C keeps what is done. Give paths, not the objects that are read from them: functions
are found by their names and arguments are pickled, in fresh processes (spawn) or on another machine.

Engines: `local`, all cores of this machine; `ray`, the same tasks on a Ray cluster, whose machines must have memoir
and see the files under the same paths.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from memoir._core import Error
from memoir.base import work_budget

ENGINES = ("local", "ray")
_START = (  # what `-c` looks for comes from the current folder, which may be a stranger's, until the path is ours
    "import sys; sys.path[:] = sys.argv[2:]; from memoir.sweep import _work; _work(int(sys.argv[1]))"
)
_NOT_RUN = "not run: the sweep was interrupted"


@dataclass(frozen=True)
class Outcome:
    """What came of one task: a value, or `error`, which says why there is none."""

    arguments: tuple[Any, ...]
    value: Any = None
    error: str | None = None  # why there is no value


@dataclass(frozen=True)
class Sweep:
    """The outcomes of all tasks, in their order. `interrupted`: Ctrl-C ended the sweep; tasks that were not done say so."""

    outcomes: list[Outcome]  # one per task, in order
    interrupted: bool  # by Ctrl-C: tasks that were not done say so

    @property
    def values(self) -> list[Any]:
        """Of the tasks that did not fail."""
        return [outcome.value for outcome in self.outcomes if outcome.error is None]

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error is not None]


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sweep(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    title: str | None = None,
    tell: Callable[[Outcome], None] | None = None,
) -> Sweep:
    """Calls function(*task) for every task. Outcomes are in the order of the tasks.

    `workers`: processes (None: one per core; 1: this process). `address`: of a running Ray cluster (None: RAY_ADDRESS,
    or a Ray of our own on this machine for the time of the sweep). `title`: of the progress bar, shown on a terminal.
    `tell`: called with each outcome as it comes.
    """
    tasks = [tuple(task) for task in tasks]
    if workers is not None and workers < 1:
        raise Error(f"{workers} workers: give at least 1")
    workers = min(workers or cores(), max(len(tasks), 1))
    if engine == "ray":
        results = _on_ray(function, tasks, workers, address)
    elif engine != "local":
        raise Error(f"there is no engine '{engine}' (engines: {', '.join(ENGINES)})")
    elif address is not None:
        raise Error('an address is one of Ray: engine="ray"')
    else:
        results = _here(function, tasks) if workers == 1 else _local(function, tasks, workers)
    outcomes: list[Outcome | None] = [None] * len(tasks)
    interrupted = False
    try:
        for index, (value, error) in _with_bar(results, len(tasks), title):
            outcomes[index] = outcome = Outcome(tasks[index], value, error)
            if tell is not None:
                tell(outcome)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        results.close()  # ends what still runs
    done = [outcome or Outcome(task, None, _NOT_RUN) for task, outcome in zip(tasks, outcomes, strict=True)]
    return Sweep(done, interrupted)


_Result = tuple[Any, "str | None"]  # (value, error)
_Results = Generator[tuple[int, _Result], None, None]  # (index of the task, (value, error)), as they come


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Result:
    try:
        return function(*arguments), None
    except Error as error:
        return None, str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def _here(function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> _Results:
    for index, task in enumerate(tasks):
        yield index, _call(function, task)


# --- processes of this machine ---


class _Worker:
    """A process that runs one task after another. Tells a task that fails from one that kills its process."""

    def __init__(self, function: Callable[..., Any]):
        from multiprocessing import connection, spawn

        work_budget.allow(1.0, 64 << 20)  # to begin
        self.index: int | None = None
        self.connection, theirs = connection.Pipe()
        # Ctrl-C is the parent's to answer, from the child's first step on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), *(place for place in sys.path if place)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # so that the end of the process is the end of the pipe
        prepared = spawn.get_preparation_data("memoir-sweep")
        with suppress(BrokenPipeError):
            self.connection.send({**prepared, "authkey": bytes(prepared["authkey"])})
            self.connection.send(function)

    def give(self, index: int, task: tuple[Any, ...]) -> None:
        self.index = index
        with suppress(BrokenPipeError):  # it died idle: result() will say so
            self.connection.send(task)

    def result(self) -> tuple[int, _Result]:
        """The index of the task that it was given, and what came of it."""
        index, self.index = self.index, None
        assert index is not None
        return index, self._received()

    def _received(self) -> _Result:
        try:
            result: _Result = self.connection.recv()
            return result
        except (EOFError, OSError):
            code = self.process.wait()
            why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return None, f"its process died ({why})"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def _work(file: int) -> None:
    """What a worker does: with what the parent's main module defines, it calls a function with one task after another."""
    from multiprocessing import connection, spawn

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    tasks = connection.Connection(file)
    try:
        spawn.prepare(tasks.recv())
        function = tasks.recv()
        while True:
            result = _call(function, tasks.recv())
            try:
                tasks.send(result)
            except (TypeError, AttributeError, ValueError) as error:  # what cannot be pickled
                tasks.send((None, f"{type(error).__name__}: {error}"))
    except (EOFError, BrokenPipeError):
        pass


def _local(function: Callable[..., Any], tasks: list[tuple[Any, ...]], count: int) -> _Results:
    from multiprocessing import (
        connection,  # on first use: the command line imports this module for its options
    )

    waiting = deque(enumerate(tasks))
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            workers.append(_Worker(function))
            workers[-1].give(*waiting.popleft())
        while busy := {w.connection: w for w in workers if w.index is not None}:
            # Not for ever: a Ctrl-C that another thread catches does not end the wait, but is seen after it.
            for ready in connection.wait(list(busy), timeout=0.5):
                worker = busy[cast(Any, ready)]
                index, result = worker.result()
                if waiting:
                    if not worker.alive:
                        worker.end()
                        workers[workers.index(worker)] = worker = _Worker(function)
                    worker.give(*waiting.popleft())
                yield index, result
    finally:
        for worker in workers:
            worker.end()


# --- a Ray cluster ---


def _on_ray(
    function: Callable[..., Any], tasks: list[tuple[Any, ...]], workers: int, address: str | None
) -> _Results:
    work_budget.lift()  # what Ray takes is its own
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise Error("--workers ray needs Ray: pip install 'memoir-alloc[ray]'") from None
    return _ray_results(ray, function, tasks, workers, address or os.environ.get("RAY_ADDRESS"))


def _ray_results(
    ray: Any, function: Callable[..., Any], tasks: list[tuple[Any, ...]], workers: int, address: str | None
) -> _Results:
    ours = not ray.is_initialized()
    if ours:
        where = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(**where, job_config=_job(ray), log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise Error(f"no Ray at {address or 'this machine'}: {error}") from None
    try:
        call = ray.remote(max_retries=0)(_call)
        running = {call.remote(function, task): index for index, task in enumerate(tasks)}
        try:
            while running:
                done, _ = ray.wait(list(running), num_returns=1, timeout=0.5)
                for reference in done:
                    index = running.pop(reference)
                    try:
                        yield index, ray.get(reference)
                    except ray.exceptions.RayError as error:
                        yield index, (None, f"its process died ({str(error).strip().splitlines()[0]})")
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
    finally:
        if ours:
            ray.shutdown()


def _job(ray: Any) -> Any:
    """Of Ray's, whose workers would look for modules in the current folder, which may be a stranger's."""

    class Places(list[str]):
        def extend(self, places: Any) -> None:
            super().extend(place for place in places if place in sys.path)

    job = ray.job_config.JobConfig()
    job._py_driver_sys_path = Places(job._py_driver_sys_path)
    return job


def _with_bar(results: _Results, total: int, title: str | None) -> _Results:
    if title is None or not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=total)
        for result in results:
            progress.advance(bar)
            yield result
