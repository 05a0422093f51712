# SPDX-License-Identifier: Apache-2.0
"""Pages of results in a real browser: linked maps of two traces, what a policy holds, paper."""

import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from memoir.simulation import workload_of
from memoir.simulation.out_of_memory import explain
from memoir.traces.files import open_trace
from memoir.views.page import HeapMaps, Map, ObjectSet, Page, SiteTree, Table
from memoir.views.page.objects import objects_of
from memoir.views.page.of_model import model_page
from memoir.views.page.of_oom import oom_page
from memoir.views.page.placed import placed_map, room_of
from pages import DATA, page_of
from test_page_browser import MAP, clean

sys.path += [str(Path(__file__).parents[1] / name) for name in ("formats", "cli")]
from snapshots import snapshot  # noqa: E402
from test_oom_cli import combed  # noqa: E402

pytestmark = pytest.mark.full  # a browser takes its time on a busy machine


def made_up(names, sizes):
    """An object of each size below the stack main > name, all live together."""
    tree = SiteTree()
    site = np.array([tree.add_stack(["main", name]) for name in names], np.int64)
    count = len(names)
    return ObjectSet(
        np.arange(count), np.full(count, count + 2), np.array(sizes), count + 2, "step", tree, {"site": site}
    )


def test_a_site_has_one_colour_in_maps_of_two_traces(open_page):
    before, after = made_up("abc", [400, 300, 200]), made_up("xcb", [500, 900, 100])
    maps = [
        Map("before", np.array([0, 400, 700], np.uint64), objects=before),
        Map("after", np.array([0, 500, 1400], np.uint64), objects=after),
    ]
    page = open_page(Page("two").add(HeapMaps("What changed?", before, maps)).render())
    for mode in ("site", "operator"):
        page.run(f"memoirPage.panels[0].setMode('{mode}')")
        # By what they have at both peaks together: c has 1100, x 500, then a and b 400 each, by name.
        found = page.run(
            "memoirPage.panels[0].maps.map((map) => { const { groups, legend } = colouring_(map); "
            "return [...groups].map((group) => legend[group].name); })".replace(
                "colouring_(map)", f"map.set.colourings.get('{mode}')"
            )
        )
        assert [name.split(" ")[0] for name in found[0]] == ["a", "b", "c"]
        assert [name.split(" ")[0] for name in found[1]] == ["x", "c", "b"]
        legends = page.run(
            f"memoirPage.panels[0].maps.map((map) => map.set.colourings.get('{mode}').legend.map("
            "(one) => [one.name.split(' ')[0], one.colour, one.note]))"
        )
        assert legends[0] == legends[1]
        assert [row[0] for row in legends[0]] == ["c", "x", "a", "b"]
        assert legends[0][0][2] == "200 B → 900 B at the peak"
    page.wait_for("document.querySelectorAll('.living').length === 2")
    heads = page.run("[...document.querySelectorAll('.living h3')].map((one) => one.textContent)")
    assert heads[0].startswith("before: who lives") and heads[1].startswith("after: who lives")
    clean(page)


def test_the_side_says_the_room_that_a_policy_has(open_page):
    trace = open_trace(DATA / "gpu" / "constructorsun_codeloc.d2.trace")
    objects = objects_of(trace, 0)
    shown = placed_map(trace, 0, "pytorch", objects, name="pytorch")
    room = room_of(shown, objects)
    page = open_page(Page("x").add(HeapMaps("Where?", objects, [shown], moment=room.tick)).render())
    assert page.run(f"{MAP}.view.moment") == room.tick
    text = page.wait_for("document.querySelector('.living')?.textContent")
    holes = page.run(
        f"(() => {{ const side = {MAP}.side; const {{ holes, held }} = side.constructor.holes({MAP}, {room.tick}); "
        "return [Math.max(...holes.map((one) => one[1])), held.reduce((sum, [from, to]) => sum + to - from, 0), "
        "holes.reduce((sum, one) => sum + one[1], 0)]; })()"
    )
    assert holes == [room.largest, room.held, room.free]
    assert "the largest request that still fits" in text
    assert page.run(f"[...{MAP}.ids].includes(0xfffffffe)")  # held and free is seen
    clean(page)


def test_the_page_of_a_failed_request_opens_at_the_failure(open_page, tmp_path):
    path = tmp_path / "failed.pickle"
    path.write_bytes(pickle.dumps(snapshot(combed()), protocol=4))
    answer = explain(str(path), workers=1, samples=100, find_caps=False)
    asked = workload_of(str(path), 0, up_to_failure=answer["failure"]["event"])
    page = open_page(oom_page(answer, open_trace(path), asked).render())
    event = answer["failure"]["event"]
    assert page.run("memoirPage.panels[0].maps.map((map) => map.view.moment)") == [event, event]
    text = page.wait_for("document.querySelector('.living')?.textContent")
    assert "40 objects, 200 MiB" in text
    assert "as recorded: held 800 MiB; the largest request that still fits: 15.0 MiB" in text
    held, fits = re.search(
        r"(?:memoir|guided): serves it: held ([\d.]+) MiB; the largest request that still fits: ([\d.]+) MiB",
        text,
    ).groups()
    assert 200 <= float(held) <= 800 and float(fits) >= 64  # what was asked for
    clean(page)


def test_a_model_opens(open_page):
    from memoir.train import read_model
    from memoir.train.summary import summarize

    path = DATA / "small.v1.model"
    summary = summarize(read_model(path), path.stat().st_size)
    page = open_page(model_page("small.model", summary).render())
    samples = sum(row["samples"] for row in summary["sites"])
    flame = "memoirPage.panels[0]"
    assert page.run(f"{flame}.root.value") == samples
    assert f"{samples} samples" in page.run(f"{flame}.tip.textContent")
    clean(page)


def test_paper_has_the_map_and_what_lies_over_it(open_page):
    """Paper is white under every canvas, so that one over the map would hide it."""
    page = open_page(page_of(DATA / "resnet18.trace"))
    page.media(kind="print")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run(f"getComputedStyle({MAP}.overlay).visibility") == "hidden"
    page.run(f"{MAP}.view.setMoment({MAP}.set.ticks / 2)")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.run(f"{MAP}.draw(false)")  # as when paper has another width
    middle = f"Math.floor({MAP}.width / 2)"
    row = page.run(f"[...{MAP}.canvas.getContext('2d').getImageData({middle} - 9, 5, 14, 1).data]")
    pixels = [row[i : i + 3] for i in range(0, len(row), 4)]
    # The moment, in black; a browser rounds its place to one of the pixels around the middle.
    assert min(map(max, pixels[5:])) < 40 < max(pixels[0]), pixels
    page.media()
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run(f"getComputedStyle({MAP}.overlay).visibility") == "visible"
    clean(page)


def test_shaded_cells_can_be_read(open_page):
    rows = [("a", "1", "2"), ("b", "3", "4")]
    page = open_page(
        Page("x").add(Table("What?", ("n", "x", "y"), rows, shades=[(0, 1, 0), (0, 0, 0.1)])).render()
    )
    colours = page.run(
        "[...document.querySelectorAll('td')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) == 3 and colours[1] == colours[2]
    clean(page)
