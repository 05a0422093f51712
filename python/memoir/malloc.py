# SPDX-License-Identifier: Apache-2.0
"""memoir's malloc, for any program: where its library is, what it can be told, and a program's environment with it.

import subprocess, memoir.malloc
subprocess.run(["./server"], env=memoir.malloc.environment({"tau": "2"}))
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memoir import _core
from memoir._core import Error

VARIABLE = "MEMOIR_MALLOC"


@dataclass(frozen=True)
class Setting:
    """One setting of the malloc: its unit is "flag", "share" or "bytes"."""

    name: str
    unit: str
    initial: str
    help: str


def library() -> Path:
    """libmemoir_malloc.so, to be preloaded or linked. Raises memoir.Error when it was not built."""
    path = Path(_core.__file__).parent / "bin" / "libmemoir_malloc.so"
    if not path.exists():
        raise Error(f"{path.name} is missing beside the package's compiled core: build it again (make dev)")
    return path


@functools.cache
def settings() -> dict[str, Setting]:
    """What MEMOIR_MALLOC takes, asked of the library itself: it has the one list."""
    describe = ctypes.CDLL(str(library()), mode=os.RTLD_LOCAL).memoir_malloc_settings
    describe.restype = ctypes.c_char_p
    rows = (line.split("\t") for line in describe().decode().splitlines())
    return {row[0]: Setting(*row) for row in rows}


def environment(
    chosen: Mapping[str, str] | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of `base` (this process's own) with the malloc in front of whatever is preloaded.

    chosen: settings by name; they follow those that `base` has, and the last one counts.
    Raises memoir.Error for a setting that does not exist.
    """
    for name in chosen or {}:
        if name not in settings():
            raise Error(f"no setting {name!r} of the malloc: use {', '.join(settings())}")
    path = library()
    if any(letter in str(path) for letter in ": "):
        raise Error(f"{path} has a space or a colon in it, which LD_PRELOAD cannot name")
    result = dict(os.environ if base is None else base)
    result["LD_PRELOAD"] = ":".join(filter(None, [str(path), result.get("LD_PRELOAD")]))
    words = [f"{name}={value}" for name, value in (chosen or {}).items()]
    if words:
        result[VARIABLE] = ",".join(filter(None, [result.get(VARIABLE), *words]))
    return result
