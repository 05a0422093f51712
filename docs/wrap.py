# SPDX-License-Identifier: Apache-2.0
"""Keeps the prose of the pages at 100 columns. What a page says and shows stays the same: only line ends move.

.venv/bin/python docs/wrap.py [FILE...]           write what has changed
.venv/bin/python docs/wrap.py --check [FILE...]   exit 1 where a line is too wide

Without files: every tracked *.md. Only paragraphs and list items with a line that is too wide are wrapped again. Code,
tables, headings, HTML and the pages that programs write are left alone, and so is what cannot be broken.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
ITEM = re.compile(r"( *)([*+-]|\d+[.)]) +")
ALONE = re.compile(r" *(#|\||<|>|!\[|```|~~~|\[[^\]]+\]: |-{3,}$|={3,}$|\*{3,}$)")
# what looks like the start of something else where a line begins
STARTS = re.compile(r"([*+-]|\d+[.)]|#+|>.*|\||`{3}|~{3}|=+|-+)")
# code, links and words are not broken
ATOM = re.compile(r"(?:`+[^`]+`+|!?\[[^\[\]]*\](?:\([^()\s]*\))?|[^\s`\[!]+|[`\[!])+")
WRITTEN = "<!-- written by "
LEFT_ALONE = (
    "third_party/",
    "bench/torch/reports/",
    "tests/bench_torch/data/",
)  # others' pages; written reports


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in names.split("\0") if name and not name.startswith(LEFT_ALONE)]


def fill(words: list[str], first: str, rest: str) -> list[str]:
    lines: list[list[str]] = [[]]
    for word in words:
        indent = first if len(lines) == 1 else rest
        if lines[-1] and len(indent) + len(" ".join([*lines[-1], word])) > WIDTH:
            lines.append([])
            # a word that would begin a list takes the word before it along
            while STARTS.fullmatch(word if not lines[-1] else lines[-1][0]) and len(lines[-2]) > 1:
                lines[-1].insert(0, lines[-2].pop())
        lines[-1].append(word)
    return [(rest if number else first) + " ".join(line) for number, line in enumerate(lines)]


def wrapped(block: list[str]) -> list[str]:
    """One paragraph or list item, its lines as they stand in the page."""
    item = ITEM.match(block[0])
    first = item[0] if item else re.match(" *", block[0])[0]
    rest = " " * len(first)
    if any(line.endswith(("  ", "\\")) for line in block[:-1]):  # a break that is meant
        return block
    text = " ".join([block[0][len(first) :].strip(), *(line.strip() for line in block[1:])])
    return fill(ATOM.findall(text), first, rest)


def wrap(text: str) -> str:
    lines, out, block, fence = text.split("\n"), [], [], ""

    def flush() -> None:
        wide = any(len(line) > WIDTH for line in block)
        out.extend(wrapped(block) if wide else block)
        block.clear()

    for line in lines:
        mark = re.match(r" *(`{3,}|~{3,})", line)
        if fence or mark:
            flush()
            out.append(line)
            if not fence:
                fence = mark[1]
            elif mark and mark[1].startswith(fence) and not line.strip().strip("`~"):
                fence = ""
        elif not line.strip() or ALONE.match(line) or (line.startswith("    ") and not block):
            flush()
            out.append(line)
        else:
            if ITEM.match(line):
                flush()
            block.append(line)
    flush()
    return "\n".join(out)


def main() -> int:
    check = "--check" in sys.argv
    named = [Path(name) for name in sys.argv[1:] if name != "--check"]
    changed = []
    for page in named or tracked():
        text = page.read_text()
        if text.startswith(WRITTEN) or (after := wrap(text)) == text:
            continue
        changed.append(page)
        if not check:
            page.write_text(after)
    for page in changed:
        print(f"{page}: {'has prose wider than 100 columns: run docs/wrap.py' if check else 'wrapped'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
