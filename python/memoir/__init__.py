# SPDX-License-Identifier: Apache-2.0
"""memoir: allocators that remember.

Importing this package is cheap: torch, matplotlib, highspy and ortools are imported by what needs them, on first use.
"""

import os
from typing import Any

from memoir._core import Error, Trace, TraceWriter, __version__, child_site

# memoir.executorch, memoir.tinygrad, memoir.inductor and memoir.onnxruntime are API; their modules lie in frameworks/.
__path__.append(os.path.join(os.path.dirname(__file__), "frameworks"))

__all__ = [
    "Arena",
    "Error",
    "Lifetimes",
    "PlanResult",
    "Problem",
    "Skeleton",
    "Trace",
    "TraceWriter",
    "__version__",
    "child_site",
    "explain",
    "fit_budget",
    "plan",
    "simulate",
]


def __getattr__(name: str) -> Any:  # on first use: numpy and the planners
    if name == "Arena":
        from memoir.planning import constraints

        return constraints.Arena
    if name in ("PlanResult", "Problem", "Skeleton", "explain", "fit_budget", "plan"):
        from memoir import planning

        return getattr(planning, name)
    if name == "Lifetimes":
        from memoir import lifetimes

        return lifetimes.Lifetimes
    if name == "simulate":
        from memoir import simulation

        return simulation.simulate
    raise AttributeError(f"module 'memoir' has no attribute '{name}'")
