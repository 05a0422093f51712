# SPDX-License-Identifier: Apache-2.0
"""The page as a file: packed columns, the address axis, the budget, the policy. The browser's side is in
test_page_browser.py."""

import base64
import hashlib
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memoir._core import EventKind, Problem, Workload, placements
from memoir.planning import plan
from memoir.traces.files import open_trace
from memoir.views.heap_map import MappedPlan, draw_heap_maps
from memoir.views.page import (
    AddressAxis,
    Flame,
    HeapMaps,
    Map,
    ObjectSet,
    Page,
    Segments,
    SiteTree,
    Table,
    document,
)
from memoir.views.page.addresses import largest_hole
from memoir.views.page.columns import EXACT, pack, unpack
from memoir.views.page.objects import objects_of, recorded_addresses
from memoir.views.page.of_plan import plan_page
from memoir.views.page.of_trace import device_map
from memoir.views.page.sites import LEFT_OUT
from pages import DATA, page_of, random_objects


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), max_size=200))
def test_columns_come_back_as_they_were(values):
    found = unpack(pack(np.array(values, np.uint64)))
    assert found.tolist() == [min(value, EXACT) for value in values]


def test_each_kind_of_column_has_its_coding():
    random = np.random.default_rng(1)
    rising = np.cumsum(random.integers(0, 9, 5000))
    few = 10**12 + random.integers(0, 5, 5000) * 10**9
    assert pack(rising).coding == "delta" and pack(few).coding == "table"
    noise = random.integers(0, 2**32, 5000)
    assert pack(noise).coding == "plain"
    for column in (rising, few, noise):
        assert unpack(pack(column)).tolist() == column.tolist()


ranges = st.lists(st.tuples(st.integers(0, 2**47), st.integers(0, 2**30)), min_size=1, max_size=30)


@settings(deadline=None)
@given(ranges)
def test_the_axis_keeps_the_order_and_the_bytes_of_what_it_shows(found):
    begin = np.array([one[0] for one in found], np.uint64)
    size = np.array([one[1] for one in found], np.uint64)
    axis = AddressAxis.of(begin, size)
    keep = size > 0
    if not keep.any():
        return
    low = axis.place(begin[keep])
    high = axis.place(begin[keep] + size[keep] - np.uint64(1))
    assert (high - low == size[keep].astype(np.int64) - 1).all()  # nothing is cut by a break
    order = np.argsort(begin[keep], kind="stable")
    assert (np.diff(low[order]) >= 0).all()
    assert low.min() >= 0 and high.max() < axis.height


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_hole_is_what_a_byte_by_byte_look_finds(seed):
    random = np.random.default_rng(seed)
    segments = Segments()
    at = 0
    for _ in range(6):
        at += int(random.integers(0, 2)) * int(random.integers(1, 40))
        size = int(random.integers(20, 90))
        segments.add(at, size, 0, 10)
        at += size
    used = np.zeros(at, bool)
    begin, sizes = [], []
    for _ in range(14):
        which = int(random.integers(0, len(segments)))
        size = int(random.integers(1, 12))
        low = segments.address[which] + int(random.integers(0, max(segments.size[which] - size, 1)))
        if low + size <= segments.address[which] + segments.size[which] and not used[low : low + size].any():
            used[low : low + size] = True
            begin.append(low)
            sizes.append(size)
    for joined in (False, True):
        segments.joined = joined
        free = np.zeros(at + 1, int)
        runs, run, owner = [0], 0, -1
        held = np.full(at + 1, -1)
        for k, (low, size) in enumerate(zip(segments.address, segments.size, strict=True)):
            held[low : low + size] = k
        for byte in range(at + 1):
            is_free = held[byte] >= 0 and (byte >= at or not used[byte])
            if is_free and (run == 0 or joined or held[byte] == owner):
                run += 1
            else:
                run = 1 if is_free else 0
            owner = held[byte]
            runs.append(run)
            free[byte] = is_free
        wanted = (max(runs), int(free.sum()))
        assert largest_hole(segments, np.array(begin), np.array(sizes)) == wanted


def test_segments_follow_partial_unmapping():
    kinds = [EventKind.kSegmentMap, EventKind.kSegmentUnmap, EventKind.kSegmentMap, EventKind.kSegmentFree]
    events = np.zeros(4, [("kind", "u1"), ("device", "u2"), ("object", "u8"), ("size", "u8")])
    events["kind"] = kinds
    events["object"], events["size"] = [100, 120, 120, 100], [60, 10, 10, 20]
    found = Segments.of(events, 0)
    rows = sorted(zip(found.address, found.size, found.born, found.died, strict=True))
    assert rows == [(100, 20, 0, 3), (120, 10, 0, 1), (120, 10, 2, 4), (130, 30, 0, 4)]
    assert found.joined


def test_the_file_needs_nobody_and_its_policy_names_what_it_runs():
    html = page_of(DATA / "resnet18.trace")
    body = html[html.index("<body") :]
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?![#"'])""", body[: body.index("<script>")])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    for kind, element in (("script", "script"), ("style", "style")):
        content = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src 'none'" in policy
    assert page_of(DATA / "resnet18.trace") == html  # the same to the byte


def test_a_page_leads_nowhere():
    html = page_of(DATA / "resnet18.trace")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].split("; ")
    assert {"base-uri 'none'", "form-action 'none'", "img-src 'none'", "default-src 'none'"} <= set(policy)
    for path in [
        *Path(document.__file__).parent.rglob("*.js"),
        *Path(document.__file__).parent.rglob("*.py"),
    ]:
        for link in re.findall(r"""href["']?\s*[=:]\s*["']?([^"'\s>]*)""", path.read_text()):
            assert link.startswith("#"), f"{path.name}: {link}"
        # A policy cannot forbid what a script of ours would do: there is none that navigates, opens or submits.
        assert not re.search(
            r"location\s*(\.\w+)?\s*=[^=]|location\.(assign|replace|reload)|\bopen\(.*_blank|\.submit\(|http-equiv=.refresh|<form|<iframe",
            path.read_text(),
        ), path.name


def test_a_table_is_text_and_has_its_heads():
    page = Page("<i>").add(Table("<b>?", ("a", "b"), [("<u>", "&")], "note <x>")).render()
    main = page[page.index("<main") : page.index("</main")]
    assert "&lt;u&gt;" in main and "<u>" not in main and "<b>" not in main and "<x>" not in main
    assert '<th scope="col" class=l>a</th>' in main and '<th scope="row" class="l">' in main


def test_a_page_stays_within_its_budget_and_says_what_it_gave_up():
    objects, addresses = random_objects(60_000, 1, ticks=200_000)
    objects.size = objects.size // 64 + 1
    tree = SiteTree()
    names = [tree.add_stack([f"f{k % 7}", "x" * 3000, f"g{k}"]) for k in range(400)]
    objects.sites = tree
    objects.columns["site"] = np.array(names)[np.arange(60_000) % 400]
    objects.time = np.cumsum(np.random.default_rng(1).integers(0, 10**6, objects.ticks + 1))
    whole = Page("x").add(HeapMaps("Where?", objects, [Map("", addresses)]), Flame("Who?", objects)).render()
    budget = 560_000
    small = Page("x", budget=budget).add(
        HeapMaps("Where?", objects, [Map("", addresses)]), Flame("Who?", objects)
    )
    text = small.render()
    assert len(whole) > 1.5 * len(text) and "To keep the page small" not in whole
    assert len(text) < budget + len(Page("").render())  # and the script
    assert "times are rounded" in text and "60,000 objects are drawn as" in text
    assert "x" * 241 not in whole  # overlong names are cut before all else


@pytest.mark.parametrize("letter", ["x", "<", "\u6f22"])
def test_names_alone_never_break_the_budget(letter):
    """Many sites with overlong names of their own, in letters that take one byte or six."""
    count = 4000
    tree = SiteTree()
    sites = [tree.add_stack([f"{k}{letter * 400}", f"g{k}{letter * 300}"]) for k in range(count)]
    order = np.arange(count)
    columns = {"site": np.array(sites, np.int64)}
    objects = ObjectSet(order, order + 5, order + 1, count + 5, "step", tree, columns)
    budget = 100_000
    page = Page("x" * 10_000, notes=["y" * 10_000], budget=budget)
    text = page.add(Flame("Who?", objects)).render()
    assert len(text.encode()) < budget + len(Page("").render())
    assert "sites with the most bytes keep their names, of 4,000" in text and "(other sites)" in text


def test_the_sites_with_the_most_bytes_keep_their_names():
    from memoir.views.page.budget import OTHER_SITES, PackedSet

    tree = SiteTree()
    sites = np.array([tree.add_stack(["main", f"site {k}"]) for k in range(3000)], np.int64)
    order = np.arange(3000)
    objects = ObjectSet(order, order + 1, 3000 - order, 3000, "step", tree, {"site": sites})
    packed = PackedSet(objects, [], 0)
    kept = packed.objects
    names = [kept.sites.chain(int(site))[-1] for site in kept.columns["site"]]
    assert names[:128] == [f"site {k}" for k in range(128)] and set(names[128:]) == {OTHER_SITES}
    assert (kept.size == objects.size).all()


def test_a_tree_of_sites_is_cut_from_the_outside():
    tree = SiteTree()
    site = tree.add_stack(["a", "b" * 100, "c", "d"])
    cut, new = tree.cut(np.array([site]), 2, 10)
    assert cut.chain(int(new[site])) == [LEFT_OUT, "c", "d"] and len(cut) < len(tree)
    assert tree.cut(np.array([site]), 9, 9)[0].frames[1] == "bbb...bbb"


def test_placements_are_what_the_simulation_places():
    trace = open_trace(DATA / "gpu" / "constructorsun_codeloc.d2.trace")
    workload = Workload(trace, 0)
    found = placements(workload, "span")
    assert len(found["object"]) == workload.objects and len(found["event"]) == workload.operations
    assert (found["held"] >= found["size"]).all()
    # No two that live together overlap.
    born, died = found["born"].astype(float), found["died"].astype(float)
    low = found["offset"].astype(float)
    high = low + found["size"]
    for k in range(0, len(low), 7):
        together = (born < died[k]) & (died > born[k]) & (low < high[k]) & (high > low[k])
        assert together.sum() == 1
    from memoir import simulate

    assert int(found["reserved"].max()) == simulate(trace, "span", timed=False).peak_reserved


def test_a_map_of_a_recording_is_at_its_addresses():
    trace = open_trace(DATA / "gpu" / "constructorsun_codeloc.d2.trace")
    objects = objects_of(trace)
    shown = device_map(trace, objects, 0).maps[0]
    assert shown.placed.all() and len(shown.segments) > 0
    inside = np.zeros(len(objects), bool)
    for low, size, born, died in zip(
        shown.segments.address, shown.segments.size, shown.segments.born, shown.segments.died, strict=True
    ):
        at = shown.addresses
        inside |= (at >= low) & (at < low + size) & (objects.born >= born) & (objects.born < died)
    assert inside.all()


def test_a_native_recording_tells_addresses_with_its_allocations():
    dtype = [("kind", "u1"), ("object", "u8"), ("size", "u8"), ("address", "u8")]
    events = np.zeros(3, dtype)
    events["address"] = [0x5000, 0, 0x7000]
    objects = ObjectSet(np.array([0, 1, 2]), np.array([3, 3, 3]), np.array([8, 8, 8]), 3, "event")
    known, addresses = recorded_addresses(SimpleNamespace(events=events), objects)
    assert known.tolist() == [True, False, True] and addresses.tolist() == [0x5000, 0x7000]


def test_plans_with_ticks_far_apart_and_dollars_in_their_names():
    lower, upper = np.array([0, 10**15, 2**62], np.uint64), np.array([10**15, 2**62, 2**63], np.uint64)
    sizes = np.array([100, 200, 300], np.uint64)
    problem = Problem(lower, upper, sizes, np.ones(3, np.uint64))
    made = plan(problem)
    shown = [MappedPlan("$\\mathdefault{\\bad}$", made.offsets, made.arena_size)]
    html = plan_page("a $b_$ model", problem, shown, 300, names=("<x>", "y", "z")).render()
    assert "optimal" in html and "<x>" not in html
    pytest.importorskip("matplotlib")
    for kind in ("png", "svg"):
        assert len(draw_heap_maps(problem, shown, 300, kind, title="$x^$ of $y_$")) > 1000


def test_objects_of_merged_pages_keep_their_sums():
    objects, addresses = random_objects(20_000, 4)
    from memoir.views.page.budget import PackedSet

    axis = AddressAxis.of(addresses, objects.size.astype(np.uint64))
    packed = PackedSet(objects, [axis.place(addresses)], 60_000)
    kept = packed.objects
    assert len(kept) < len(objects)
    assert kept.columns["count"].sum() == len(objects)
    assert kept.columns["bytes"].sum() == objects.size.sum()
    assert (np.diff(kept.born) >= 0).all() and isinstance(kept, ObjectSet)


def test_a_lifetime_profile_adds_up():
    from memoir.lifetimes import Lifetimes
    from memoir.lifetimes.summary import summarize
    from memoir.views.page.of_lifetimes import lifetimes_page, objects_of_profile

    profile = Lifetimes.open(DATA / "small.v1.lifetimes")
    objects = objects_of_profile(profile)
    assert objects.columns["bytes"].sum() == pytest.approx(profile.bytes().sum(), rel=1e-3, abs=len(objects))
    never = objects.died == objects.ticks
    assert objects.columns["bytes"][never].sum() == pytest.approx(
        profile.bytes(1).sum(), rel=1e-3, abs=len(objects)
    )
    html = lifetimes_page("x", profile, summarize(profile)).render()
    assert "Who allocates?" in html and "half live under" in html
