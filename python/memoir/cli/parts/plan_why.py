# SPDX-License-Identifier: Apache-2.0
"""`memoir plan`: why nothing fits, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memoir._core import Problem
    from memoir.planning.why import Change, Why

_SHOWN = 20  # buffers of the set
_TRIED = {
    "shrink": "one smaller",
    "end earlier": "one that ends earlier",
    "begin later": "one that begins later",
    "let go": "one let go for a while",
    "let go together": "several let go",
    "shrink together": "several smaller",
}


def why_lines(why: Why, problem: Problem, ids: Sequence[str]) -> list[str]:
    """What `memoir plan --capacity` prints when nothing fits."""
    lower, upper, size = problem.lower, problem.upper, problem.size
    count = len(why.buffers)
    if why.tick is not None:
        fewest = "; no smaller set does" if why.smallest else ""
        lines = [
            f"why: {count:,} buffers live together at tick {why.tick:,} and need {why.needed:,} bytes, "
            f"{why.needed - why.capacity:,} too many{fewest}"
        ]
    else:
        least = "; without any one of them the others fit" if why.minimal else ""
        lines = [
            f"why: {count:,} buffers interlock and need {why.needed:,} bytes, "
            f"{why.needed - why.capacity:,} too many{least}"
        ]
    for i in why.buffers[:_SHOWN]:
        lines.append(f"  {ids[i]}: {int(size[i]):,} bytes in [{int(lower[i]):,}, {int(upper[i]):,})")
    if count > _SHOWN:
        lines.append(f"  and {count - _SHOWN:,} more (--json has all)")
    if why.changes:
        lines.append("it would fit with one of these changes (each was tried):")
        lines += [f"  {_told(change, problem, ids)}" for change in why.changes]
    elif why.together:
        lines.append("no change of one buffer is enough; it would fit with all of these (this was tried):")
        lines += [f"  {_told(change, problem, ids)}" for change in why.together[:_SHOWN]]
        if len(why.together) > _SHOWN:
            lines.append(f"  and {len(why.together) - _SHOWN:,} more (--json has all)")
    else:
        lines.append("no change was found after which it fits: each was tried for a moment only")
    if why.tried:
        lines.append("tried: " + ", ".join(f"{_TRIED[kind]} {count:,}" for kind, count in why.tried.items()))
    return lines


def _told(change: Change, problem: Problem, ids: Sequence[str]) -> str:
    name, size = ids[change.buffer], int(problem.size[change.buffer])
    if change.kind == "shrink":
        return f"shrink {name} by {change.bytes:,} of its {size:,} bytes"
    if change.kind == "end earlier":
        return f"end {name} at tick {change.lower:,} instead of {change.upper:,}"
    if change.kind == "begin later":
        return f"begin {name} at tick {change.upper:,} instead of {change.lower:,}"
    return f"recompute or offload {name} ({size:,} bytes) from tick {change.lower:,} to {change.upper:,}"
