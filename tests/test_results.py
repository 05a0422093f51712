# SPDX-License-Identifier: Apache-2.0
"""A figure of ours is written once, in docs/results/data: pages, charts and README's table are made of it, and what README
and guides say is compared with it. So are the notebook's index and its files."""

import csv
import importlib.util
import re
import xml.etree.ElementTree
from decimal import ROUND_HALF_UP, Decimal
from math import exp, log
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def program(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_of_the_notebook_is_that_of_its_files():
    assert (DOCS / "notebook/README.md").read_text() == program("make_notebook").index()


def test_links_of_the_notebook_lead_somewhere():
    missing = []
    for page in [*(DOCS / "notebook").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        missing += [
            f"{page.relative_to(ROOT)}: {link}"
            for link in links
            if not re.match(r"https?:|mailto:", link) and not (page.parent / link).exists()
        ]
    assert not missing, "\n".join(missing)


RESULTS = program("make_results")


@pytest.mark.parametrize("path", sorted(RESULTS.written()), ids=lambda path: path.name)
def test_what_is_committed_is_what_the_figures_make(path):
    assert path.read_text() == RESULTS.written()[path], "run docs/make_results.py"


@pytest.mark.parametrize("door", RESULTS.DOORS)
def test_a_page_is_short_and_says_where_it_comes_from(door):
    results = RESULTS.load(door)
    text = (DOCS / f"results/{door}.md").read_text()
    assert text.count("\n") <= 120
    assert len(results["table"]["columns"]) <= 6
    assert all(len(row) == len(results["table"]["columns"]) for row in results["table"]["rows"])
    assert results["loses"] and f"bench/results.py {door}" in text
    for name, figure in results["figures"].items():
        assert figure["what"] and figure["of"] in results["measured"], name
        assert ("low" in figure) == ("high" in figure), name
        if "low" in figure:
            assert figure["low"] <= figure["value"] <= figure["high"], name
    for name, one in results["measured"].items():
        keys = {"date", "machine", "load", "replicates", "programs", "commit"}
        assert keys <= set(one), f"{name}: what nobody wrote down is null"
    for name in results["tables"]:
        assert list(csv.reader((DOCS / "results/data" / name).open())), name
    xml.etree.ElementTree.fromstring((DOCS / f"results/{door}.svg").read_text())


def test_named_figures_are_there_and_tables_are_named():
    """What texts and charts name is there, and each table is named."""
    tables = set()
    for door in RESULTS.DOORS:
        results = RESULTS.load(door)
        tables |= set(results["tables"])
        said = re.findall(
            r"\{(\w+)", str({key: results[key] for key in results if key not in ("figures", "remake")})
        )
        drawn = [name for _, name in results["chart"]["bars"]]
        for name in {*said, *drawn}:
            assert name in results["figures"], f"{door}: {name}"
    assert tables == {path.name for path in (DOCS / "results/data").glob("*.csv")}


def test_the_readme_has_few_figures_and_five_rows():
    table = RESULTS.readme_table({door: RESULTS.load(door) for door in RESULTS.DOORS}).split("\n")[2:]
    figures = [one for row in table for one in figures_of(row)]
    assert len(table) == 5 and 10 <= len(figures) <= 15, figures


def test_the_malloc_is_judged_by_the_half_that_nobody_tuned_on():
    """Its figures are the means of the rows `report`."""
    rows = list(csv.DictReader((DOCS / "results/data/load-drop.csv").open()))
    unseen = [row for row in rows if row["half"] == "report" and not row["program"].startswith("geometric")]
    means = {
        "settled_best": [float(row["memoir over the best, settled"].split()[0]) for row in unseen],
        "settled_glibc": [float(row["memoir, MiB"]) / float(row["glibc, MiB"]) for row in unseen],
        "cpu": [float(row["CPU over the fastest of jemalloc, mimalloc 3, snmalloc"]) for row in unseen],
    }
    said = RESULTS.load("malloc")["figures"]
    assert len(unseen) == said["programs"]["value"] == 7
    for name, ratios in means.items():
        mean = exp(sum(log(one) for one in ratios) / len(ratios))
        assert f"{mean:.2f}" == str(said[name]["value"]), name


NUMBER = re.compile(r"(?<![\w.#/^-])\d[\d,]*(?:\.\d+)?(?![\w/-])")


def figures_of(text):
    """Numbers in what is read: not in links, code or names."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))
    return [one.rstrip(",") for one in NUMBER.findall(text)]


def is_said(text, results):
    """Whether a figure of these results is that number: with more digits, as per cent above 1, or as one end of an
    interval."""
    wanted = Decimal(text.replace(",", ""))
    digits = Decimal(1).scaleb(wanted.as_tuple().exponent)
    for one in results["figures"].values():
        for value in (one[key] for key in ("value", "low", "high") if key in one):
            for form in (value, (value - 1) * 100):
                if form.quantize(digits, ROUND_HALF_UP) == wanted:
                    return True
    return False


def passages(page):
    """Paragraphs, items and rows of a page's prose."""
    text = re.sub(r"^```.*?^```|^    .*?$|^#.*?$|^>.*?$", "", page.read_text(), flags=re.M | re.S)
    return [" ".join(one.split()) for one in re.split(r"\n\s*\n|\n(?=[*|]|\d+\. )", text) if one.strip()]


CLAIMS = [
    (page, passage)
    for page in [ROOT / "README.md", *sorted((DOCS / "guides").glob("*.md"))]
    for passage in passages(page)
    if re.search(r"\]\([^)]*results/(\w+)\.md", passage)
]


@pytest.mark.parametrize(
    ("page", "passage"), CLAIMS, ids=lambda one: one.name if isinstance(one, Path) else one[:40]
)
def test_what_links_to_results_says_its_figures(page, passage):
    """Each number with a unit of a result: digits after a point, per cent, times."""
    doors = [
        RESULTS.load(door) for door in re.findall(r"\]\([^)]*results/(\w+)\.md", passage) if door != "README"
    ]
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", passage))
    for one in re.findall(
        r"(?<![\w.-])(\d[\d,]*\.\d+|\d+(?= (?:%|times|ns|us|ms|s|MiB|MB)))(?![\w/-]|\.\d)", text
    ):
        assert (one, page.name) in OTHERS or any(is_said(one, results) for results in doors), (
            f"{page.name}: {one} is not a figure of what is linked: {passage}"
        )


# Numbers next to a link to results that are something else: a version, a setting.
OTHERS: set[tuple[str, str]] = set()


def test_a_wrong_figure_is_noticed():
    results = RESULTS.load("malloc")
    assert is_said("0.59", results) and is_said("0.6", results) and not is_said("0.57", results)


def test_links_of_the_readme_are_those_of_the_package_index():
    """They lead somewhere from both, and begin with what pyproject.toml says."""
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"(!?)\[[^\[\]]*\]\(([^)\s]+)\)", text)
    assert links
    for picture, link in links:
        match = re.fullmatch(re.escape(RESULTS.address()) + r"/(blob|raw|tree)/main/([^#]+)(?:#.*)?", link)
        assert match, link
        path = ROOT / match[2]
        assert path.is_dir() if match[1] == "tree" else path.is_file(), link
        assert bool(picture) == (match[1] == "raw"), link


def test_the_package_index_shows_the_readme(tmp_path):
    """As `twine check --strict` does."""
    renderer = pytest.importorskip("readme_renderer.markdown", reason="readme_renderer is not here")
    html = renderer.render((ROOT / "README.md").read_text())
    if html is None:
        pytest.skip("readme_renderer[md] is not here")
    assert html and "<table>" in html and "<img" in html and "](" not in html
