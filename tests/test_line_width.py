# SPDX-License-Identifier: Apache-2.0
"""Code and comments share one width. clang-format keeps the code's and leaves comments alone, so that pictures survive.
docs/wrap.py wraps the prose of pages."""

import importlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "fuzz", "bench", "examples", "python")
SUFFIXES = (".h", ".cc", ".cpp", ".c")


def test_no_line_of_c_or_cpp_is_wider_than_the_formatter_allows():
    width = int(re.search(r"^ColumnLimit: (\d+)$", (ROOT / ".clang-format").read_text(), re.M)[1])
    files = subprocess.run(
        ["git", "ls-files", "-z", "--", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sources = [name for name in files.stdout.split("\0") if name.endswith(SUFFIXES)]
    assert len(sources) > 100
    wide = [
        f"{name}:{number}: {len(line)} columns, {width} are allowed"
        for name in sources
        if (ROOT / name).is_file()
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if len(line) > width and "://" not in line and 'R"(' not in line  # cannot be broken
    ]
    assert not wide, "\n".join(wide)


def test_prose_of_pages_is_wrapped(monkeypatch):
    """At 100 columns, as docs/contributing/style.md says."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    wrap = importlib.import_module("wrap")
    pages = {page: page.read_text() for page in wrap.tracked() if page.is_file()}
    assert len(pages) > 60
    wide = [
        str(page.relative_to(ROOT))
        for page, text in pages.items()
        if not text.startswith(wrap.WRITTEN) and wrap.wrap(text) != text
    ]
    assert not wide, f"prose wider than {wrap.WIDTH} columns, run docs/wrap.py: {', '.join(wide)}"


def test_wrapping_leaves_code_and_tables_and_makes_no_list(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    wrap = importlib.import_module("wrap")
    long = "word " * 40
    kept = f"```\n{long}\n```\n\n| {long} |\n\n# {long}\n"
    assert wrap.wrap(kept) == kept
    wrapped = wrap.wrap(f"* {long}\n  and more\n* 2\n\n{'x' * 97} - y `a b c` and on it goes\n")
    lines = wrapped.splitlines()
    assert all(len(line) <= wrap.WIDTH for line in lines)
    assert lines[0].startswith("* ") and lines[1].startswith("  w") and "* 2" in lines
    assert not any(line.startswith("- ") for line in lines)
    assert wrap.wrap(wrapped) == wrapped
