# SPDX-License-Identifier: Apache-2.0
"""Quantities as people write and read them. Files and --json hold plain bytes and nanoseconds."""

from __future__ import annotations

import os
import re
import shlex
from fractions import Fraction

LONGEST_ERROR = 4000  # characters on a terminal
BYTE_UNITS = {"": 1, "b": 1, "k": 2**10, "kib": 2**10, "m": 2**20, "mib": 2**20, "g": 2**30, "gib": 2**30}


def read_amount(text: str) -> tuple[Fraction, str] | None:
    """'1.5 GiB' -> (3/2, 'gib'): a number, and its unit in small letters or ''; None for what is neither."""
    match = re.fullmatch(r"(\d{1,40}(?:\.\d{1,40})?)\s*([a-zA-Z]*)", text.strip())
    return (Fraction(match[1]), match[2].lower()) if match else None


DURATION_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


def read_duration(text: str) -> int | None:
    """'12.5s' -> 12500000000: nanoseconds; seconds without a unit; None for what is no duration, or one of centuries."""
    amount = read_amount(text)
    if amount is None or (amount[1] or "s") not in DURATION_UNITS:
        return None
    nanoseconds = int(amount[0] * DURATION_UNITS[amount[1] or "s"])
    return nanoseconds if nanoseconds < 2**63 else None


def bytes_text(count: float) -> str:
    """1536 -> '1.5 KiB'; three significant digits, whole below 1 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1000 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{_three_digits(count)} {unit}"


def duration_text(nanoseconds: float) -> str:
    """1500 -> '1.50 us'."""
    for unit in ("ns", "us", "ms", "s"):
        if abs(nanoseconds) < 1000 or unit == "s":
            break
        nanoseconds /= 1000
    return f"{nanoseconds:.0f} ns" if unit == "ns" else f"{_three_digits(nanoseconds)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:,.0f}"


def printable(text: str) -> str:
    """Text of a stranger's file for a terminal: control characters become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(name: object) -> str:
    """A word for a shell, as it can be typed and shown: control characters become escapes."""
    text = str(name)
    if text.isprintable():
        return shlex.quote(text)
    escapes = (
        f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b"'\\" else chr(byte)
        for byte in os.fsencode(text)
    )
    return f"$'{''.join(escapes)}'"


def printable_error(error: object) -> str:
    """An error for a terminal, of which parts may be of a stranger's file: its lines printable, and not without end."""
    text = str(error)
    more = f" ... ({len(text) - LONGEST_ERROR:,} characters more)" if len(text) > LONGEST_ERROR else ""
    return "\n".join(printable(line) for line in text[:LONGEST_ERROR].split("\n")) + more
