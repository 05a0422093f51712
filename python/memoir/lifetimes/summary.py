# SPDX-License-Identifier: Apache-2.0
"""A lifetime profile in figures, for people and for --json."""

from __future__ import annotations

import math
from typing import Any

import numpy

from memoir.lifetimes import (
    BYTES,
    CENSORED,
    CUT,
    FREED,
    MILLISECONDS,
    Lifetimes,
    bucket_begins,
)

# The paper's classes: objects that live less than so many ms; then longer, and never freed.
CLASSES_MS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


def summarize(lifetimes: Lifetimes, most: int = 20) -> dict[str, Any]:
    """Totals, bytes by lifetime, and the `most` contexts that allocated most. Estimates, but for what says samples."""
    contexts = lifetimes.contexts
    order = numpy.argsort(-lifetimes.bytes(), kind="stable")[:most]
    return {
        **lifetimes.totals,
        "contexts": len(lifetimes),
        "estimated": {
            "objects": round(float(lifetimes.objects().sum())),
            "bytes": round(float(lifetimes.bytes().sum())),
            "censored_objects": round(float(lifetimes.objects(CENSORED).sum())),
            "censored_bytes": round(float(lifetimes.bytes(CENSORED).sum())),
        },
        "freed_on_another_thread": int(contexts["freed_elsewhere"].sum()),
        "cut_stacks": int(((contexts["flags"] & CUT) != 0).sum()),
        "named_frames": int((lifetimes.frames["name"][:, 1] > 0).sum()),
        "frames": len(lifetimes.frames),
        "programs": programs(lifetimes),
        "classes": classes(lifetimes),
        "largest": [describe(lifetimes, int(context)) for context in order],
    }


def programs(lifetimes: Lifetimes) -> list[dict[str, Any]]:
    """Of the runs that are kept in full."""
    rows = []
    for number, (_, points) in enumerate(lifetimes.run_slices()):
        run, curve = lifetimes.runs[number], lifetimes.points[points]
        rows.append(
            {
                "program": lifetimes.program(number),
                "process": int(run["process"]),
                "milliseconds": int(run["milliseconds"]),
                "allocated": int(run["allocated"]),
                "every": int(run["every"]),
                "samples": int(run["samples"]),
                "threads": int(run["threads"]),
                "peak_live": int(curve["live"].max()) if len(curve) else 0,
            }
        )
    return sorted(rows, key=lambda row: -row["samples"])


def classes(lifetimes: Lifetimes) -> list[dict[str, Any]]:
    """Estimated bytes and objects by the paper's classes of lifetime; censored ones are a class of their own."""
    begins = bucket_begins()
    bytes_, objects = (lifetimes.histogram(weight=weight) for weight in ("bytes", "objects"))
    rows = []
    last = 0
    for limit in (*CLASSES_MS, None):
        end = len(begins) if limit is None else int(numpy.searchsorted(begins, limit))
        name = "longer" if limit is None else f"< {limit:,} ms"
        rows.append(
            {
                "class": name,
                "bytes": round(float(bytes_[last:end].sum())),
                "objects": round(float(objects[last:end].sum())),
            }
        )
        last = end
    rows.append(
        {
            "class": "never freed",
            "bytes": round(float(lifetimes.bytes(CENSORED).sum())),
            "objects": round(float(lifetimes.objects(CENSORED).sum())),
        }
    )
    return rows


def describe(lifetimes: Lifetimes, context: int) -> dict[str, Any]:
    """One context. Lifetimes are of freed ones; null where too many were never freed."""
    row = lifetimes.contexts[context]
    estimates = row["estimates"]
    return {
        "context": context,
        "stack": lifetimes.stack(context),
        "cut": bool(row["flags"] & CUT),
        "samples": int(estimates["samples"].sum()),
        "objects": round(float(lifetimes.objects()[context])),
        "bytes": round(float(lifetimes.bytes()[context])),
        "share_freed": lifetimes.share_freed(context),
        "sizes": [int(row["least_size"]), int(row["most_size"])],
        "freed_elsewhere": int(row["freed_elsewhere"]),
        "milliseconds": _lifetime(lifetimes, context, MILLISECONDS),
        "allocated": _lifetime(lifetimes, context, BYTES),
    }


def _lifetime(lifetimes: Lifetimes, context: int, clock: int) -> dict[str, float | None]:
    tally = lifetimes.contexts[context]["tallies"][FREED, clock]
    count = int(tally["count"])
    mean = (int(tally["sum"][0]) + (int(tally["sum"][1]) << 64)) / count if count else None
    middle, most = (lifetimes.quantile(context, share, clock) for share in (0.5, 0.95))
    return {
        "mean": mean,
        "median": None if math.isinf(middle) else middle,
        "p95": None if math.isinf(most) else most,
        "most": int(tally["most"]) if count else None,
    }
