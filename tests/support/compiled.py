# SPDX-License-Identifier: Apache-2.0
"""Small C and C++ programs of tests, each compiled once."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path


def compiler_into(folder: Path, sources: Path) -> Callable[..., Path]:
    """compiled("family.c"), compiled("library.c", "-shared", name="a.so"): files of `sources` as programs in `folder`.
    A name stands for the flags that it was first compiled with."""
    done: set[Path] = set()

    def compiled(source: str, *flags: str, name: str | None = None) -> Path:
        target = folder / (name or Path(source).stem)
        if target not in done:
            compiler = os.environ.get("CXX", "c++") if source.endswith(".cpp") else os.environ.get("CC", "cc")
            command = [compiler, "-O1", "-w", "-fno-builtin", "-pthread"]
            subprocess.run([*command, sources / source, "-o", target, *flags, "-ldl"], check=True)
            done.add(target)
        return target

    return compiled
