# SPDX-License-Identifier: Apache-2.0
"""Python runs this at start-up when `memoir record` or `memoir run` put this folder on PYTHONPATH: the moment torch has
been imported, the recording begins, or what `memoir run` was asked for. A sitecustomize of the user's own still runs."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False  # as typing has it, which a program that is recorded should not import for our sake
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

TRACE = os.environ.pop("MEMOIR_RECORD", None)  # popped: the program's own children are not recorded
# Tensors are told to the recorder that is preloaded; into children too, which have traces of their own.
TOLD = "MEMOIR_RECORD_TENSORS" in os.environ
# Of `memoir run`. They stay: the processes that the program starts are to do the same.
ASKED = {
    name: os.environ[name]
    for name in ("MEMOIR_REMEMBER", "MEMOIR_PLANS", "MEMOIR_POOL", "MEMOIR_REPORT")
    if os.environ.get(name)
}
HERE = os.path.dirname(os.path.abspath(__file__))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Steps aside at the first `import torch`, and begins when that import is done."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_begin(module: ModuleType) -> None:
                execute(module)
                if TRACE or TOLD:
                    _record(TRACE)
                if ASKED:
                    _begin(ASKED)

            loader.exec_module = execute_and_begin
        return spec


def _record(trace: str | None) -> None:
    try:
        from memoir.torch.recording import record_program
    except ImportError as error:  # memoir has no part for this torch
        if trace is not None:
            sys.exit(f"memoir: {error}")
        print(f"memoir: {error}; tensors are recorded as what malloc serves", file=sys.stderr)
        return
    record_program(trace)


def _begin(asked: dict[str, str]) -> None:
    try:
        from memoir.torch.program import begin
    except ImportError as error:
        print(f"memoir: {error}; the program runs without it", file=sys.stderr)
        return
    begin(asked)


def _run_the_users_own() -> None:
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if TRACE or TOLD or ASKED:
    sys.meta_path.insert(0, _AfterTorch())
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
_run_the_users_own()
