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
from memoir.simulation.recorded import recorded_cap, recorded_limits
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
        assert row["survives"] in (None, row["room"] >= 0)
        assert (row["survives"] is None) == (row["verdict"] == "perhaps")
        large = "memoir" not in row["policy"] and not row["policy"].startswith(("guided", "span"))
        if row["verdict"] == "perhaps":  # one segment more or less
            assert abs(row["room"]) <= (256 if "large_segment" in row["policy"] else 20 if large else 2) * MIB
    verdicts = [row["verdict"] for row in answer["rows"]]
    assert verdicts == sorted(verdicts, key=["yes", "perhaps", "no"].index)
    assert verdicts.count("yes") == answer["survivors"] and verdicts.count("perhaps") == answer["perhaps"]
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
        "  cap    between 800 MiB and 880 MiB: what the allocator held, and that with the request. The" in out
    )
    code, out, _ = memoir("oom", FAILED, "--workers", "1", "--json")
    answer = json.loads(out)
    assert (answer["cap"], answer["cap_most"], answer["cap_from"]) == (800 * MIB, 880 * MIB, "held")
    assert answer["recorded_fails_again"] is True
    for row in answer["rows"]:  # certain at both ends, or "perhaps"
        if row["smallest_cap"]:
            assert (row["verdict"] == "yes") <= (row["smallest_cap"] <= 800 * MIB)
            assert (row["verdict"] == "no") <= (row["smallest_cap"] > 880 * MIB)


def test_a_request_between_the_ends_of_a_limit(memoir, failed):
    """Held, and that with the request: the limit lies between, and so does what is needed."""
    failed(
        [
            entry("segment_alloc", BASE, 400 * MIB, 0),
            entry("alloc", BASE, 399 * MIB, 1),
            oom(300 * MIB, 4000 * MIB, 2),
        ]
    )
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--json")
    answer = json.loads(out)
    assert (code, answer["any_placement_fits"], answer["survivors"]) == (1, None, 0)
    assert {row["verdict"] for row in answer["rows"]} <= {"perhaps", "no"} and answer["perhaps"] > 0
    out = memoir("oom", FAILED, "--no-caps", "--workers", "1")[1]
    assert "Perhaps no placement could have served it: with it 699 MiB are live" in out


def test_a_failure_that_the_replay_does_not_have(memoir, failed):
    """What survives where the recorded settings survive, too, is no advice."""
    failed(combed())
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--cap", "4GiB")
    assert code == 1 and "Not reproduced: replayed with its recorded settings, the program gets this" in out
    assert "_record_memory_history(max_entries=" in out and "start the program with" not in out
    answer = json.loads(memoir("oom", FAILED, "--no-caps", "--workers", "1", "--cap", "4GiB", "--json")[1])
    assert (answer["cap"], answer["cap_from"]) == (4096 * MIB, "given")
    assert answer["recorded_fails_again"] is False and answer["paste"] == {"pytorch": None, "memoir": None}


ERRORS = {
    "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which 10.00 MiB is "
    "free. Including non-PyTorch memory, this process has 1.99 GiB memory in use. Of the allocated memory 200.00 MiB "
    "is allocated by PyTorch, and 600.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated": 810,
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 2.00 GiB total capacity; "
    "200.00 MiB already allocated; 10.00 MiB free; 800.00 MiB reserved in total by PyTorch) If reserved": 810,
    "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which 1.10 GiB is "
    "free. Including non-PyTorch memory, this process has 900.00 MiB memory in use. 815.00 MiB allowed; Of the "
    "allocated memory 200.00 MiB is allocated by PyTorch,\n and 600.00 MiB is reserved by PyTorch but unallocated.": 815,
}


@pytest.mark.parametrize("text", ERRORS)
def test_the_text_of_an_error_stands_for_a_failure_that_is_not_recorded(memoir, failed, text):
    failed(combed()[:-1])
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--asked", text, "--json")
    answer = json.loads(out)
    assert (code, answer["cap"], answer["cap_from"]) == (0, ERRORS[text] * MIB, "the error")
    assert answer["failure"]["asked"] == 64 * MIB and answer["needed"] == 264 * MIB
    assert answer["recorded_fails_again"] is True and answer["paste"]["memoir"]
    out = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--asked", text, "-o", "x.html")[1]
    assert "the request that was given, at the end of the recording" in out


def test_bytes_that_were_asked_for(memoir, failed):
    failed(combed()[:-1])
    code, _, err = memoir("oom", FAILED, "--asked", "64MiB")
    assert code == 2 and "how much memory was there? Give it with --cap 20GiB" in err
    asked = memoir(
        "oom", FAILED, "--no-caps", "--workers", "1", "--asked", "64MiB", "--cap", "810MiB", "--json"
    )[1]
    failed(combed())
    recorded = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--json")[1]
    assert [(row["policy"], row["verdict"]) for row in json.loads(asked)["rows"]] == [
        (row["policy"], row["verdict"]) for row in json.loads(recorded)["rows"]
    ]
    for wrong in ("soon", "0", "Tried to allocate memory"):
        code, _, err = memoir("oom", FAILED, "--asked", wrong)
        assert code == 2 and "is neither bytes (2GiB) nor PyTorch's error" in err


def test_a_trace_without_segments_says_what_it_does_not_know(memoir):
    Path("x.trace").write_text("b\na 0 1000000000 0 0\na 1 1000000000 0 0\nf 0\nO 300000000 1200000000\n")
    code, _, err = memoir("oom", "x.trace")
    assert code == 2 and "the recording has no segments, so it does not tell what the allocator held" in err
    assert "only that 1,300,000,000 bytes were live or free" in err and "with --cap 20GiB" in err
    code, out, _ = memoir("oom", "x.trace", "--cap", "2384MiB", "--no-caps", "--workers", "1")
    assert "  held   and free: not in the recording" in out


def test_policies_in_any_order():
    from itertools import permutations

    from memoir.simulation import expand

    texts = ["memoir,slack=0|0.05", "pytorch:max_split_size_mb:64|128", "split,large=16MiB", "span"]
    wanted = sorted(name for text in texts for name in expand([text]))
    for order in permutations(texts):
        assert sorted(expand(["|".join(order)])) == wanted


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
    known = (free + 7, free + 7, answer) if answer != "held" else (7, 7 + asked, answer)
    assert recorded_limits(failure) == known and recorded_cap(failure) == (known[0], answer)


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
    code, out, _ = memoir("simulate", FAILED, "--search", "300ms,calls", "--json")
    found = json.loads(out)["search"]
    assert code == 0 and found["goal"] == "calls" and found["best"]["calls"] <= found["default"]["calls"]
    code, out, _ = memoir("oom", FAILED, "--no-caps", "--workers", "1", "--search", "0.3")
    assert "settings of PyTorch's allocator tried" in out and "matters here" in out
    for wrong in ("0", "soon", "1s,speed"):
        assert "is not a time to search for" in memoir("oom", FAILED, "--search", wrong)[2]
    assert "leave the rest out" in memoir("simulate", FAILED, "--search", "1", "--what-if")[2]
