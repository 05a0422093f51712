#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many words README and docs have, the notebook left out, and how long a sentence is; tests/test_word_budget.py holds the
budget.

    docs/count_words.py            by page, the longest first
    docs/count_words.py --long     the sentences that are longest"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 70_000  # words in all
SENTENCE = 15  # words of a sentence, on average


def pages() -> list[Path]:
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in docs if "notebook" not in page.parts)]


def words(text: str) -> int:
    """All that has a letter or a digit between spaces, tables and code included."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def sentences(text: str) -> list[str]:
    """Of prose: without code, tables, headings and the addresses of links."""
    text = re.sub(r"^```.*?^```|^<!--.*?-->|^\|.*?$|^#.*?$|^    .*?$", "\n\n", text, flags=re.M | re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "`code`", text)
    found = []
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[*>] |\d+\. )", text):
        paragraph = " ".join(paragraph.split())
        found += [one for one in re.split(r"(?<=[.!?])[*)\"]* (?=\S)", paragraph) if words(one) > 2]
    return found


def main() -> None:
    counts = {page: words(page.read_text()) for page in pages()}
    if "--long" in sys.argv:
        everything = [(words(one), page, one) for page in pages() for one in sentences(page.read_text())]
        for count, page, sentence in sorted(everything, key=lambda one: -one[0])[:60]:
            print(f"{count:4} {page.relative_to(ROOT)}: {sentence}")
    else:
        for page, count in sorted(counts.items(), key=lambda one: -one[1]):
            print(f"{count:6,} {page.relative_to(ROOT)}")
    lengths = [words(one) for page in pages() for one in sentences(page.read_text())]
    print(f"{sum(counts.values()):,} words of {BUDGET:,}; a sentence has {sum(lengths) / len(lengths):.1f}")


if __name__ == "__main__":
    main()
