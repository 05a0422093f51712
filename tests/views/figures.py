# SPDX-License-Identifier: Apache-2.0
"""Figures in text, and those that data has."""

import re

from memoir.base.quantities import bytes_text, duration_text

FIGURE = re.compile(
    r"(?<![\w.:/<>#=@+…-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?: (?:B|KiB|MiB|GiB|TiB|ns|us|ms|s|%|x)(?!\w))?(?![\w:>/=(])"
)


def figures(text):
    """Numbers with their units; those within names are none."""
    return [one.rstrip(",") for one in FIGURE.findall(text)]


def said(value, found=None):
    """All that --json says, as pages write it."""
    found = set() if found is None else found
    if isinstance(value, bool) or value is None:
        return found
    if isinstance(value, int | float):
        found |= {f"{value:,}", str(value), bytes_text(value), duration_text(value), f"{value:,.0f}"}
        found |= {f"{value:.{digits}f}" for digits in (1, 2, 3, 4)} | {f"{value:,.2f}", f"{value:.3f} x"}
        if abs(value) <= 1.5:
            found |= {f"{100 * value:.1f} %", f"{100 * value:.0f} %"}
    elif isinstance(value, str):
        found |= set(figures(value))
    else:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict):
                found |= set(figures(str(key)))
            said(one, found)
    return found
