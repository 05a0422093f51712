# SPDX-License-Identifier: Apache-2.0
"""The page of a model of lifetimes: what it predicts of which sites and how surely, what it saw, what speaks for long, and
how it does on a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memoir.base.quantities import bytes_text, printable
from memoir.views.model_text import CLASSES, about_size, gain_text, thresholds
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import Fact, Flame, Table, Text
from memoir.views.page.sites import SiteTree

_ABSTAINED = len(CLASSES)  # a confusion row's last column

Found = dict[str, Any]  # of memoir.train.summary.against()


def model_page(name: str, summary: dict[str, Any], against: tuple[str, Found] | None = None) -> Page:
    """`summary`: of memoir.train.summary.summarize(). `against`: a profile's name, and how the model does on it."""
    facts = summary["facts"]
    page = Page(name, subtitle=_subtitle(summary), facts=_facts(summary, against), notes=_notes(summary))
    if against is not None:
        page.add(*_comparison(*against))
    page.add(_classes(summary["classes"]), _sites(summary["sites"]))
    page.add(_seen(summary["sites"]))
    words = facts.get("words_for_long", [])
    if words:
        page.add(_words("Which words speak for long lives?", words))
    held_out = facts.get("held_out", {})
    if held_out:
        page.add(_held_out(held_out))
    return page.add(_how(summary))


def _subtitle(summary: dict[str, Any]) -> str:
    facts = summary["facts"]
    if not facts:
        return "A model of lifetimes"
    programs = ", ".join(printable(each) for each in facts.get("programs", [])[:5])
    return (
        f"A model of lifetimes, learned from {facts['contexts']:,} contexts in {facts['profiles']:,} profiles"
        + f" of {programs}" * bool(programs)
    )


def _facts(summary: dict[str, Any], against: tuple[str, Found] | None) -> list[Fact]:
    facts = summary["facts"]
    shown = []
    if against is not None:
        found = against[1]
        near = _percent(found["accuracy_off_by_one"])
        shown.append(Fact("In the right class", _percent(found["accuracy"]), f"{near} off by one at most"))
        shown.append(Fact("Answered", _percent(found["answered"]), f"of the {found['contexts']:,} contexts"))
        long = found["long"]
        sure = f"{_percent(long['precision'])} of those called so are"
        shown.append(Fact("Long-lived ones found", _percent(long["recall"]), sure))
    elif facts:
        unseen = facts.get("held_out", {}).get("unseen")
        if unseen:
            near = f"{_percent(unseen['accuracy_off_by_one'])} off by one at most"
            shown.append(Fact("Right class, stacks held out", _percent(unseen["accuracy"]), near))
            sure = f"{_percent(unseen['long']['precision'])} of those called so are"
            shown.append(Fact("Long-lived ones found", _percent(unseen["long"]["recall"]), sure))
        if facts.get("gain") is not None:
            shown.append(
                Fact(
                    "Two classes save",
                    gain_text(facts["gain"]),
                    "of the heap, where the profiles are replayed",
                )
            )
    shown.append(Fact("Size", bytes_text(summary["bytes"]), f"{summary['names']:,} names"))
    return shown


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = []
    if summary["one_class"]:
        notes.append("One class: replaying the profiles said that two do not pay.")
    if summary["private"]:
        notes.append("Private: names are hashed with a key of this model, and shown as their hashes.")
    return notes


def _classes(classes: Sequence[dict[str, Any]]) -> Table | None:
    """By predicted class: how many sites, with how many samples."""
    rows, shades = [], []
    total = sum(row["samples"] for row in classes) or 1
    for row in classes:
        counts = (f"{row['sites']:,}", f"{row['samples']:,}")
        sure = row["confidence"]
        rows.append((CLASSES[row["class"]], *counts, f"{100 * sure:.0f} %", f"{row['called_long']:,}"))
        shades.append((0, 0, row["samples"] / total, sure, row["called_long"] / row["sites"]))
    heads = ("predicted lifetime", "sites", "samples", "sure, on average", "called long-lived")
    return Table("How long does it say that objects live?", heads, rows, shades=shades) if rows else None


def _sites(sites: Sequence[dict[str, Any]]) -> Table | None:
    rows, shades, breaks = [], [], []
    for number, row in enumerate(sites):
        if number and row["class"] != sites[number - 1]["class"]:
            breaks.append(number)
        long = f"{100 * row['long']:.0f} %" + ", called long" * row["called_long"]
        sure = f"{100 * row['confidence']:.0f} %"
        stack = f"{_stack(row['stack'])} {about_size(row['size'])}".rstrip()
        rows.append((stack, CLASSES[row["class"]], sure, long, f"{row['samples']:,}"))
        shades.append((0, 0, row["confidence"], row["long"], 0))
    heads = ("stack, innermost first", "predicted lifetime", "sure", "outlives the heap", "samples")
    note = "Of each class the sites with the most samples. What the model adds where names alone decide is not here."
    question = "What does it say of which sites, and how surely?"
    return Table(question, heads, rows, note, left=2, breaks=breaks, shades=shades) if rows else None


def _seen(sites: Sequence[dict[str, Any]]) -> Flame | None:
    """The stacks by their samples, each below the class that is predicted of it."""
    seen = [row for row in sites if row["samples"]]
    if not seen:
        return None
    tree = SiteTree()
    site = [tree.add_stack([CLASSES[row["class"]], *row["stack"][::-1]]) for row in seen]
    count = np.array([row["samples"] for row in seen], np.int64)
    objects = ObjectSet(
        born=np.zeros(len(seen), np.int64),
        died=np.ones(len(seen), np.int64),
        size=np.ones(len(seen), np.int64),
        ticks=1,
        unit="tick",
        sites=tree,
        columns={"site": np.array(site, np.int64), "count": count},
        open_ended=False,
    )
    note = "The sites of the table above by their samples, each stack below the lifetime that is predicted of it."
    return Flame("What did it see?", objects, note, measures=("count",), counted="sample")


def _words(question: str, words: Sequence[dict[str, Any]]) -> Table:
    rows = [(row["word"], f"{row['log_odds']:.1f}", f"{row['long']:,}", f"{row['short']:,}") for row in words]
    most = max(abs(row["log_odds"]) for row in words) or 1
    shades = [(0, abs(row["log_odds"]) / most, 0, 0) for row in words]
    heads = ("word of a name", "log odds", "in long-lived contexts", "in short-lived ones")
    return Table(
        question, heads, rows, "Words of function names, for contexts that no profile saw.", shades=shades
    )


_CASES = {"unseen": "stacks held out", "renamed": "functions taken away and renamed"}
_HEADS = (
    "answered",
    "in the right class",
    "off by one at most",
    "of the objects",
    "long-lived found",
    "called so, and are",
)


def _held_out(cases: dict[str, Found]) -> Table:
    rows = [(_CASES.get(case, case), *_figures(found)) for case, found in cases.items()]
    note = "Measured while it was trained, on contexts that were kept from it."
    return Table("How well does it answer what it never saw?", ("case", *_HEADS), rows, note)


def _figures(found: Found) -> tuple[str, ...]:
    long = found["long"]
    values = (
        found["answered"],
        found["accuracy"],
        found["accuracy_off_by_one"],
        found["accuracy_by_objects"],
    )
    return tuple(_percent(value) for value in (*values, long["recall"], long["precision"]))


def _comparison(profile: str, found: Found) -> list[Table]:
    name = printable(profile)
    stages = ", ".join(f"{count:,} by {stage}" for stage, count in found["stages"].items() if count)
    tables = [
        Table(
            "How well does it answer this profile?",
            ("profile", *_HEADS),
            [(name, *_figures(found))],
            f"Answered: {stages or 'nothing'}.",
        )
    ]
    confusion = found["confusion"]
    used = [k for k in range(len(CLASSES)) if any(confusion[k]) or any(row[k] for row in confusion)]
    rows, shades = [], []
    for truth in used:
        counts = [confusion[truth][said] for said in (*used, _ABSTAINED)]
        rows.append((CLASSES[truth], *(f"{count:,}" for count in counts)))
        shades.append((0.0, *(count / max(sum(counts), 1) for count in counts)))
    heads = ("true lifetime", *(f"said: {CLASSES[k]}" for k in used), "nothing said")
    note = f"Contexts of {name} by their true lifetime and by what the model says; darker is a larger share of the row."
    tables.append(Table("What does it take for what?", heads, rows, note, shades=shades))
    rows = []
    for row in found["largest"]:
        known = row["class"] is not None
        rows.append(
            (
                _stack(row["stack"]),
                bytes_text(row["bytes"]),
                CLASSES[row["class"]] if known else "nothing",
                f"{100 * row['confidence']:.0f} %" if known else "",
                CLASSES[row["true_class"]],
                ("long" if row["called_long"] else "short") if known else "",
                {True: "long", False: "short", None: "not known"}[row["true_long"]],
            )
        )
    heads = ("stack, innermost first", "bytes", "said", "sure", "truth", "called", "truly")
    tables.append(Table("What does it say of the contexts that allocate most?", heads, rows))
    return tables


def _how(summary: dict[str, Any]) -> Text:
    facts = summary["facts"]
    knows = ", ".join(
        [
            _plural(summary["builds"], "build"),
            _plural(summary["addresses"], "address", "es"),
            _plural(summary["names"], "name"),
            _plural(summary["words"], "word"),
        ]
    )
    network = f", and has a network ({summary['network']})" if summary["network"] else ""
    said = [
        f"It answers by {', '.join(summary['stages'])}; else it says nothing.",
        f"Long-lived is to outlive the allocation of {summary['tau']:g} times the largest heap. A context is called so from a "
        f"probability of {thresholds(summary)}. What is known of its parents is worth "
        f"{_plural(summary['prior_worth'], 'sample')}.",
        f"It knows {knows}{network}.",
    ]
    if facts:
        said.append(
            f"It learned from {facts['samples']:,} samples; {facts['long']:,} of the {facts['decided']:,} contexts of which "
            "that is known are long-lived."
        )
    return Text("How does it answer?", said)


def _stack(names: Sequence[str]) -> str:
    return " < ".join(names) or "(unknown)"


def _plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}{ending * (count != 1)}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
