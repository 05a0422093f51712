# SPDX-License-Identifier: Apache-2.0
"""Pictures and the page: drawn from simulated and study-like data, and complete in themselves."""

import re
import xml.etree.ElementTree as xml

import pytest
from memoir.bench import analysis, reading, values
from memoir.views import bench_drawing, bench_figures, bench_tables
from memoir.views.page.of_bench import bench_page
from test_bench_results import simulated, write_study

pytest.importorskip("matplotlib")


def drawn(result):
    analyses = {name: analysis.analyse(result, name) for name in values.quantities(result)}
    return analyses, bench_figures.all_figures(result, analyses["wall"], analyses.get("peak_rss"))


def test_the_study_s_three_figures(tmp_path):
    _, figures = drawn(reading.read(write_study(tmp_path)))
    assert {"times", "serial-normalised-by-allocator", "serial-normalised-by-load"} <= set(figures)
    times = figures["times"].axes
    assert len(times) == 9  # threads x load
    assert len(times[0].patches) == 3  # a bar per allocator
    by_load = figures["serial-normalised-by-load"].axes
    assert len(by_load) == 9  # allocators x threads
    heights = [patch.get_height() for patch in by_load[2].patches]  # default, 16 threads, load 1, 4, 16
    assert heights == pytest.approx([1.3] * 3, rel=0.05)
    by_allocator = figures["serial-normalised-by-allocator"].axes
    assert [patch.get_height() for patch in by_allocator[0].patches] == [1.0, 1.0, 1.0]


def test_every_run_is_a_point(tmp_path):
    result = simulated({"base": 1.0, "other": 1.2}, n=7)
    points = [line for line in bench_figures.times(result).axes[0].lines if line.get_marker() == "."]
    assert sum(len(line.get_xdata()) for line in points) == 14


def test_failures_gaps_and_memory_over_time_are_drawn():
    result = simulated({"base": 1.0, "broken": 1.0, "other": 2.0}, n=3)
    for row in result.rows:
        row["memory"] = [[0.1, 10, 20], [0.2, 5, 20]]
        if row["allocator"] == "broken":
            row["status"] = "SIGSEGV"
    _, figures = drawn(result)
    assert "live-and-resident" in figures
    assert "failed" in [text.get_text() for text in figures["times"].axes[0].texts]
    assert any("no data" in text.get_text() for text in figures["ratios"].axes[0].texts)


def test_the_page_needs_no_network():
    result = simulated({"base": 1.0, "<other>": 1.2}, n=4)
    analyses, figures = drawn(result)
    svg = {name: bench_drawing.to_bytes(figure, "svg") for name, figure in figures.items()}
    for content in svg.values():
        xml.fromstring(content)
    page = bench_page(result, [bench_tables.cells(analyses["wall"])], svg, ["a <note>"]).render()
    page = page[: page.index("<script>")]  # its own reads the page and fetches nothing: tests/views
    assert (
        " style=" not in page and "<style" not in page[page.index("<main") :]
    )  # its policy would refuse them
    assert "&lt;other&gt;" in page and "a &lt;note&gt;" in page
    assert page.count("<svg") == len(figures)
    fetched = re.findall(r"(?:src|href)\s*=\s*[\"']?(?!#)[^\"'> ]+", page)
    assert fetched == []
    assert "@import" not in page and "url(http" not in page
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(set(ids)) == len(ids) > 10
    named = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert named and named <= set(ids)


def test_names_with_dollars_are_no_mathematics():
    names = ("$x^$", "a$_$b", "$\\mathdefault{\\bad}$", "$e\x1b[31m\u202e")
    result = simulated({"base": 1.0, **dict.fromkeys(names, 1.1)}, n=3)
    shown = {*names[:3], "$e\\x1b[31m\\u202e"}
    for name, figure in drawn(result)[1].items():
        assert bench_drawing.to_bytes(figure, "png").startswith(b"\x89PNG"), name
        texts = {
            "".join(one.itertext()) for one in xml.fromstring(bench_drawing.to_bytes(figure, "svg")).iter()
        }
        # As they are, in SVG's own words for signs; formulas and backslashes before "$" would not be.
        assert all(any(one in text for text in texts) for one in shown), name
        assert not any("\\$" in text for text in texts), name


def test_intervals_that_know_nothing_say_so():
    from memoir.bench.statistics import Interval

    assert bench_tables.interval(Interval(0.9, 0.8, 1.01)) == "0.900 [0.800, 1.010]"
    assert bench_tables.interval(Interval(0.9, 1e-9, 1e9)) == "0.900 [<0.001, >1000]"
    assert bench_tables.interval(Interval(0.9, 0.0, float("inf"))) == "0.900 [?]"


def test_markdown_tables_are_whole():
    found = analysis.analyse(simulated({"base": 1.0, "a|b": 1.2}, n=3))
    text = bench_tables.markdown(bench_tables.cells(found))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert text.startswith("### Time") and len(rows) == 2 + 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert "a\\|b" in text


def test_the_same_figure_gives_the_same_bytes():
    result = simulated({"base": 1.0, "other": 1.2}, n=3)
    one, two = bench_figures.times(result), bench_figures.times(result)
    assert bench_drawing.to_bytes(one, "svg") == bench_drawing.to_bytes(two, "svg")
    assert bench_drawing.to_bytes(one, "png").startswith(b"\x89PNG")
