# SPDX-License-Identifier: Apache-2.0
"""A still picture inside a page whose policy allows no styles: those of matplotlib's SVG become attributes."""

from __future__ import annotations

import re

from memoir.views.inline_svg import inline_svg

_FONT = re.compile(
    r"(?:(?P<style>italic|oblique)\s+)?(?:(?P<weight>bold|\d{3})\s+)?(?P<size>[\d.]+px)\s+(?P<family>.+)"
)
_INK = {"#000000": "currentColor", "#000": "currentColor", "black": "currentColor"}


def plain_svg(picture: bytes, number: int) -> str:
    """The `<svg>` element, the page's picture of that number, without styles; black is the page's ink, white its
    paper."""
    text = inline_svg(picture, number)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)
    text = re.sub(r' style="([^"]*)"', lambda match: _attributes(match[1]), text)
    # What has no fill of its own is black in SVG, and would not be seen on dark paper.
    return re.sub(r"<text(?![^>]*\sfill=)", '<text fill="currentColor"', text)


def _attributes(style: str) -> str:
    found: dict[str, str] = {}
    for part in style.replace("&quot;", "'").split(";"):
        name, colon, value = part.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not re.fullmatch(r"[a-z-]+", name) or "url(" in value:
            continue
        if name == "font":
            match = _FONT.fullmatch(value)
            if match:
                found |= {f"font-{key}": text for key, text in match.groupdict().items() if text}
        elif name in ("fill", "stroke"):
            found[name] = "none" if value.lower() in ("#ffffff", "white") else _INK.get(value.lower(), value)
        else:
            found[name] = value
    return "".join(f' {name}="{value}"' for name, value in found.items())
