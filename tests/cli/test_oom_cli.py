# SPDX-License-Identifier: Apache-2.0
"""`memoir oom`: the answer in words, tables and JSON; searches; what is not a failure."""

import json
import pickle
import sys
from pathlib import Path

import pytest
from memoir._core import Trace
from memoir.simulation import simulate, workload_of
from memoir.simulation.held import held_at
from memoir.simulation.recorded import recorded_cap
from memoir.simulation.search import search

sys.path.append(str(Path(__file__).parents[1] / "formats"))

from snapshots import BASE, LINEAR, MAIN, MIB, RELU, entry, frame, imported, oom, snapshot  # noqa: E402

FAILED = "failed.pickle"


def combed(*, asked=64 * MIB, free=10 * MIB, blocks=40):
    """Segments of 20 MiB, of each of which 5 MiB live on; then more is asked for than any of them has room for."""
    history, at = [], 0
    for number in range(blocks):
        begin = BASE + 20 * MIB * number
        history += [
            entry("segment_alloc", begin, 20 * MIB, at),
            entry("alloc", begin, 5 * MIB, at + 1, frames=[LINEAR, MAIN]),
            entry("alloc", begin + 5 * MIB, 15 * MIB, at + 2, frames=[RELU, MAIN]),
        ]
        at += 1000
    for number in range(blocks):
        begin = BASE + 20 * MIB * number + 5 * MIB
        history += [
            entry("free_requested", begin, 15 * MIB, at),
            entry("free_completed", begin, 15 * MIB, at),
        ]
    return [*history, oom(asked, free, at + 5000, frames=[LINEAR, MAIN])]


@pytest.fixture
def failed(tmp_path):
    def write(history, **more):
        path = tmp_path / FAILED
        path.write_bytes(pickle.dumps(snapshot(history, **more), protocol=4))
        return path

    return write


def test_words_first_then_what_survives_and_who_held_it(memoir, failed):
    failed(combed())
    code, out, err = memoir("oom", FAILED, "--workers", "1")
    assert (code, err) == (0, "")
    assert "event 245, 45.0 ms into the recording, ran out of memory\n" in out
    assert "  asked  64.0 MiB at /srv/model.py:54 forward\n  live   200 MiB in 40 objects\n" in out
    assert "  held   800 MiB by the allocator, 600 MiB of it idle\n  free   10.0 MiB on the device\n" in out
    assert "  cap    810 MiB: what the allocator held and what was free\n" in out
    assert "A placement could have served it: with it 264 MiB are live, 546 MiB under the cap." in out
    assert "\npytorch (recorded) " in out and 'use_pool("memoir")\n' in out
    assert "share" in out and "what kept free memory from going back" in out
    assert f"next: memoir oom {FAILED} -o failed.html" in out


def test_the_answer_as_json(memoir, failed):
    failed(combed())
    code, out, _ = memoir("oom", FAILED, "--json", "--policy", "span", "--workers", "1")
    answer = json.loads(out)
    assert code == 0 and "results" not in answer
    assert answer["any_placement_fits"] is True and answer["recorded_fails_again"] is True
    assert (answer["cap"], answer["needed"], answer["cap_from"]) == (810 * MIB, 264 * MIB, "held and free")
    rows = {row["policy"]: row for row in answer["rows"]}
    assert "span" in rows and rows["memoir"]["survives"] and not rows["pytorch"]["survives"]
    assert rows["pytorch"]["out_of_memory"]["event"] == answer["failure"]["event"] == 245
    for row in answer["rows"]:  # the smallest cap agrees with the verdict, and is one that completes
        if row["smallest_cap"] is None:
            continue
        assert row["room"] == 810 * MIB - row["smallest_cap"]
        assert row["survives"] == (row["room"] >= 0)
    survive = [row["survives"] for row in answer["rows"]]
    assert survive == sorted(survive, reverse=True) and sum(survive) == answer["survivors"]
    rooms = [row["room"] for row in answer["rows"] if row["survives"] and row["room"] is not None]
    assert rooms == sorted(rooms, reverse=True)
    (site,) = answer["held"]["sites"]
    assert (site["bytes"], site["objects"], site["kept_bytes"]) == (200 * MIB, 40, 600 * MIB)
    assert answer["held"]["pins"] == [site] and sum(age["objects"] for age in answer["held"]["ages"]) == 40


def test_stacks_that_differ_in_c_plus_plus_alone_are_one_row(memoir, failed):
    history = combed()
    for number, row in enumerate(history):
        if row["action"] == "alloc" and row["size"] == 5 * MIB:
            inside = frame(f"at::native::empty_like_{number % 2}(x)")
            row["frames"] = [frame("at::detail::empty_generic(x)"), inside, *row["frames"]]
    failed(history)
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--json")
    (site,) = json.loads(out)["held"]["sites"]
    assert code == 0 and (site["place"], site["stacks"]) == ("/srv/model.py:54 forward", 2)
    assert (site["objects"], site["bytes"]) == (40, 200 * MIB)
    assert site["site"].endswith("(x) > at::detail::empty_generic(x)")


def test_what_no_placement_serves(memoir, failed):
    failed(combed(asked=700 * MIB))
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1")
    assert code == 1
    assert "No placement could have served it: with it 900 MiB are live, 90.0 MiB more than the cap." in out
    assert "None of these settings and policies serves the request under this cap." in out


def test_what_no_device_serves(memoir, failed):
    """A request of terabytes is not replayed, so replays come to their end: that serves nothing."""
    failed(combed(asked=32 << 40))
    code, out, _ = memoir("oom", FAILED, "--workers", "1")
    assert code == 1 and "No placement could have served it: with it 32.0 TiB are live" in out
    assert "None of these settings and policies serves the request under this cap." in out
    answer = json.loads(memoir("oom", FAILED, "--workers", "1", "--json")[1])
    assert answer["survivors"] == 0 and answer["paste"] == {"pytorch": None, "memoir": None}
    assert all(row["out_of_memory"] and row["smallest_cap"] is None for row in answer["rows"])


def test_a_limit_that_the_device_did_not_set(memoir, failed):
    """PyTorch said no with room on the device: per_process_memory_fraction is not in a snapshot."""
    failed(combed(free=4000 * MIB))
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1")
    assert (
        "  cap    800 MiB: what the allocator held. The device had room, so a limit of the process said no"
        in out
    )
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--cap", "4GiB", "--json")
    answer = json.loads(out)
    assert (code, answer["cap"], answer["cap_from"]) == (0, 4096 * MIB, "given")
    assert answer["recorded_fails_again"] is False


def test_the_last_failure_is_meant_unless_another_is_named(memoir, failed):
    history = [*combed(blocks=4), oom(2 * MIB, 4096, 90_000)]
    failed(history)
    _, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--json")
    last = json.loads(out)
    assert (last["failures"], last["failure"]["asked"]) == (2, 2 * MIB)
    first_event = workload_of(FAILED, 0).failures[0]["event"]
    _, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--json", "--event", first_event)
    first = json.loads(out)
    assert (first["failure"]["asked"], first["failure"]["event"]) == (64 * MIB, first_event)
    code, _, err = memoir("oom", FAILED, "--event", 3)
    assert code == 2 and "event 3 is not a request that failed; these are: " in err


def test_without_a_failure_there_is_nothing_to_answer(memoir, failed):
    failed(combed()[:-1])
    code, out, err = memoir("oom", FAILED)
    assert (code, out) == (2, "") and "no request failed in this recording; memoir simulate" in err
    code, _, err = memoir("simulate", FAILED, "--policy", "span", "--cap", "recorded")
    assert code == 2 and "a cap of 'recorded' needs a request that failed" in err


def test_simulate_and_show_and_import_mention_it(memoir, failed):
    failed(combed())
    code, out, _ = memoir(
        "simulate", FAILED, "--policy", "pytorch", "--policy", "memoir", "--cap", "recorded"
    )
    assert code == 0 and "its recording ran out of memory at event 245: 64.0 MiB asked, 200 MiB live" in out
    assert "next: memoir oom failed.pickle" in out
    code, out, _ = memoir("simulate", FAILED, "--from-recorded")
    assert (
        "not asked for again, since this compares with the recording" in out and ": both as recorded" in out
    )
    assert "next: memoir oom failed.pickle" in memoir("show", FAILED)[1]
    assert "next: memoir oom failed.trace" in memoir("import", FAILED)[1]
    assert memoir("oom", "failed.trace", "--no-caps", "--workers", "1")[0] == 0


def test_the_request_counts_in_the_floor_and_in_python(failed):
    path = failed(combed(asked=700 * MIB))
    assert simulate(path, "span", timed=False).peak_live == 900 * MIB
    assert simulate(path, "pytorch", cap="recorded", timed=False).oom.event == 245
    assert simulate(path, "pytorch", from_recorded=True, timed=False).completed


def test_a_page(memoir, failed):
    failed(combed(blocks=8))
    code, _, err = memoir("oom", FAILED, "--no-caps", "--workers", "1", "-o", "failed.html")
    assert code == 0 and "wrote failed.html" in err
    assert "run out of memory?" in Path("failed.html").read_text()


def test_held_by_age_and_by_what_is_kept():
    trace: Trace = imported(
        snapshot(
            [
                entry("segment_map", BASE, 40 * MIB, 0),
                entry("alloc", BASE, 3 * MIB, 10, frames=[LINEAR]),  # two pages
                entry("alloc", BASE + 10 * MIB, 512, 5_000, frames=[RELU]),  # one page for 512 bytes
                entry("alloc", BASE + 20 * MIB, 4 * MIB, 6_000, frames=[MAIN]),  # two pages, whole
                oom(MIB, 0, 200_000),
            ]
        )
    )
    held = held_at(trace, 0, workload_event(trace))
    assert sorted(row["kept_bytes"] for row in held["pins"]) == [MIB, 2 * MIB - 512]
    assert held["pins"][0]["bytes"] == 512  # old and small, and pins most
    assert {(age["from_ns"], age["objects"]) for age in held["ages"]} == {(100_000_000, 3)}


def workload_event(trace):
    from memoir._core import Workload

    return Workload(trace, 0).failures[-1]["event"]


@pytest.mark.parametrize(
    ("asked", "free", "answer"),
    [
        (MIB, 2 * MIB, "held and free"),
        (100 * MIB, 119 * MIB, "held and free"),
        (100 * MIB, 150 * MIB, "held"),
    ],
)
def test_where_the_cap_is_known_from(asked, free, answer):
    failure = {"asked": asked, "device_free": free, "reserved": 7, "cap": free + 7}
    assert recorded_cap(failure) == ((free + 7, answer) if answer != "held" else (7, answer))


def test_a_search_finds_what_serves_and_says_what_does_not_matter(failed):
    path = failed(combed())
    found = search(workload_of(str(path), 0), 60, cap=810 * MIB, workers=1, seed=3, tell=_Until(200))
    assert found["interrupted"] and found["tried"] >= 200
    assert found["best"]["completed"] and not found["default"]["completed"]
    assert simulate(path, f"pytorch:{found['settings']}", cap=810 * MIB, timed=False).completed
    matters = {name: row["matters"] for name, row in found["matters"].items()}
    assert matters["max_split_size_mb"] is False and matters["large_segment_size_mb"] is True
    values = found["matters"]["large_segment_size_mb"]["values"]
    assert values["default"] is None and min(v for v in values.values() if v) == found["best"]["reserved"]


class _Until:
    """Ends a search after so many settings, whatever the clock says."""

    def __init__(self, most):
        self.most = most

    def __call__(self, elapsed, tried, best):
        if tried >= self.most:
            raise KeyboardInterrupt


def test_searches_on_the_command_line(memoir, failed):
    failed(combed(blocks=6))
    code, out, _ = memoir("simulate", FAILED, "--search", "300ms", "--goal", "calls", "--json")
    found = json.loads(out)["search"]
    assert code == 0 and found["goal"] == "calls" and found["best"]["calls"] <= found["default"]["calls"]
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--search", "0.3")
    assert "settings of PyTorch's allocator tried" in out and "matters here" in out
    for wrong in ("0", "soon"):
        assert "is not a time to search for" in memoir("oom", FAILED, "--search", wrong)[2]
    assert "leave the rest out" in memoir("simulate", FAILED, "--search", "1", "--what-if")[2]
