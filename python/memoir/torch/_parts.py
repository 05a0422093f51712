# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled part that was built for the torch that is here.

PyTorch promises no ABI from one minor version to the next. So the package holds a part for each of them that it
supports, and a build from sources one for the torch that it found:

    memoir/torch/_built/2.12/_torch.cpython-312-x86_64-linux-gnu.so    becomes the module memoir._torch
                             libmemoir_cuda.so                         _library.py loads it
                        2.13/...

A build that found no torch has none, but what it takes to compile one (_compile.py).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

from memoir import _core
from memoir.torch import _compile

NAME = "memoir._torch"
BUILD = "in a checkout of memoir, pip install --no-deps ."
REST = "The rest of memoir works without it."
FOLDER = Path(_core.__file__).parent / "torch" / "_built"


def built() -> list[str]:
    """The minor versions that there is a part for, the oldest first."""
    found = [path.name for path in FOLDER.iterdir()] if FOLDER.is_dir() else []
    return sorted(found, key=lambda version: [int(number) for number in version.split(".")])


def find(version: str, torch: Path) -> Path:
    """The module for a torch of this version in this folder; ImportError says what to do when there is none."""
    minor = ".".join(version.split(".")[:2])
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        module = FOLDER / minor / f"_torch{suffix}"
        if module.exists():
            return module
    supported = built()
    if not supported:
        why = ""
        if _compile.has_kit():
            try:
                return _compile.module(version, torch)
            except _compile.Impossible as reason:
                why = f", and memoir.torch cannot be compiled here: {reason}"
        raise ImportError(
            f"memoir was built where no PyTorch was{why}. Build it again now that torch {version} is here ({BUILD}), or "
            f"install the wheel that make wheel builds. {REST}"
        )
    raise ImportError(
        f"this memoir.torch is for torch {', '.join(supported)}, and this is torch {version}: install one of those, or "
        f"build memoir for this one ({BUILD}). {REST}"
    )


def load(version: str, torch: Path) -> None:
    """Imports the part for a torch of this version, which was imported from this folder, as memoir._torch."""
    if NAME in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(NAME, find(version, torch))
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(does_not_load(version, error)) from error
    sys.modules[NAME] = module  # from here on `from memoir import _torch` finds it


def does_not_load(version: str, error: Exception) -> str:
    return (
        f"memoir.torch does not load with this torch {version}, which is not built as the releases of that version are: "
        f"install one of those, or build memoir for this one ({BUILD}). {REST} The loader says: {error}"
    )
