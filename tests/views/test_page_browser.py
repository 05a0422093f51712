# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser with the network cut: it draws what is so, says the numbers of --json, and survives what
strangers write into names."""

import base64
import hashlib
import json
import os

import numpy as np
import pytest
from browser import BrowserError
from memoir._core import TraceWriter, child_site
from memoir.traces.files import open_trace
from memoir.views.page import Flame, HeapMaps, Lifetimes, Lines, Map, ObjectSet, Page, Series, SiteTree, Table
from memoir.views.trace_summary import summarize
from pages import DATA, drawn_by_numpy, map_page, page_of, random_objects

GOLDENS = DATA / "page" / "pictures.json"
pytestmark = pytest.mark.full  # a browser takes its time on a busy machine

MAP = "memoirPage.panels.find((panel) => panel.maps).maps[0]"


def sized(page, width, height, which=MAP):
    """Draws a map at this size, to the end."""
    page.run(
        f"(() => {{ const m = {which}; m.canvas.style.width = '{width}px'; m.canvas.style.height = '{height}px'; "
        "m.draw(false); })()"
    )


def ids_of(page, width, height, which=MAP):
    sized(page, width, height, which)
    text = page.run(
        f"(() => {{ const b = new Uint8Array({which}.ids.buffer); let s = ''; "
        "for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode(...b.subarray(i, i + 8192)); "
        "return btoa(s); })()"
    )
    return np.frombuffer(base64.b64decode(text), np.uint32).reshape(height, width)


def pixels_of(page, width, height):
    sized(page, width, height)
    text = page.run(
        f"(() => {{ const b = {MAP}.image.data; let s = ''; "
        "for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode(...b.subarray(i, i + 8192)); "
        "return btoa(s); })()"
    )
    return base64.b64decode(text)


def clean(page):
    """It drew, asked nobody for anything, and nothing was thrown or refused."""
    page.browser.listen(0.05)
    assert page.run("document.documentElement.dataset.ready") == "yes", page.run(
        "document.getElementById('problem').textContent"
    )
    assert page.complaints() == []
    assert [one for one in page.requests() if not one.startswith("file:")] == []
    assert len(page.requests()) == 1


@pytest.mark.parametrize(
    "name", ["resnet18.trace", "small.v1.trace", "snapshot.pickle", "gpu/constructorsun_codeloc.d2.trace"]
)
def test_a_trace_opens_with_the_network_cut(open_page, name):
    page = open_page(page_of(DATA / name))
    clean(page)
    assert page.run("document.querySelectorAll('canvas').length") >= 3
    assert page.run("[...document.querySelectorAll('h2')].every((one) => one.textContent.endsWith('?'))")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_map_is_what_numpy_draws_by_the_same_rule(open_page, seed):
    objects, addresses = random_objects(1500, seed)
    page = open_page(map_page(objects, addresses))
    low = addresses.astype(np.int64)
    spans = page.run(f"{MAP}.spans.length")
    assert spans == 1
    low = low - low.min()
    height = int((low + objects.size).max())
    whole = (0, objects.ticks, 0, height)
    views = [whole, (1000, 1400, height // 3, height // 2), (3999, 4000, 0, 1000)]
    for view in views:
        page.run(
            f"(() => {{ const v = {MAP}.view; v.setTimes({view[0]}, {view[1]}); "
            f"v.setAddresses({view[2]}, {view[3]}); }})()"
        )
        seen = page.run(f"(() => {{ const v = {MAP}.view; return [v.t0, v.t1, v.a0, v.a1]; }})()")
        wanted = drawn_by_numpy(objects.born, objects.died, low, objects.size, 640, 300, seen)
        assert np.array_equal(ids_of(page, 640, 300), wanted), view
    clean(page)


def test_pictures_are_the_goldens_to_the_byte(open_page):
    """MEMOIR_REWRITE_GOLDENS=1 writes them again, where a picture is meant to be another."""
    found = {}
    for name in ("resnet18.trace", "gpu/constructorsun_codeloc.d2.trace", "gpu/gpt2m_varlen.trace"):
        page = open_page(page_of(DATA / name))
        found[name] = hashlib.sha256(pixels_of(page, 600, 300)).hexdigest()
    if os.environ.get("MEMOIR_REWRITE_GOLDENS"):
        GOLDENS.parent.mkdir(exist_ok=True)
        GOLDENS.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(GOLDENS.read_text())


def test_many_objects_are_merged_only_while_a_gesture_goes_on(open_page):
    objects, addresses = random_objects(90_000, 3, ticks=150)
    objects.size = objects.size // 2048 + 1
    page = open_page(map_page(objects, addresses))
    exact = ids_of(page, 500, 250)
    assert page.run(f"{MAP}.found.drawn") == 90_000
    page.run(f"(() => {{ {MAP}.raster.makeLevels(); {MAP}.draw(true); }})()")
    merged = page.run(f"{MAP}.found.drawn")
    assert merged < 70_000
    rough = np.frombuffer(
        base64.b64decode(
            page.run(
                f"(() => {{ const b = new Uint8Array({MAP}.ids.buffer); let s = ''; for (let i = 0; i < b.length; i += 8192) "
                "s += String.fromCharCode(...b.subarray(i, i + 8192)); return btoa(s); })()"
            )
        ),
        np.uint32,
    ).reshape(exact.shape)
    assert ((rough == 0xFFFFFFFF) == (exact == 0xFFFFFFFF)).mean() > 0.98  # nothing seen goes away
    page.run(f"(() => {{ {MAP}.view.zoom(2, 2, 0.5, 0.5); {MAP}.view.reset(); {MAP}.view.pan(0, 0); }})()")
    page.wait_for(f"{MAP}.found.drawn === 90_000")  # exact again, soon after
    clean(page)


def test_hover_and_click_say_what_json_says(open_page):
    path = DATA / "resnet18.trace"
    summary = summarize(open_trace(path))
    page = open_page(page_of(path), height=1200)
    peak = summary["peak"]
    found = page.run(
        f"(() => {{ const s = {MAP}.set; const l = s.livingAt(s.peakTick, 1000); "
        "return [s.peak, s.peakTick, l.all, l.bytes]; })()"
    )
    assert found == [peak["bytes"], peak["event"], peak["objects"], peak["bytes"]]
    text = page.wait_for("document.querySelector('.living')?.textContent")
    assert f"{peak['objects']} objects" in text and f"event {peak['event']}" in text
    # Click the largest object that lives at the peak, where it is drawn.
    where = (
        f"(() => {{ const m = {MAP}; const s = m.set; const i = s.livingAt(s.peakTick, 1).objects[0]; "
        "const v = m.view; m.canvas.scrollIntoView(); const c = m.canvas.getBoundingClientRect(); "
        "const x = c.left + ((s.born[i] + s.died[i]) / 2 - v.t0) / (v.t1 - v.t0) * c.width; "
        "const y = c.bottom - (m.low[i] + s.size[i] / 2 - v.a0) / (v.a1 - v.a0) * c.height; return [x, y, i]; })()"
    )
    for turn in range(10):  # on a busy machine the page may still move under the pointer
        x, y, i = page.run(where)
        page.move(x + turn % 2 / 4, y)
        try:
            tip = page.wait_for("document.querySelector('.tip:not([hidden])')?.textContent", seconds=3)
            break
        except BrowserError:
            assert turn < 9
    largest = max(json.loads(page.run(f"JSON.stringify([...{MAP}.set.size].filter((_, k) => k === {i}))")))
    assert f"{largest / 1024:.0f} KiB" in tip and "aten::" in tip
    page.click(x, y)
    pinned = page.wait_for("document.querySelector('.pinned')?.textContent")
    assert f"{largest:,} bytes" in pinned
    chain = page.run("[...document.querySelectorAll('.stack li')].map((one) => one.textContent)")
    assert " > ".join(chain[::-1]) in {row["chain"] for row in summary["chains"]}
    assert page.run("memoirPage.panels[0].pinnedSite") >= 0
    clean(page)


def test_the_flame_graph_adds_up_to_the_summary(open_page):
    path = DATA / "resnet18.trace"
    summary = summarize(open_trace(path))
    page = open_page(page_of(path))
    flame = "memoirPage.panels.find((panel) => panel.functions)"
    page.run(f"{flame}.set_({{ measure: 'allocated' }})")
    own = dict(page.run(f"{flame}.functions.map((one) => [{flame}.set.frames[one.frame], one.self])"))
    assert {row["operator"]: row["bytes"] for row in summary["operators"]}.items() <= own.items()
    assert page.run(f"{flame}.root.value") == summary["allocations"]["bytes"]
    outer = dict(
        page.run(f"[...{flame}.root.children.values()].map((one) => [{flame}.name(one), one.value])")
    )
    assert {row["operator"]: row["bytes"] for row in summary["outermost_operators"]}.items() <= outer.items()
    page.run(f"{flame}.set_({{ measure: 'count', bottomUp: true }})")
    assert page.run(f"{flame}.root.value") == summary["allocations"]["count"]
    inner = dict(
        page.run(f"[...{flame}.root.children.values()].map((one) => [{flame}.name(one), one.value])")
    )
    assert {row["operator"]: row["count"] for row in summary["operators"]}.items() <= inner.items()


def test_recursion_is_counted_once(open_page):
    tree = SiteTree()
    sites = [tree.add_stack(["main", "walk", "walk", "walk"]), tree.add_stack(["main", "walk"])]
    objects = ObjectSet(
        np.array([0, 1]), np.array([4, 4]), np.array([100, 10]), 4, "step", tree, {"site": np.array(sites)}
    )
    page = open_page(Page("recursion").add(Flame("Who allocates?", objects)).render())
    rows = page.run(
        "memoirPage.panels[0].functions.map((one) => [memoirPage.panels[0].set.frames[one.frame], one.self, one.total])"
    )
    assert sorted(rows) == [["main", 0, 110], ["walk", 110, 110]]


HOSTILE = (
    "<script>window.caught = 1</script>",
    "</script><script>window.caught = 2</script>",
    "<img src=x onerror='window.caught = 3'>",
    '"><svg onload="window.caught = 4">',
    "<style>*{display:none}</style>",
    "javascript:window.caught=5",
    "<iframe srcdoc='<script>parent.caught=6</script>'>",
    "<!-- <script>",
    "]]>",
    "${window.caught = 7}",
    "$x^$ $y_$",
    "\u202eright to left\u0000\u0007",
    "<a href='http://example.org/' autofocus onfocus='window.caught=8'>",
    "x" * 100_000,
)


def hostile_trace():
    writer = TraceWriter()
    writer.set_time(0)
    for number, name in enumerate(HOSTILE):
        parent = child_site(0, name[:1000])
        site = child_site(parent, name[:3000] + str(number))
        writer.define_site(parent, 0, name[:1000])
        writer.define_site(site, parent, name[:3000] + str(number))
        writer.set_time(number + 1)
        writer.allocate(number + 1, site, 4096 * (number + 1))
    writer.meta("model", "<script>window.caught = 9</script> $a$")
    for name in HOSTILE[:8]:
        writer.meta(name[:40].replace("=", "-") or "x", name)
    return writer.bytes()


def test_names_of_strangers_are_text(open_page, tmp_path):
    path = tmp_path / "<b onmouseover=alert(1)>.trace"
    path.write_bytes(hostile_trace())
    html = page_of(path)
    assert len(html) < 1 << 20  # overlong names are cut
    page = open_page(html, height=1500)
    page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for mode in page.run(
        "[...document.querySelectorAll('.controls select')][0].options.length ? ['site', 'root', 'size'] : []"
    ):
        page.run(f"memoirPage.panels[0].setMode('{mode}')")
    page.run(f"memoirPage.panels[0].pin({MAP}, 3)")
    page.run(f"{MAP}.showTip(2, 0.5, 0.5)")
    page.run("memoirPage.panels[0].search('<script>')")
    clean(page)
    assert page.run("window.caught === undefined")
    foreign = (
        "script:not([type]), main img, main iframe, main svg, main style, main a, main script, header script"
    )
    assert page.run(f"document.querySelectorAll('{foreign}').length") == 1  # memoir's own
    assert page.run("document.querySelector('h1').textContent").startswith("<b onmouseover")


def test_its_policy_refuses_what_names_would_need(open_page):
    page = open_page(page_of(DATA / "resnet18.trace"))
    page.run(
        "(() => { const d = document.createElement('div'); "
        'd.innerHTML = \'<img src=x onerror="window.caught = 1"><p style="color:red" onclick="1">x</p>\'; '
        "document.body.append(d); const s = document.createElement('script'); s.textContent = 'window.caught = 2'; "
        "document.body.append(s); })()"
    )
    refused = page.run("fetch('https://example.org/').then(() => 'answered', () => 'refused')")
    page.browser.listen(0.2)
    assert refused == "refused"
    assert page.run("window.caught === undefined")
    assert any("Content Security Policy" in one for one in page.complaints())


@pytest.mark.parametrize("width, height", [(320, 480), (120, 80), (40, 40)])
def test_small_screens_touch_and_pinch_do_not_throw(open_page, width, height):
    page = open_page(
        page_of(DATA / "gpu" / "constructorsun_codeloc.d2.trace"), width=width, height=height, mobile=True
    )
    box = page.run(
        f"(() => {{ {MAP}.canvas.scrollIntoView(); const b = {MAP}.canvas.getBoundingClientRect(); "
        "return [b.left + b.width / 2, b.top + Math.min(b.height, innerHeight) / 2]; })()"
    )
    x, y = box
    page.touch("touchStart", (x, y))
    page.touch("touchMove", (x + 10, y))
    page.touch("touchStart", (x, y), (x + 10, y + 10))
    page.touch("touchMove", (x - 10, y - 5), (x + 20, y + 20))
    page.touch("touchMove", (x, y), (x, y))
    page.touch("touchEnd")
    page.run(f"{MAP}.view.zoom(1e30, 1e30, 0.5, 0.5)")
    page.run(f"{MAP}.view.zoom(1e-30, 1e-30, 0, 1)")
    page.run(
        f"(() => {{ const m = {MAP}; m.canvas.style.width = '1px'; m.draw(false); m.canvas.style.width = '3px'; "
        "m.draw(false); m.canvas.style.width = ''; m.draw(false); })()"
    )
    page.browser.listen(0.2)
    clean(page)
    assert page.run("document.documentElement.scrollWidth") <= max(width, 200)


def test_keys_pan_zoom_and_pin(open_page):
    page = open_page(page_of(DATA / "resnet18.trace"))
    page.run(f"{MAP}.canvas.focus()")
    whole = page.run(f"{MAP}.view.t1 - {MAP}.view.t0")
    page.key("+")
    assert page.run(f"{MAP}.view.t1 - {MAP}.view.t0") < whole
    before = page.run(f"{MAP}.view.t0")
    page.key("ArrowRight")
    assert page.run(f"{MAP}.view.t0") > before
    page.key("Home")
    assert page.run(f"{MAP}.view.isWhole()")
    page.key("n")
    page.key("Enter")
    assert page.run("document.querySelector('.pinned h3').textContent") == "Object 0"
    page.wait_for("document.getElementById('readout').textContent.startsWith('Object 0')")
    page.key("]")
    assert page.run(f"{MAP}.view.moment") == page.run(f"{MAP}.set.peakTick + 1")
    clean(page)


def test_the_time_axis_is_events_or_time(open_page):
    page = open_page(page_of(DATA / "resnet18.trace"))
    trace = open_trace(DATA / "resnet18.trace")
    page.run(f"{MAP}.setInTime(true)")
    assert page.run(f"{MAP}.view.span") == int(trace.events["time"][-1])
    assert page.run(f"{MAP}.tickOf({MAP}.at(100))") >= 100
    page.run(f"{MAP}.setInTime(false)")
    assert page.run(f"{MAP}.view.span") == len(trace.events)
    clean(page)


def test_every_way_to_colour_draws(open_page):
    objects, addresses = random_objects(500, 6)
    tree = SiteTree()
    sites = np.array([tree.add_stack(["main", f"f{k}"]) for k in range(20)])
    random = np.random.default_rng(6)
    objects.sites = tree
    objects.columns |= {
        "site": sites[random.integers(0, 20, 500)],
        "stream": random.integers(0, 2, 500) * 2**45,
    }
    objects.columns |= {"lifetime": random.integers(0, 5, 500), "predicted": random.integers(0, 3, 500)}
    objects.columns["pass"] = random.integers(0, 3, 500)
    objects.lifetimes = ("at once", "in its pass", "across", "never", "before")
    objects.predictions = ("as predicted", "longer", "shorter")
    objects.passes = [{"name": f"pass {k}", "begin": 2000 * k, "end": 2000 * k + 2000} for k in range(2)]
    page = open_page(map_page(objects, addresses))
    panel = "memoirPage.panels[0]"
    modes = page.run("[...document.querySelector('.controls select').options].map((one) => one.value)")
    wanted = {"site", "operator", "root", "size", "lifetime", "pass", "thread", "stream", "predicted"}
    assert set(modes) == wanted
    for mode in modes:
        page.run(f"{panel}.setMode('{mode}')")
        shown = page.run("[...document.querySelectorAll('.legend .entry')].length")
        assert shown >= (1 if mode == "root" else 2), mode
    clean(page)


def test_two_maps_are_linked_in_time(open_page):
    objects, addresses = random_objects(300, 5)
    page = open_page(map_page(objects, addresses, addresses[::-1].copy()))
    other = "memoirPage.panels[0].maps[1]"
    page.run(f"{MAP}.view.zoom(4, 1, 0.3, 0.5)")
    assert page.run(f"[{MAP}.view.t0, {MAP}.view.t1]") == page.run(f"[{other}.view.t0, {other}.view.t1]")
    page.run(f"memoirPage.panels[0].hovered({MAP}, 7, 0.5, 0.5)")
    assert page.run(f"{other}.marked") == 7
    page.run(f"memoirPage.panels[0].pin({other}, 9)")
    assert page.run(f"{MAP}.pinned") == 9
    clean(page)


def test_dark_print_and_a_sharp_screen(open_page):
    html = page_of(DATA / "resnet18.trace")
    dark = open_page(html, dark=True)
    assert dark.run("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#14181f"
    assert dark.run(f"{MAP}.image.data[0]") != 255 or dark.run(f"{MAP}.ids[0]") != 0xFFFFFFFF
    sharp = open_page(html, ratio=2)
    assert sharp.run(f"{MAP}.width") == 2 * sharp.run(f"{MAP}.canvas.clientWidth")
    assert sharp.printed().startswith(b"%PDF")
    dark.run("window.dispatchEvent(new Event('beforeprint'))")  # paper is white
    white = dark.run(f"[...{MAP}.ids].indexOf(0xffffffff)")
    assert dark.run(f"[...{MAP}.image.data.slice(4 * {white}, 4 * {white} + 3)]") == [255, 255, 255]
    dark.run("window.dispatchEvent(new Event('afterprint'))")
    assert dark.run(f"[...{MAP}.image.data.slice(4 * {white}, 4 * {white} + 3)]") == [20, 24, 31]
    clean(dark)
    clean(sharp)


def test_it_can_be_read_without_its_pictures(open_page):
    page = open_page(page_of(DATA / "resnet18.trace"))
    unnamed = page.run(
        "[...document.querySelectorAll('canvas:not([aria-hidden]), input, select, button')].filter((one) => "
        "!(one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label'))).length"
    )
    assert unnamed == 0
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('main table').length") >= 4
    assert page.run("document.querySelectorAll('th:not([scope])').length") == 0


def test_curves_of_a_simulation_and_panels_that_hold_nothing(open_page):
    nothing = ObjectSet(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int), 0, "step")
    page = Page("empty").add(
        Lines(
            "What was held?",
            "event",
            [Series("a", [0, 1], [5, 6], "steps"), Series("b", [], [])],
            [("floor", 5.0)],
        ),
        HeapMaps("Where?", nothing, [Map("none", np.zeros(0, np.uint64))]),
        Lifetimes("How long?", nothing),
        Table("What?", ("name",), []),
    )
    opened = open_page(page.render())
    clean(opened)


def test_a_lifetime_profile_opens(open_page):
    from memoir.lifetimes import Lifetimes
    from memoir.lifetimes.summary import summarize as summarize_profile
    from memoir.views.page.of_lifetimes import lifetimes_page

    profile = Lifetimes.open(DATA / "small.v1.lifetimes")
    page = open_page(lifetimes_page("small", profile, summarize_profile(profile)).render())
    clean(page)
    flame = "memoirPage.panels[0]"
    assert page.run(f"{flame}.root.value") == pytest.approx(profile.bytes().sum(), rel=1e-3, abs=50)
    cells = page.run("memoirPage.panels[1].cells.reduce((sum, cell) => sum + cell.bytes, 0)")
    assert cells == page.run(f"{flame}.root.value")
