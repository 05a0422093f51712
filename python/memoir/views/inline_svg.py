# SPDX-License-Identifier: Apache-2.0
"""A picture inside a page."""

from __future__ import annotations

import re


def inline_svg(picture: bytes, number: int) -> str:
    """The `<svg>` element of an SVG file, the page's picture of that number: its ids are its own, since matplotlib gives
    every figure the same ones."""
    text = picture.decode()
    return re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>picture{number}-", text[text.index("<svg") :])
