# SPDX-License-Identifier: Apache-2.0
"""Sphinx: the pages of docs/ as a site that needs no server and no network, its search included (make docs)."""

import re
from pathlib import Path

DOCS = Path(__file__).parent
FOLDERS = {
    "guides": "Guides",
    "concepts": "Concepts",
    "reference": "Reference",
    "results": "Results",
    "decisions": "Decisions",
    "contributing": "Contributing",
}

project = "memoir"
author = copyright = "the memoir authors"
version = release = (DOCS.parent / "VERSION").read_text().strip()
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["notebook/**"]
html_theme = "furo"
html_title = "memoir: allocators that remember"
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it fetches pages, which no browser does without a server
myst_heading_anchors = 4
pygments_style, pygments_dark_style = "friendly", "native"
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # a piece of output is not a piece of code


def _contents() -> str:
    text = ""
    groups = {"More": sorted(path.stem for path in DOCS.glob("*.md") if path.stem != root_doc)}
    for folder, title in FOLDERS.items():
        groups[title] = sorted(
            path.relative_to(DOCS).as_posix()[:-3] for path in (DOCS / folder).glob("*.md")
        )
    for title, pages in groups.items():
        if pages:
            text += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])
    return text


def _title(page: Path) -> str:
    return page.read_text().split("\n# ", 1)[-1].removeprefix("# ").split("\n", 1)[0]


def _prepare(app, name, source) -> None:
    """Adds the table of contents to the first page. Links to files that are not on the site become their paths; links that
    name a page by its file get its title."""
    here = (DOCS / f"{name}.md").parent

    def replaced(link):
        path = link[2].split("#")[0]
        target = (here / path).resolve()
        left_out = target.is_relative_to(DOCS / "notebook") and target.suffix == ".md"
        on_site = target.is_relative_to(DOCS) and target.is_file() and not left_out
        if on_site and re.fullmatch(r"[\w-]+\.md", link[1]):
            return f"[{_title(target)}]({link[2]})"
        if not path or "://" in path or on_site:
            return link[0]
        return f"{link[1]} (`{target.relative_to(DOCS.parent).as_posix()}`)"

    source[0] = re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", replaced, source[0])
    source[0] = re.sub(r'^<a id="([\w-]+)"></a>', r"(\1)=\n", source[0], flags=re.MULTILINE)
    if name == root_doc:
        source[0] += _contents()


def _begin_at_index(app, problem) -> None:
    if problem is None:
        (Path(app.outdir) / "index.html").write_text((Path(app.outdir) / f"{root_doc}.html").read_text())


def setup(app) -> None:
    app.connect("source-read", _prepare)
    app.connect("build-finished", _begin_at_index)
