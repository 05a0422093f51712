# SPDX-License-Identifier: Apache-2.0
"""The pages of results: what a simulated allocator held, failed requests, differences, models. The browser's side is in
test_page_browser.py."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from memoir._core import Problem, Trace, Workload, placements, policies
from memoir.simulation import workload_of
from memoir.simulation.out_of_memory import explain
from memoir.traces.files import open_trace
from memoir.train import read_model
from memoir.train.summary import against, summarize
from memoir.views import text_table
from memoir.views.heap_map import MappedPlan
from memoir.views.model_text import gain_text
from memoir.views.page import HeapMaps, Table
from memoir.views.page.objects import objects_of
from memoir.views.page.of_diff import trace_diff_page
from memoir.views.page.of_model import model_page
from memoir.views.page.of_oom import oom_page
from memoir.views.page.of_plan import plan_page
from memoir.views.page.placed import placed_map, room_of
from memoir.views.page.sites import short_frame
from memoir.views.trace_diff import diff_traces, unmatched
from pages import DATA

sys.path += [str(Path(__file__).parents[1] / name) for name in ("formats", "cli")]
from snapshots import snapshot  # noqa: E402
from test_oom_cli import combed  # noqa: E402

RECORDED = DATA / "gpu" / "constructorsun_codeloc.d2.trace"
NOWHERE, NEVER = 2**64 - 1, 2**64 - 1


@pytest.mark.parametrize("policy", [name for name, *_ in policies()])
def test_what_a_policy_holds_is_told_range_by_range(policy):
    """At every event the ranges add up to what is reserved, and every object lies in one."""
    found = placements(Workload(open_trace(RECORDED), 0), policy)
    events = found["event"].astype(np.int64)
    change = np.zeros(events[-1] + 3, np.int64)
    last = np.uint64(len(change) - 1)
    size = found["segment_size"].astype(np.int64)
    np.add.at(change, np.minimum(found["segment_born"], last).astype(np.int64), size)
    np.add.at(change, np.minimum(found["segment_died"], last).astype(np.int64), -size)
    assert (np.cumsum(change)[events] == found["reserved"].astype(np.int64)).all()
    for k in range(0, len(found["offset"]), 5):
        offset = found["offset"][k]
        if offset == NOWHERE:
            continue
        inside = (found["segment_space"] == found["space"][k]) & (found["segment_offset"] <= offset)
        inside &= found["segment_offset"] + found["segment_size"] > offset
        inside &= (found["segment_born"] <= found["born"][k]) & (found["segment_died"] > found["born"][k])
        assert inside.any()


@pytest.mark.parametrize("policy", ["pytorch", "span"])
def test_the_room_of_a_policy_is_what_the_simulation_says(policy):
    from memoir import simulate

    trace = open_trace(RECORDED)
    objects = objects_of(trace, 0)
    shown = placed_map(trace, 0, policy, objects, name="")
    room = room_of(shown, objects)
    said = simulate(trace, policy, timed=False)
    assert room.held == said.peak_reserved == max(shown.curves[0].value)
    assert room.live <= said.peak_live and room.largest <= room.free
    # What is free in what is held is what objects do not cover, rounding included.
    assert room.free == room.held - room.live
    assert shown.segments.joined == (policy == "span")


def test_a_failed_request_has_a_page_that_answers(tmp_path):
    path = tmp_path / "failed.pickle"
    path.write_bytes(pickle.dumps(snapshot(combed()), protocol=4))
    answer = explain(str(path), workers=1, samples=100, find_caps=False)
    asked = workload_of(str(path), 0, up_to_failure=answer["failure"]["event"])
    assert all(row["survives"] for row in answer["rows"] if row["policy"] in ("memoir", "guided"))
    html = oom_page(answer, open_trace(path), asked).render()
    head = html[html.index("<h1>") : html.index('<main id="panels">')]
    assert "Why did failed.pickle run out of memory?" in head and "A placement could have served it" in head
    assert "<dd>64.0 MiB</dd>" in head and "4.000 x the 200 MiB live" in head
    assert "<dt>Largest request that still fitted</dt><dd>15.0 MiB</dd>" in head
    for said in (
        "memoir.torch.use_pool(&quot;memoir&quot;)",
        "Where did every object lie when it failed?",
        "Who held the memory when it failed?",
        "What kept free memory from going back?",
        "/srv/model.py:54 forward",
        "Which settings and policies survive?",
        "as recorded",
        f"{answer['rows'][0]['policy']}: serves it",
    ):
        assert said in html, said


def test_what_changed_between_two_traces_is_on_a_page():
    paths = DATA / "small.v1.trace", DATA / "resnet18.trace"
    traces = tuple(Trace.open(str(path)) for path in paths)
    diff = diff_traces(*traces)
    html = trace_diff_page(("a <b>", "b"), traces, diff).render()
    assert "<b>" not in html[html.index("<h1>") :].split("<main")[0]
    assert "What changed at the peak, by site?" in html and "before: a" in html and "after: b" in html
    most = max(diff["stacks"], key=lambda row: abs(row["allocated"]["change_bytes"]))
    assert most["stack"].split(" > ")[-1].replace(">", "&gt;") in html


def test_a_model_says_what_it_predicts_and_how_surely():
    path = DATA / "small.v1.model"
    model = read_model(path)
    summary = summarize(model, path.stat().st_size)
    html = model_page("small.model", summary).render()
    sites = summary["sites"]
    assert sites and all(f"{100 * row['confidence']:.0f} %" in html for row in sites)
    assert all(row["stack"][0] in html for row in sites)
    assert "What does it take for what?" not in html
    from memoir.lifetimes import Lifetimes

    found = against(model, Lifetimes.open(DATA / "small.v1.lifetimes"))
    html = model_page("small.model", summary, ("<p>.lifetimes", found)).render()
    assert (
        "What does it take for what?" in html
        and "&lt;p&gt;.lifetimes" in html
        and "<p>.lifetimes" not in html
    )
    counts = sum(map(sum, found["confusion"]))
    assert counts == found["contexts"] and f"of the {counts:,} contexts" in html


def test_words_that_speak_for_long_are_shown():
    path = DATA / "small.v1.model"
    summary = summarize(read_model(path), path.stat().st_size)
    long = {"recall": 0.5, "precision": 0.25}
    held = {
        "answered": 1.0,
        "accuracy": 0.75,
        "accuracy_off_by_one": 0.9,
        "accuracy_by_objects": None,
        "long": long,
    }
    summary["facts"] = {
        "contexts": 9,
        "profiles": 2,
        "samples": 90,
        "long": 3,
        "decided": 8,
        "programs": ["<server>"],
        "gain": 0.125,
        "held_out": {"unseen": held},
        "words_for_long": [{"word": "cache<", "log_odds": 2.5, "long": 7, "short": 1}],
    }
    html = model_page("x", summary).render()
    assert "cache&lt;" in html and "2.5" in html and "&lt;server&gt;" in html
    assert "12.5 %" in html and "<dd>75 %</dd>" in html and "stacks held out" in html


def test_a_table_of_the_terminal_becomes_one_of_the_page():
    of_terminal = text_table.Table("", ("a", "b"), (("x", "no"),), styles={(0, 1): "bad"})
    table = Table.of("What?", of_terminal)
    assert table.columns == ("a", "b") and table.rows == (("x", "no"),)


def test_frames_are_shortened_to_what_is_read_first():
    assert short_frame("/a/b/c.py:12 f") == "c.py:12 f"
    assert short_frame("D:\\x\\y.py:3 g") == "y.py:3 g"
    assert short_frame("aten::mm") == "aten::mm"


def test_what_is_saved_is_never_a_negative_zero():
    assert [gain_text(gain) for gain in (-0.0, -0.0001, 0.0, 0.0123, -0.02)] == ["nothing"] * 3 + [
        "1.2 %",
        "-2.0 %",
    ]


def test_a_plan_is_not_drawn_twice():
    columns = ([0, 1], [2, 3], [4, 4], [1, 1])
    problem = Problem(*(np.array(column, np.uint64) for column in columns))
    same = [MappedPlan(name, np.array([0, 4], np.uint64), 8) for name in ("file", "first_fit")]
    (panel,) = [one for one in plan_page("p", problem, same, 8)._panels if isinstance(one, HeapMaps)]
    assert len(panel.maps) == 1
    other = MappedPlan("bump", np.array([4, 0], np.uint64), 8)
    (panel,) = [
        one for one in plan_page("p", problem, [*same, other], 8)._panels if isinstance(one, HeapMaps)
    ]
    assert [one.name for one in panel.maps] == ["file: 8 B", "bump: 8 B"]


def test_traces_that_share_no_stack_say_so():
    def rows(*names):
        pair = {"before_count": 0, "after_count": 0}
        return [
            {
                "stack": name,
                **{what: pair | {f"{side}_count": 1} for what in ("held", "allocated", "kept", "temporary")},
            }
            for name, side in names
        ]

    assert "memoir symbolize" in unmatched({"stacks": rows(("a", "before"), ("b", "after"))})
    both = rows(("a", "before"))
    both[0]["held"] = {"before_count": 1, "after_count": 1}
    assert not unmatched({"stacks": both}) and not unmatched({"stacks": rows(("a", "before"))})
