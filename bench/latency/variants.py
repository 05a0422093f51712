# SPDX-License-Identifier: Apache-2.0
"""The allocators under which a network is timed: which library is preloaded, with which settings."""

from __future__ import annotations

import glob
import os
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

_FOLDERS = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/homebrew/lib",
)
_GIB = 1 << 30


@dataclass(frozen=True)
class Variant:
    """One allocator with its settings; `sonames` empty means the C library's own malloc."""

    name: str
    says: str  # one line for the report
    sonames: tuple[str, ...] = ()
    package: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    remember: bool = False  # wrap the module in memoir.torch.remember
    settings: tuple[str, ...] = ()  # jemalloc options to read back from the running process


_JEMALLOC = dict(
    sonames=("libjemalloc.so.2",),
    package="libjemalloc2",
    settings=("dirty_decay_ms", "muzzy_decay_ms", "oversize_threshold"),
)
_TCMALLOC = dict(sonames=("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), package="libtcmalloc-minimal4")
_MIMALLOC = dict(
    sonames=("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0"), package="libmimalloc2.0"
)
_GLIBC_TUNED = (
    f"glibc.malloc.mmap_threshold={_GIB}:glibc.malloc.trim_threshold={16 * _GIB}"
    f":glibc.malloc.top_pad={64 << 20}"
)

_ALL = (
    Variant("glibc", "glibc's malloc, as PyTorch runs when nothing is done"),
    Variant(
        "glibc_tuned",
        "M_MMAP_THRESHOLD 1 GiB, M_TRIM_THRESHOLD 16 GiB, M_TOP_PAD 64 MiB: never gives back",
        environment={"GLIBC_TUNABLES": _GLIBC_TUNED},
    ),
    Variant("jemalloc", "jemalloc with its defaults", **_JEMALLOC),
    Variant(
        "jemalloc_1mb",
        "jemalloc as the thesis runs it: allocations of 1 MiB and more in the oversize arena, purged at once",
        environment={"MALLOC_CONF": "oversize_threshold:1048576"},
        **_JEMALLOC,
    ),
    Variant(
        "jemalloc_tuned",
        "jemalloc that never purges: dirty_decay_ms:-1,muzzy_decay_ms:-1",
        environment={"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"},
        **_JEMALLOC,
    ),
    Variant("tcmalloc", "gperftools' tcmalloc with its defaults", **_TCMALLOC),
    Variant("mimalloc", "mimalloc with its defaults", **_MIMALLOC),
    Variant("memoir", "glibc's malloc and memoir.torch.remember(model)", remember=True),
    # Not in the list; for whoever wants to look further.
    Variant(
        "glibc_huge",
        "glibc_tuned with transparent huge pages (glibc.malloc.hugetlb=1)",
        environment={"GLIBC_TUNABLES": _GLIBC_TUNED + ":glibc.malloc.hugetlb=1"},
    ),
    Variant(
        "mimalloc_tuned",
        "mimalloc that never decommits or purges",
        environment={
            "MIMALLOC_PURGE_DELAY": "-1",
            "MIMALLOC_ALLOW_DECOMMIT": "0",
            "MIMALLOC_PAGE_RESET": "0",
        },
        **_MIMALLOC,
    ),
    Variant("memoir_tcmalloc", "tcmalloc and memoir.torch.remember(model)", remember=True, **_TCMALLOC),
)
VARIANTS = {variant.name: variant for variant in _ALL}
DEFAULT = tuple(list(VARIANTS)[:8])
CANDIDATE = "memoir"
REFERENCE = "jemalloc_1mb"  # the thesis's baseline


def find_library(variant: Variant) -> Path | None:
    """The library to preload, where distributions put it; None when it is missing, or none is needed."""
    for soname in variant.sonames:
        for folder in _FOLDERS:
            for path in sorted(glob.glob(f"{folder}/{soname}")):
                return Path(path)
        found = _loader_cache().get(soname)
        if found:
            return found
    return None


def why_unavailable(variant: Variant) -> str | None:
    """None when the variant can run here, else what is missing and which package brings it."""
    if variant.sonames and find_library(variant) is None:
        return f"{variant.sonames[0]} was not found (Debian, Ubuntu: apt-get install {variant.package})"
    if variant.remember:
        try:
            import memoir.torch  # noqa: F401
        except ImportError as error:
            return f"memoir.torch cannot be imported: {error}"
    return None


def environment(variant: Variant) -> dict[str, str]:
    """The whole environment of a worker: this process's, less any allocator settings, plus the variant's."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_CONF")
        and not key.startswith(("MALLOC_", "MIMALLOC_", "TCMALLOC_"))
    }
    library = find_library(variant)
    preload = {"LD_PRELOAD": str(library)} if library else {}
    # One thread until a cell says otherwise: the parent of the workers must not own threads when it forks.
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return inherited | quiet | {"PYTHONHASHSEED": "0"} | variant.environment | preload


def describe(variant: Variant) -> dict:
    """What the results file keeps about a variant."""
    library = find_library(variant)
    return asdict(variant) | {"library": str(library.resolve()) if library else None}


def _loader_cache() -> dict[str, Path]:
    command = ["/sbin/ldconfig", "-p"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    entries = (line.split(" => ") for line in listing.splitlines() if " => " in line)
    return {name.split()[0]: Path(path.strip()) for name, path in entries}
