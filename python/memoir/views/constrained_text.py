# SPDX-License-Identifier: Apache-2.0
"""What there is to say about a plan of a constrained problem next to its table."""

from __future__ import annotations

from memoir.base.quantities import bytes_text
from memoir.planning import PlanResult


def result_lines(result: PlanResult, locality: bool) -> list[str]:
    lines = []
    if result.load_low is not None:
        lines.append(f"if every size turns out the smallest: a load of {result.load_low:,} bytes")
    if len(result.arena_names) > 1 and result.found:
        for arena in result.arena_rows():
            size = arena["size"]
            lines.append(
                f"{arena['name']}: {arena['buffers']:,} buffers in {size:,} bytes ({bytes_text(size)})"
            )
        least = result.lower_bound_cost
        if result.cost == least:
            proven = "the lowest"
        elif least:
            proven = f"at most {100 * (result.cost / least - 1):.2f} % above the lowest, which is at least {least:,}"
        else:
            proven = "the lowest is not known"
        reason = f": {result.cost_reason}" if result.cost_reason else ""
        lines.append(f"cost: {result.cost:,} ({proven}{reason})")
    if result.paid is not None and result.found:
        known = "no plan is cheaper" if result.optimal else f"at least {result.least_priced:,} with the arena"
        if result.capacity is not None and not result.optimal:
            known = f"at least {result.least_priced:,}"
        lines.append(f"paid for sharing: {result.paid:,} bytes ({known})")
    if result.moves is not None:
        lines.append(f"moved: {result.moves:,} of {result.known_before:,} buffers that the earlier plan has")
    if result.hints is not None:
        lines.append(f"hints followed: {result.hints_followed:,} of {result.hints:,}")
    if locality:
        lines.append(
            f"bytes used before: freed {result.mean_age:,.1f} ticks earlier on average; "
            f"{result.cold_bytes:,} bytes that none had before"
        )
    return ["", *lines] if lines else []


def verdict(result: PlanResult) -> str | None:
    """Of the limits: capacities, moves, banks."""
    if result.proven_infeasible:
        return f"no plan keeps to the limits: {result.bound_reason}"
    again = "Try --planner exact, or a longer --deadline"
    if not result.found:
        return f"no plan was found: the banks left a buffer no place. {again}"
    if result.fits is False:
        return f"no plan was found that keeps to the limits, but there may be one. {again}"
    return "keeps to the limits" if result.fits else None
