# SPDX-License-Identifier: Apache-2.0
"""An area plot made of characters."""

from __future__ import annotations

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ASCII = "     ####"  # at least half a character counts


def area(
    values: list[float], *, height: int = 6, top: float | None = None, ascii_only: bool = False
) -> list[str]:
    """`height` lines, highest first; one column per value; `top` (or the largest value) has full height."""
    top = top or max(values, default=0) or 1
    marks = _ASCII if ascii_only else _EIGHTHS
    lines = []
    for row in range(height - 1, -1, -1):
        eighths = [min(max(round(8 * (value / top * height - row)), 0), 8) for value in values]
        lines.append("".join(marks[count] for count in eighths))
    return lines


def squeezed(values: list[float], width: int) -> list[float]:
    """At most `width` values: the largest of each stretch, so that no peak is lost."""
    if len(values) <= width:
        return values
    edges = [column * len(values) // width for column in range(width + 1)]
    return [max(values[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
