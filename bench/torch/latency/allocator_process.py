# SPDX-License-Identifier: Apache-2.0
"""The process of one allocator: latency/worker.py with that allocator preloaded, and the proof that it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memoir.bench.process import proof
from memoir.bench.process.workers import Worker

from latency.variants import JEMALLOC_SETTINGS, Variant, environment

BENCH = Path(__file__).resolve().parent.parent


class AllocatorProcess(Worker):
    """A worker that lives through many cells. Not thread-safe."""

    def __init__(self, variant: Variant, timeout: float) -> None:
        self.variant = variant
        command = [sys.executable, "-m", "latency.worker"]
        super().__init__(command, environment(variant) | {"PYTHONPATH": str(BENCH)}, timeout)

    def greet(self, libraries: Sequence[str]) -> None:
        """Tells the worker to import its libraries; several can be told before the first is waited for."""
        settings = JEMALLOC_SETTINGS if self.variant.allocator == "jemalloc" else ()
        tuned_glibc = "GLIBC_TUNABLES" in self.variant.environment
        self.send(do="hello", libraries=list(libraries), settings=settings, tuned_glibc=tuned_glibc)

    def prove(self) -> dict[str, Any]:
        """Waits for the imports; raises Failure unless the variant's allocator and settings are in force."""
        reply = self.receive()
        allocator = self.variant.competitor
        if not proof.serves(reply["malloc"], allocator):
            wanted = proof.expected_library(allocator)
            raise self.failure(f"malloc is served by {reply['malloc']}, not by {wanted}")
        if reply["settings"].get("maps_200_MiB"):
            raise self.failure("GLIBC_TUNABLES had no effect: this glibc still maps large blocks")
        for setting in filter(None, self.variant.environment.get("MALLOC_CONF", "").split(",")):
            name, _, value = setting.partition(":")
            if reply["settings"].get(name) != int(value):
                raise self.failure(f"jemalloc took {name} as {reply['settings'].get(name)}, not {value}")
        return reply
