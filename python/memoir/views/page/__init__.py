# SPDX-License-Identifier: Apache-2.0
"""One page maker for everything that memoir shows: a self-contained HTML file.

    page = Page("x.trace", facts=[Fact("Peak", "12.3 MiB", "live at event 411")])
    page.add(HeapMaps("Where did every object lie?", objects, [Map("recorded", addresses)]))
    page.add(Flame("Who allocates?", objects), Lifetimes("How long do objects live?", objects))
    page.add(Table("Which passes ran?", ("pass", "peak"), rows))
    write_output(path, page.render().encode(), force)

Panels are in `panels.py`, objects as columns in `objects.py`; `of_*.py` make the pages of traces, plans, simulations
and benches. A result of another kind makes its panels with the same few classes.
"""

from memoir.views.page.addresses import AddressAxis, Segments
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet, objects_of, recorded_addresses
from memoir.views.page.panels import (
    Curve,
    Fact,
    Flame,
    HeapMaps,
    Lifetimes,
    Lines,
    Map,
    Mark,
    Picture,
    Series,
    Table,
    Text,
)
from memoir.views.page.sites import SiteTree, sites_of

__all__ = [
    "AddressAxis",
    "Curve",
    "Fact",
    "Flame",
    "HeapMaps",
    "Lifetimes",
    "Lines",
    "Map",
    "Mark",
    "ObjectSet",
    "Page",
    "Picture",
    "Segments",
    "Series",
    "SiteTree",
    "Table",
    "Text",
    "objects_of",
    "recorded_addresses",
    "sites_of",
]
