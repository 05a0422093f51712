# SPDX-License-Identifier: Apache-2.0
"""Compiles the part of memoir that is bound to PyTorch for the torch that is here, where memoir was built without one.

Such a build leaves a kit (cmake/torch_kit.cmake): the few sources that include PyTorch's headers, and the rest compiled. The
first `import memoir.torch` makes of it what a build with torch would have made, and keeps it for the next ones:

    ~/.cache/memoir/torch/2.13.0-1f2e3d4c/_torch.cpython-312-x86_64-linux-gnu.so      (or in $XDG_CACHE_HOME)
                                          libmemoir_cuda.so
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memoir import _core
from memoir.base.files import make_folder, open_beside

KIT = Path(_core.__file__).parent / "torch" / "_kit"
LEAST = (2, 11)  # the oldest torch that memoir.torch compiles for
MODULE = ("_torch.cpp", "torch_calls.cpp", "torch_call_shape.cpp", "allocator.cc")  # the sources of each part
CUDA = ("pluggable.cc", "sites.cc", "throw_c10.cc")
FLAGS = ("-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")


class Impossible(Exception):
    """It cannot be compiled here; the text says why, and follows "cannot be compiled here: "."""


def has_kit() -> bool:
    return KIT.is_dir()


def module(version: str, torch: Path) -> Path:
    """The module for a torch of this version in this folder, compiled unless it was before. Raises Impossible."""
    target = _cache() / f"{version}-{_stamp():08x}"
    found = target / f"_torch{sysconfig.get_config_var('EXT_SUFFIX')}"
    if found.exists():
        return found
    if tuple(int(number) for number in version.split(".")[:2]) < LEAST:
        raise Impossible(f"it needs torch {LEAST[0]}.{LEAST[1]} or a newer one")
    compiler = _compiler()
    try:
        make_folder(target.parent)
        with _one_at_a_time(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as folder:
            if not found.exists():
                print(
                    f"memoir: compiling memoir.torch for torch {version}, once (half a minute)",
                    file=sys.stderr,
                )
                made = Path(folder, "made")
                make_folder(made)
                _compile(compiler, torch, Path(folder), made / found.name)
                made.rename(target)
    except OSError as error:
        raise Impossible(f"{error} (XDG_CACHE_HOME may name another place for what is compiled)") from error
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memoir" / "torch"


def _stamp() -> int:
    """Another one for another memoir, Python or compiler of the kit."""
    files = sorted((KIT / "lib").iterdir())
    known = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return zlib.crc32(repr((sys.version_info[:2], known)).encode())


def _compiler() -> list[str]:
    if "CXX" in os.environ:
        return shlex.split(os.environ["CXX"])
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        raise Impossible("there is no C++ compiler (g++ or clang++)")
    return [found]


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Of processes that start together, as torchrun has them, one compiles and the others wait."""
    lock = open_beside(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: each compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _compile(compiler: Sequence[str], torch: Path, folder: Path, module: Path) -> None:
    """The module and, next to it, the library for CUDA; objects go to `folder`."""
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").exists():
        raise Impossible(f"Python's headers are not in {python} (on Debian: apt install python3-dev)")
    if not (torch / "include").is_dir():
        raise Impossible(f"PyTorch's headers are not in {torch / 'include'}")
    include = [f"-I{KIT / 'include'}", "-isystem", str(torch / "include"), f"-I{python}"]

    def compile_one(name: str) -> str:
        made = folder / f"{name}.o"
        _run(name, [*compiler, *FLAGS, *include, "-c", str(KIT / "sources" / name), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), len(MODULE + CUDA))) as pool:
        objects = dict(zip(MODULE + CUDA, pool.map(compile_one, MODULE + CUDA), strict=True))
    archives = [str(archive) for archive in sorted((KIT / "lib").glob("*.a"))]
    for output, sources in ((module, MODULE), (module.with_name("libmemoir_cuda.so"), CUDA)):
        link = [*compiler, "-shared", "-s", "-Wl,--gc-sections", "-Wl,--no-as-needed", "-o", str(output)]
        link += [objects[name] for name in sources]
        link += [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]  # loaded by then: import torch comes first
        _run(output.name, [*link, "-Wl,--start-group", *archives, "-Wl,--end-group", "-pthread", "-ldl"])


def _run(what: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        said = errors[0] if errors else f"it ended with {done.returncode}"
        raise Impossible(f"{command[0]} says of {what}: {said}")
