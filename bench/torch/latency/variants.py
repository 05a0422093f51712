# SPDX-License-Identifier: Apache-2.0
"""The allocators under which a network is timed: which library is preloaded, with which settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from memoir.bench.process import allocators
from memoir.bench.process.allocators import Allocator

_GIB = 1 << 30


@dataclass(frozen=True)
class Variant:
    """One allocator with its settings; `allocator` is a name that memoir bench knows, "system" for none."""

    name: str
    says: str  # one line for the report
    allocator: str = allocators.SYSTEM
    environment: dict[str, str] = field(default_factory=dict)
    remember: bool = False  # wrap the module in memoir.torch.remember

    @property
    def library(self) -> Path | None:
        """What is preloaded; None for the C library's own malloc, or when it is not installed."""
        return None if self.allocator == allocators.SYSTEM else allocators.find(self.allocator)

    @property
    def competitor(self) -> Allocator:
        """The same as the bench knows it."""
        return Allocator(self.name, self.library, tuple(self.environment.items()))


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
    Variant("jemalloc", "jemalloc with its defaults", allocator="jemalloc"),
    Variant(
        "jemalloc_1mb",
        "jemalloc as the thesis runs it: allocations of 1 MiB and more in the oversize arena, purged at once",
        environment={"MALLOC_CONF": "oversize_threshold:1048576"},
        allocator="jemalloc",
    ),
    Variant(
        "jemalloc_tuned",
        "jemalloc that never purges: dirty_decay_ms:-1,muzzy_decay_ms:-1",
        environment={"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"},
        allocator="jemalloc",
    ),
    Variant("tcmalloc", "gperftools' tcmalloc with its defaults", allocator="tcmalloc"),
    Variant("mimalloc", "mimalloc with its defaults", allocator="mimalloc"),
    Variant("memoir", "glibc's malloc and memoir.torch.remember(model)", remember=True),
    # Measured only when named.
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
        allocator="mimalloc",
    ),
    Variant(
        "memoir_malloc",
        "memoir's malloc and memoir.torch.remember(model), as memoir run --remember has them",
        remember=True,
        allocator="memoir",
    ),
    Variant(
        "memoir_tcmalloc", "tcmalloc and memoir.torch.remember(model)", remember=True, allocator="tcmalloc"
    ),
)
VARIANTS = {variant.name: variant for variant in _ALL}
JEMALLOC_SETTINGS = ("dirty_decay_ms", "muzzy_decay_ms", "oversize_threshold")  # read back from the process
DEFAULT = tuple(list(VARIANTS)[:8])
CANDIDATE = "memoir"
REFERENCE = "jemalloc_1mb"  # the thesis's baseline


def anchor(variants: Sequence[str]) -> str:
    """The variant that all are compared with: memoir, or else the thesis's baseline, or else the first."""
    return next((name for name in (CANDIDATE, REFERENCE) if name in variants), variants[0])


def why_unavailable(variant: Variant) -> str | None:
    """None when the variant can run here, else what is missing and which package brings it."""
    if variant.allocator != allocators.SYSTEM and variant.library is None:
        return f"{variant.allocator} was not found here: {allocators.KNOWN[variant.allocator].package}"
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
    preload = {"LD_PRELOAD": str(variant.library)} if variant.library else {}
    # One thread until a cell says otherwise: the parent of the workers must not own threads when it forks.
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return inherited | quiet | {"PYTHONHASHSEED": "0"} | variant.environment | preload


def describe(variant: Variant) -> dict:
    """What the results file keeps about a variant."""
    library = str(variant.library.resolve()) if variant.library else None
    return asdict(variant) | {
        "library": library,
        "version": allocators.version(variant.name, variant.library),
    }
