# SPDX-License-Identifier: Apache-2.0
"""The summary of a model of lifetimes for a terminal."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text, printable
from memoir.views.screen import Screen
from memoir.views.text_table import Table

CLASSES = ("< 10 ms", "< 100 ms", "< 1 s", "< 10 s", "< 100 s", "< 1,000 s", "longer", "never freed")
_FRAMES = 3


def print_model(screen: Screen, name: str, summary: dict[str, Any]) -> None:
    """What a model learned, and what it says of its sites."""
    line = screen.line
    facts = summary["facts"]
    line(printable(name), "bold")
    line(f"  {bytes_text(summary['bytes'])}; answers by {', '.join(summary['stages'])}; else it abstains")
    if facts:
        programs = ", ".join(printable(each) for each in facts.get("programs", [])[:5])
        of = f" of {programs}" if programs else ""
        line(
            f"  learned from {facts['contexts']:,} contexts in {facts['profiles']:,} profiles, "
            f"{facts['samples']:,} samples{of}"
        )
        line(f"  long-lived: {facts['long']:,} of the {facts['decided']:,} contexts of which that is known")
    line(f"  long is to outlive {summary['tau']:g} times the heap; worth {summary['prior_worth']} samples")
    line(f"  called long from a probability of {thresholds(summary)}")
    if summary["one_class"]:
        line("  one class: replaying the profiles said that two do not pay", "bold")
    elif facts.get("gain") is not None:
        line(f"  two classes saved {gain_text(facts['gain'])} of the heap when the profiles were replayed")
    if summary["private"]:
        line("  private: names are hashed with a key of this model")
    for case, text in (("unseen", "stacks held out"), ("renamed", "functions taken away and renamed")):
        if case in facts.get("held_out", {}):
            line(f"  {text}: {_held_out(facts['held_out'][case])}")
    line()
    screen.table(_sites(summary["sites"]))
    if facts.get("words_for_long"):
        line()
        rows = tuple(
            (printable(row["word"]), f"{row['log_odds']:.1f}", str(row["long"]), str(row["short"]))
            for row in facts["words_for_long"][:12]
        )
        heads = ("word", "log odds", "long", "short")
        screen.table(Table("words that speak for long", heads, rows, words=(0,)))


def print_comparison(screen: Screen, name: str, found: dict[str, Any]) -> None:
    """How a model did on a profile."""
    screen.line()
    screen.line(f"against {printable(name)}: {_held_out(found)}", "bold")
    answered = ", ".join(f"{count:,} by {stage}" for stage, count in found["stages"].items() if count)
    screen.line(f"  answered: {answered or 'nothing'}")
    screen.line()
    shown = [number for number in range(8) if any(found["confusion"][number])]
    shown = sorted(
        {*shown, *(number for number in range(8) if any(row[number] for row in found["confusion"]))}
    )
    confusion = tuple(
        (CLASSES[number], *(f"{row[i]:,}" for i in shown), f"{row[8]:,}")
        for number in shown
        for row in [found["confusion"][number]]
    )
    heads = ("truth", *(CLASSES[i] for i in shown), "abstained")
    screen.table(Table("contexts by true class and by what is said", heads, confusion, words=(0,)))
    screen.line()
    rows = []
    for row in found["largest"]:
        known = row["class"] is not None
        cells = (
            _stack(row["stack"]),
            bytes_text(row["bytes"]),
            CLASSES[row["class"]] if known else "-",
            f"{100 * row['confidence']:.0f} %" if known else "-",
            CLASSES[row["true_class"]],
            ("yes" if row["called_long"] else "no") if known else "-",
            {True: "yes", False: "no", None: "?"}[row["true_long"]],
        )
        rows.append(cells)
    heads = ("stack, innermost first", "bytes", "said", "sure", "truth", "long", "truly")
    screen.table(Table("contexts that allocate most", heads, tuple(rows), words=(0,)))


def gain_text(gain: float) -> str:
    """What two classes save of the heap; nothing is no share, and never a negative zero."""
    return f"{100 * gain:.1f} %" if round(abs(gain), 3) else "nothing"


def thresholds(summary: dict[str, Any]) -> str:
    """From which probability on a context is called long: a hot one may need more."""
    text = f"{summary['least_long']:.2f} on"
    if not summary["hot_samples"]:
        return text
    samples = f"{summary['hot_samples']:,} sample{'s' * (summary['hot_samples'] != 1)}"
    return f"{text}, one of at least {samples} from {summary['least_long_hot']:.2f} on"


def _held_out(found: dict[str, Any]) -> str:
    long = found["long"]
    return (
        f"{_percent(found['answered'])} answered, {_percent(found['accuracy'])} in the right class "
        f"({_percent(found['accuracy_off_by_one'])} off by one at most), "
        f"{_percent(found['accuracy_by_objects'])} of the objects; long: {_percent(long['recall'])} found, "
        f"{_percent(long['precision'])} of those called so are"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _sites(rows: list[dict[str, Any]]) -> Table:
    heads = ("stack, innermost first", "class", "sure", "long", "samples")
    cells = tuple(
        (
            _stack(row["stack"], row["size"]),
            CLASSES[row["class"]],
            f"{100 * row['confidence']:.0f} %",
            f"{100 * row['long']:.0f} %" + (" *" if row["called_long"] else ""),
            f"{row['samples']:,}",
        )
        for row in rows
    )
    return Table("sites by class", heads, cells, words=(0,))


def _stack(names: list[str], size: int | None = None) -> str:
    """size: of the objects that it is about, where the model tells them apart by it."""
    shown = [printable(name) for name in names[:_FRAMES]]
    shown += ["..."] * (len(names) > _FRAMES)
    return "\n".join(shown + [about_size(size)] * (size is not None)) or "[unknown]"


def about_size(size: int | None) -> str:
    return "" if size is None else f"({bytes_text(size)} or a little more)"
