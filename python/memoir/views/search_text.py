# SPDX-License-Identifier: Apache-2.0
"""What a search over PyTorch's settings found: the line to copy, and which settings matter."""

from __future__ import annotations

from typing import Any

from memoir.base.quantities import bytes_text
from memoir.views.text_table import Table


def found_lines(found: dict[str, Any]) -> str:
    """The best settings next to the defaults."""
    how = "everything that there is" if found["complete"] else f"{found['seconds']:.1f} s"
    tried = f"{found['tried']:,} settings of PyTorch's allocator tried ({how})"
    best, default = found["best"], found["default"]
    if best is None or not best["completed"]:
        return f"{tried}: none completes under the cap"
    lines = [f"{tried}. The best: {_cost(best)}; the defaults: {_cost(default) if default else 'not known'}"]
    settings = found["settings"]
    lines.append(f"  PYTORCH_CUDA_ALLOC_CONF={settings}" if settings else "  the defaults are the best")
    return "\n".join(lines)


def matters_table(found: dict[str, Any]) -> Table:
    """What each value of a setting would do to the best settings; the settings that matter first."""
    heads = ("setting", "matters here", "with each value, the others as in the best")
    made = []
    rows = sorted(found["matters"].items(), key=lambda row: (row[1]["matters"] is not True, row[0]))
    for name, row in rows:
        answer = {True: "yes", False: "no", None: "not known"}[row["matters"]]
        values = (f"{value}: {_number(found['goal'], number)}" for value, number in row["values"].items())
        made.append((name, answer, "" if row["matters"] is False else ", ".join(values)))
    return Table("", heads, tuple(made), words=(0, 1, 2))


def _cost(tried: dict[str, Any]) -> str:
    if not tried["completed"]:
        return "out of memory"
    return f"{bytes_text(tried['reserved'])} held, {tried['calls']:,} device calls"


def _number(goal: str, number: int | None) -> str:
    return "fails" if number is None else bytes_text(number) if goal == "reserved" else f"{number:,}"
