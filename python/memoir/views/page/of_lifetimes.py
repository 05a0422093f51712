# SPDX-License-Identifier: Apache-2.0
"""The page of a lifetime profile: who allocates, and how long what they allocate lives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memoir.base.quantities import bytes_text, duration_text
from memoir.lifetimes import CENSORED, MILLISECONDS, ONE_OBJECT, Lifetimes, bucket_begins
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import Fact, Flame, Table
from memoir.views.page.panels import Lifetimes as LifetimesPanel
from memoir.views.page.sites import SiteTree

_MOST_CONTEXTS = 100
_NS = 1_000_000  # of a millisecond
MEASURES = ("allocated", "count", "never")


def lifetimes_page(name: str, profile: Lifetimes, summary: dict[str, Any]) -> Page:
    """`summary`: of memoir.lifetimes.summary.summarize(profile). Numbers are estimates from samples."""
    estimated, totals = summary["estimated"], profile.totals
    alive = f"{estimated['censored_objects']:,} objects"
    facts = [
        Fact("Allocated", bytes_text(estimated["bytes"]), f"{estimated['objects']:,} objects, estimated"),
        Fact("Alive when their runs ended", bytes_text(estimated["censored_bytes"]), alive),
        Fact("Samples", f"{totals['samples']:,}", f"of {totals['runs']:,} runs, {len(profile):,} contexts"),
    ]
    page = Page(name, subtitle="A lifetime profile: estimates from sampled objects", facts=facts)
    objects = objects_of_profile(profile)
    if not len(objects):
        return page
    page.add(Flame("Who allocates?", objects, measures=MEASURES))
    page.add(
        LifetimesPanel(
            "How long do objects of each size live?", objects, "Sizes are means of a context's objects."
        )
    )
    return page.add(_contexts(profile))


def objects_of_profile(profile: Lifetimes) -> ObjectSet:
    """One element for each context, bucket of lifetimes and fate, with the count and bytes that it stands for. A tick is
    a bucket."""
    cells = profile.cells[profile.cells["clock"] == MILLISECONDS]
    begins = bucket_begins().astype(np.int64)
    buckets = len(begins) + 1
    count = cells["estimate"]["objects"].astype(np.float64) / ONE_OBJECT
    total = cells["estimate"]["bytes"].astype(np.int64)
    tree = SiteTree()
    site_of = {
        context: tree.add_stack(profile.stack(context)[::-1])
        for context in np.unique(cells["context"]).tolist()
    }
    sites = np.array([site_of[context] for context in cells["context"].tolist()], np.int64)
    sites[sites < 0] = tree.add("(unknown)") if (sites < 0).any() else 0
    censored = cells["fate"] == CENSORED
    columns = {"site": sites, "count": cells["estimate"]["objects"].astype(np.int64), "bytes": total}
    return ObjectSet(
        born=np.zeros(len(cells), np.int64),
        died=np.where(censored, buckets, cells["bucket"].astype(np.int64) + 1),
        size=np.maximum(total / np.maximum(count, 1e-9), 1).astype(np.int64),
        ticks=buckets,
        unit="bucket",
        sites=tree,
        columns=columns,
        count_unit=ONE_OBJECT,
        time=np.concatenate([[0], begins, begins[-1:]]) * _NS,
    )


def _contexts(profile: Lifetimes) -> Table:
    order = np.argsort(-profile.bytes(), kind="stable")[:_MOST_CONTEXTS].tolist()
    rows = [
        (
            " < ".join(profile.stack(context)) or "(unknown)",
            bytes_text(float(profile.bytes()[context])),
            f"{profile.objects()[context]:,.0f}",
            _life(profile.quantile(context, 0.5)),
            _life(profile.quantile(context, 0.95)),
            f"{100 * profile.share_freed(context):.1f} %",
        )
        for context in order
    ]
    heads = ("context", "bytes", "objects", "half live under", "95 % live under", "freed")
    return Table("Which contexts allocate most, and how long do theirs live?", heads, rows)


def _life(milliseconds: float) -> str:
    return "the end" if math.isinf(milliseconds) else duration_text(milliseconds * _NS)
