# SPDX-License-Identifier: Apache-2.0
"""Every figure of every page is that of --json, or follows from the file in a few lines here: whole pages, and pages so
small that objects are merged, times rounded and stacks cut."""

import json
import re
from collections import Counter, defaultdict
from math import floor, log2, log10

import numpy as np
import pytest
from memoir._core import TraceWriter, child_site
from memoir.base.quantities import bytes_text
from memoir.cli.parts.show_trace import summary_of
from memoir.lifetimes import Lifetimes
from memoir.lifetimes.summary import summarize as profile_summary
from memoir.simulation import Task, simulate_task
from memoir.traces.files import open_trace
from memoir.train import read_model
from memoir.train.summary import summarize as model_summary
from memoir.views.page.objects import objects_of
from memoir.views.page.of_diff import trace_diff_page
from memoir.views.page.of_lifetimes import lifetimes_page
from memoir.views.page.of_model import model_page
from memoir.views.page.of_simulation import simulation_page
from memoir.views.page.of_trace import trace_page
from memoir.views.trace_diff import diff_traces
from memoir.views.trace_summary import summarize
from pages import DATA
from test_page_browser import MAP, clean

pytestmark = pytest.mark.full  # a browser takes its time on a busy machine


def table(page, caption):
    """The rows of a table that the script made."""
    return page.run(
        "[...document.querySelectorAll('table')].filter((one) => one.caption?.textContent.startsWith("
        f"{json.dumps(caption)})).map((one) => [...one.tBodies[0].rows].map((row) => [...row.cells].map("
        "(cell) => cell.textContent)))[0]"
    )


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else ""


class Truth:
    """Of a trace, object by object in plain Python."""

    def __init__(self, trace, device=None):
        found = objects_of(trace, device)
        time = trace.events["time"].tolist()
        time.append(time[-1])
        self.ticks = len(trace.events)
        self.rows = []
        for born, died, size, site in zip(
            found.born.tolist(),
            found.died.tolist(),
            found.size.tolist(),
            found.columns["site"].tolist(),
            strict=True,
        ):
            life = None if died >= self.ticks else time[died] - time[born]
            self.rows.append((born, died, size, life, tuple(found.sites.chain(site))))
        change = defaultdict(int)
        count = defaultdict(int)
        for born, died, size, *_ in self.rows:
            change[born] += size
            change[died] -= size
            count[born] += 1
            count[died] -= 1
        self.live, self.count, now, many = [], [], 0, 0
        for tick in range(self.ticks):
            now, many = now + change[tick], many + count[tick]
            self.live.append(now)
            self.count.append(many)
        self.peak = max(self.live, default=0)
        self.peak_tick = self.live.index(self.peak)

    def lives_at(self, row, tick):
        return row[0] <= tick < row[1]

    def measure(self, name):
        """Of each whole stack."""
        sums = Counter()
        for row in self.rows:
            born, died, size, life, chain = row
            amount = {
                "peak": size if self.lives_at(row, self.peak_tick) else 0,
                "allocated": size,
                "count": 1,
                "never": size if life is None else 0,
                "temporary": size if life is not None and died - born <= 1 else 0,
            }[name]
            if amount:
                sums[chain] += amount
        return sums

    def frames(self, name, with_all=True):
        """Rows of the table of a flame graph."""
        own, total, whole = Counter(), Counter(), 0
        for chain, amount in self.measure(name).items():
            own[chain[-1]] += amount
            whole += amount
            for frame in set(chain):
                total[frame] += amount
        text = (lambda n: f"{n:,} allocation{'s' * (n != 1)}") if name == "count" else bytes_text
        return {
            (
                frame,
                text(own[frame]),
                percent(own[frame], whole) or "",
                *([text(total[frame])] if with_all else []),
            )
            for frame in total
        }

    def cells(self):
        """Objects and bytes by (lifetime, size), numbered as the heat map does."""
        cells = defaultdict(lambda: [0, 0])
        for _, _, size, life, _ in self.rows:
            x = -1 if life is None else floor(2 * log10(max(life, 1)) + 1e-9)
            cell = cells[x, floor(log2(max(size, 1)) / 2)]
            cell[0] += 1
            cell[1] += size
        return {f"{x} {y}": tuple(cell) for (x, y), cell in cells.items()}


def many_objects(path, count=20_000, seed=3):
    """A program of many small objects of some sites, and a few large ones, all sizes and lifetimes apart."""
    random = np.random.default_rng(seed)
    writer = TraceWriter()
    writer.set_time(0)
    sites = []
    for number in range(12):
        above = 0
        for name in ("main", f"part{number % 3}", f"work{number % 4}", f"get{number}"):
            site = child_site(above, name)
            writer.define_site(site, above, name)
            above = site
        sites.append(above)
    waiting: dict[int, list[int]] = defaultdict(list)
    size = (2 ** random.uniform(4, 13, count)).astype(int)
    size[random.integers(0, count, 40)] = 3 << 20
    life = np.minimum(random.pareto(0.5, count) * 3 + 1, 2 * count).astype(int)
    site, step, time = random.integers(0, 12, count), random.integers(1, 5000, 3 * count), 0
    for number in range(count):
        for other in waiting.pop(number, ()):
            time += int(step[other])
            writer.set_time(time)
            writer.free(other)
        time += int(step[count + number])
        writer.set_time(time)
        writer.allocate(number + 1, sites[site[number]], int(size[number]))
        waiting[number + int(life[number])].append(number + 1)
    path.write_bytes(writer.bytes())
    return path


@pytest.fixture(scope="module")
def trace_of_many(tmp_path_factory):
    return many_objects(tmp_path_factory.mktemp("many") / "many.trace")


def check_flame(page, truth, panel):
    flame = f"memoirPage.panels[{panel}]"
    cut = page.run(f"{flame}.set.cut")
    for name in ("peak", "allocated", "count", "never", "temporary"):
        page.run(f"{flame}.set_({{ measure: '{name}' }})")
        rows = page.run(
            f"[...{flame}.table.querySelector('tbody').rows].map((row) => [...row.cells].map((one) => one.textContent))"
        )
        wanted = truth.frames(name, not cut)
        if not cut:
            assert {tuple(row) for row in rows} <= wanted, name
            assert len(rows) == min(len(wanted), 100)
        else:
            own = {row[:3] for row in wanted}
            shown = [tuple(row) for row in rows if not row[0].startswith("(o")]
            assert set(shown) <= own and shown, name
        whole = sum(truth.measure(name).values())
        assert page.run(f"{flame}.root.value") == whole


def check_lifetimes(page, truth, panel):
    found = page.run(
        f"memoirPage.panels[{panel}].cells.map((one) => [`${{one.x}} ${{one.y}}`, [one.count, one.bytes]])"
    )
    assert {key: tuple(cell) for key, cell in found} == truth.cells()


def check_moment(page, truth, tick):
    """What is said of the moment that is shown."""
    note = page.wait_for(
        f"document.querySelector('.living h3').textContent.includes('event {tick:,})') && "
        "document.querySelector('.living').innerText"
    )
    count, live = truth.count[tick], truth.live[tick]
    assert f"{count:,} object{'s' * (count != 1)}, {bytes_text(live)}" in note, (tick, count, live)
    living = [row for row in truth.rows if truth.lives_at(row, tick)]
    if merged := re.search(r"; ([\d,]+) of them, ([\d.]+ \w+), are merged", note):
        many = int(merged[1].replace(",", ""))
        assert 0 < many < count
    rows = table(page, "Objects that live at this moment")
    wanted = Counter((bytes_text(row[2]), percent(row[2], live)) for row in living)
    shown = Counter((row[1], row[2]) for row in rows)
    assert not shown - wanted
    if not merged:
        assert len(rows) == min(len(living), 200)
        largest = Counter(bytes_text(row[2]) for row in sorted(living, key=lambda row: -row[2])[:200])
        assert Counter(row[1] for row in rows) == largest
    elif len(rows) < 200:
        apart = page.run(f"{MAP}.set.livingAt({tick}, 1e9).merged")
        rest = live - sum(page.run(f"{MAP}.set.livingAt({tick}, 1e9).objects.map((i) => {MAP}.set.size[i])"))
        assert apart == {"count": count - len(rows), "bytes": rest}


def check_legends(page, truth):
    panel = "memoirPage.panels.find((panel) => panel.maps)"
    at_peak = truth.measure("peak")
    page.run(f"{panel}.setMode('operator')")
    legend = page.run(f"{MAP}.set.colourings.get('operator').legend.map((one) => [one.name, one.note])")
    by_leaf = Counter()
    for chain, size in at_peak.items():
        by_leaf[chain[-1]] += size
    whole = 0
    for name, note in legend:
        if not name.endswith(("other", "others")) and not name.startswith("("):
            assert note == f"{bytes_text(by_leaf[name])} at the peak", name
        whole += 1
    assert whole == min(len({chain[-1] for chain in truth.measure("allocated")}), 8) + (
        legend[-1][0].endswith(("other", "others"))
    )
    page.run(f"{panel}.setMode('lifetime')")
    legend = dict(page.run(f"{MAP}.set.colourings.get('lifetime').legend.map((one) => [one.name, one.note])"))
    never = [row for row in truth.rows if row[3] is None]
    objects = f"{len(never):,} object{'s' * (len(never) != 1)}"
    assert legend["never freed"] == (
        f"{objects}, {bytes_text(sum(row[2] for row in never))}" if never else ""
    )


def check_search(page, truth):
    page.run("memoirPage.panels.find((panel) => panel.maps).search('get1')")
    mine = [row for row in truth.rows if any("get1" in frame for frame in row[4])]
    expected = f"{len(mine):,} objects of {bytes_text(sum(row[2] for row in mine))} found."
    assert page.run(f"{MAP}.status.textContent") == expected


@pytest.mark.parametrize(
    "budget", [None, 400_000, 150_000, 60_000, 12_000], ids=["whole", "rounded", "merged", "more", "least"]
)
def test_what_is_given_up_changes_no_figure(open_page, trace_of_many, budget):
    trace = open_trace(trace_of_many)
    truth, summary = Truth(trace), summarize(trace)
    made = trace_page("many", trace, summary)
    if budget:
        made._budget = budget
    page = open_page(made.render(), height=1400)
    clean(page)
    merged, cut = page.run(f"[{MAP}.set.merged, {MAP}.set.cut]")
    assert merged == (budget is not None and budget < 400_000)
    assert summary["peak"]["bytes"] == truth.peak and summary["peak"]["event"] == truth.peak_tick
    assert page.run(f"[{MAP}.set.peak, {MAP}.set.peakTick]") == [truth.peak, truth.peak_tick]
    check_moment(page, truth, truth.peak_tick)
    # Wherever the cursor is put, it stands on a moment of which all is known.
    seen = set()
    for part in (0.001, 0.2, 0.43, 0.7, 0.999):
        page.run(f"{MAP}.view.setMoment({part} * {truth.ticks})")
        seen.add(tick := page.run(f"{MAP}.momentTick()"))
        check_moment(page, truth, tick)
    assert len(seen) == 5
    page.run(f"{MAP}.view.setMoment(0)")
    page.run(f"{MAP}.key(']')()")
    after = page.run(f"{MAP}.momentTick()")
    assert after > 0
    check_moment(page, truth, after)
    # By time, where many events have one: the keys go from moment to moment, and the peak is the peak.
    page.run(f"{MAP}.setInTime(true)")
    page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Peak').click()")
    check_moment(page, truth, truth.peak_tick)
    page.run(f"{MAP}.view.setMoment(0.6 * {MAP}.view.span)")
    here = page.run(f"{MAP}.momentTick()")
    check_moment(page, truth, here)
    steps = [here]
    for key in "]]][":
        page.run(f"{MAP}.key('{key}')()")
        steps.append(page.run(f"{MAP}.momentTick()"))
    assert steps[0] < steps[1] < steps[2] < steps[3] and steps[4] == steps[2]
    check_moment(page, truth, steps[4])
    page.run(f"{MAP}.setInTime(false)")
    assert page.run(f"{MAP}.momentTick()") == steps[4]
    if merged:  # all of them, without looking
        ticks, live, count, time = page.run(
            f"['tick', 'bytes', 'count', 'time'].map((name) => [...{MAP}.set.moments[name]])"
        )
        assert live == [truth.live[tick] for tick in ticks] and count == [truth.count[tick] for tick in ticks]
        assert time == trace.events["time"][ticks].tolist() and len(ticks) >= 100
        for place in range(0, len(ticks), len(ticks) // 7):  # as `memoir show --at` has it
            moment = summary_of(trace, "both", at=time[place])["native"]["moment"]
            assert (moment["count"], moment["bytes"]) == (count[place], live[place])
        assert "drawn as" in page.run("document.querySelector('header').innerText")
    check_flame(page, truth, 1)
    check_lifetimes(page, truth, 2)
    check_legends(page, truth)
    if not cut:
        check_search(page, truth)
    # One object, and one rectangle of several.
    several = page.run(f"[...{MAP}.set.bytes.keys()].find((i) => {MAP}.set.countOf(i) > 1)")
    assert (several is not None) == merged
    if merged:
        page.run(f"memoirPage.panels[0].pin({MAP}, {several})")
        pinned = page.run("document.querySelector('.pinned').innerText")
        assert "merged objects" in pinned and "lives" not in pinned and "class" not in pinned
    alone = page.run(f"[...{MAP}.set.bytes.keys()].find((i) => {MAP}.set.countOf(i) === 1)")
    page.run(f"memoirPage.panels[0].pin({MAP}, {alone})")
    born, size = page.run(f"[{MAP}.set.born[{alone}], {MAP}.set.size[{alone}]]")
    assert any(row[0] == born and row[2] == size for row in truth.rows)
    assert f"({size:,} bytes)" in page.run("document.querySelector('.pinned').innerText")
    clean(page)


def test_the_panels_of_a_trace(open_page):
    trace = open_trace(DATA / "resnet18.trace")
    truth, summary = Truth(trace), summarize(trace)
    page = open_page(trace_page("resnet18", trace, summary).render(), height=1400)
    check_moment(page, truth, truth.peak_tick)
    check_flame(page, truth, 1)
    check_lifetimes(page, truth, 2)
    check_legends(page, truth)


def test_a_curve_says_the_most_of_a_stretch(open_page):
    """Of a simulation's curves: what is said under the pointer is a point of the timeline, and of which events."""
    path = DATA / "gpu" / "silmont_mem.d0.trace"
    results = [
        simulate_task(Task(str(path), 0, policy, None, samples=20, timed=False))
        for policy in ("pytorch", "span")
    ]
    html = simulation_page([(str(path), results)], "", open_trace).render()
    page = open_page(html)
    panel = "memoirPage.panels.find((panel) => panel.data.series)"
    for row in results:
        events = row["timeline"]["event"]
        for place, event in enumerate(events[:-1]):
            page.run(
                f"(() => {{ const p = {panel}; const {{ x0, x1 }} = p.range(); "
                f"p.hover(66 + (({event} + 0.5 - x0) / (x1 - x0)) * (1000 - 74), 1000); }})()"
            )
            said = page.run(f"{panel}.tip.textContent")
            last = events[place + 1] - 1
            when = f"most in events {event:,} to {last:,}" if last > event else f"event {event:,}"
            assert said.startswith(f"{when} · live: "), said
            assert f"{row['policy']} " in said and bytes_text(row["timeline"]["reserved"][place]) in said


def test_the_samples_of_a_model(open_page):
    summary = model_summary(read_model(DATA / "small.v1.model"), 1)
    page = open_page(model_page("m", summary).render())
    total = sum(row["samples"] for row in summary["sites"])
    assert page.run("memoirPage.panels[0].root.value") == total


def test_a_profile_is_summed_without_rounding(open_page):
    profile = Lifetimes.open(DATA / "small.v1.lifetimes")
    said = profile_summary(profile)
    page = open_page(lifetimes_page("p", profile, said).render())
    flame = "memoirPage.panels[0]"
    found = {}
    for measure in ("allocated", "count", "never"):
        page.run(f"{flame}.set_({{ measure: '{measure}' }})")
        found[measure] = round(page.run(f"{flame}.root.value"))
    estimated = said["estimated"]
    assert found == {
        "allocated": estimated["bytes"],
        "count": estimated["objects"],
        "never": estimated["censored_bytes"],
    }
    cells = page.run("memoirPage.panels[1].cells.reduce((sum, one) => sum + one.count, 0)")
    assert round(cells) == estimated["objects"]


@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("kind", ["trace", "bench", "model", "lifetimes"])
def test_what_scrolls_can_be_reached_and_heads_say_something(
    open_page, memoir_cli, tmp_path, monkeypatch, kind, width
):
    monkeypatch.chdir(tmp_path)
    command = {
        "trace": ("show", DATA / "resnet18.trace", "-o", "x.html"),
        "bench": ("bench", "--from", DATA / "hyperfine-1.15.json", "-o", "."),
        "model": ("show", DATA / "small.v1.model", "--against", DATA / "small.v1.lifetimes", "-o", "x.html"),
        "lifetimes": ("show", DATA / "small.v1.lifetimes", "-o", "x.html"),
    }[kind]
    assert memoir_cli(*command)[0] == 0
    path = tmp_path / ("report.html" if kind == "bench" else "x.html")
    page = open_page(path.read_text(), width=width)
    page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert (
        page.run("[...document.querySelectorAll('th')].filter((one) => !one.textContent.trim()).length") == 0
    )
    lost = page.run(
        "[...document.querySelectorAll('main *, header *')].filter((one) => { const s = getComputedStyle(one); "
        "const wide = one.scrollWidth > one.clientWidth + 1 && /auto|scroll/.test(s.overflowX); "
        "const high = one.scrollHeight > one.clientHeight + 1 && /auto|scroll/.test(s.overflowY); "
        "return (wide || high) && !(one.tabIndex >= 0 && one.getAttribute('aria-label')); })"
        ".map((one) => one.outerHTML.slice(0, 80))"
    )
    assert lost == []
    ids = page.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))


def test_merged_maps_of_two_traces_say_what_each_has(open_page, tmp_path):
    traces = [open_trace(many_objects(tmp_path / f"{seed}.trace", 9000, seed)) for seed in (1, 2)]
    made = trace_diff_page(("a", "b"), traces, diff_traces(*traces))
    made._budget = 90_000
    page = open_page(made.render(), height=1400)
    panel = "memoirPage.panels.find((panel) => panel.maps)"
    assert page.run(f"{panel}.maps.every((map) => map.set.merged)")
    page.run(f"{panel}.maps[0].view.setMoment(6000)")
    ticks = page.run(f"{panel}.maps.map((map) => map.momentTick())")
    truths = [Truth(trace) for trace in traces]
    for truth, tick in zip(truths, ticks, strict=True):
        wanted = f"{truth.count[tick]:,} objects, {bytes_text(truth.live[tick])}"
        page.wait_for(
            "[...document.querySelectorAll('.living')].some((one) => "
            f"one.textContent.includes('event {tick:,}') && one.textContent.includes({json.dumps(wanted)}))"
        )
    page.run(f"{panel}.setMode('operator')")
    legend = page.run(f"{MAP}.set.colourings.get('operator').legend.map((one) => [one.name, one.note])")
    for name, note in legend[:-1]:
        sums = [
            sum(size for chain, size in truth.measure("peak").items() if chain[-1] == name)
            for truth in truths
        ]
        assert note == f"{' → '.join(map(bytes_text, sums))} at the peak"
    clean(page)
