# SPDX-License-Identifier: Apache-2.0
"""`memoir simulate`, as it is typed, and memoir.simulation."""

import json
import pickle
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from random import Random

import pytest
from memoir.simulation import expand, out_of_memory, simulate
from memoir.traces.files import open_trace

from memoir import Error, _core, simulation

GPU = Path(__file__).parents[1] / "data" / "gpu"
SMALL = GPU / "silmont_fwd_fp32_128.d0.trace"
TEXT = """# made up
s 4096 2097152
i 7 1000 0 4096
b
a 8 2000000 0 8192
a 9 3000000 1
f 7
O 100 5000000
f 9
"""


@pytest.fixture
def results(memoir):
    """The results of a simulation, from its JSON."""

    def run(*arguments, code=0):
        status, out, err = memoir("simulate", *arguments, "--json")
        assert status == code, err
        return json.loads(out)["results"]

    return run


@pytest.fixture
def two_devices(tmp_path):
    with _core.TraceWriter(str(tmp_path / "two.trace")) as writer:
        writer.define_site(5, 0, "aten::mm")
        for device in (0, 3):
            writer.allocate(device + 1, 5, 1 << 20, device=device)
            writer.allocate(device + 2, 5, (device + 1) << 21, device=device)
            writer.free(device + 1, device=device)
    return tmp_path / "two.trace"


def test_every_policy_on_a_recorded_program(results):
    rows = results(SMALL, "--policy", "all")
    assert [row["policy"] for row in rows] == [name for name, _, _ in _core.policies()]
    for row in rows:
        calls = row["device_calls"]
        kinds = ("takes", "give_backs", "creates", "releases", "maps", "unmaps", "accesses", "syncs")
        assert calls["driver"] == sum(calls[kind] for kind in kinds)
        assert calls["maps"] - calls["unmaps"] >= 0 and calls["accesses"] <= calls["maps"]
        assert calls["creates"] <= calls["maps"] and calls["releases"] <= calls["unmaps"]

        assert row["completed"] and row["out_of_memory"] is None
        assert row["peak_live"] == row["floor"] <= row["peak_committed"] <= row["peak_reserved"]
        assert row["reserved_ratio"] == row["peak_reserved"] / row["floor"]
        assert 0 <= row["fragmentation_at_peak"] < 1 and 0 <= row["fragmentation_mean"] < 1
        assert row["device_calls"]["all"] > 0
        assert row["ns_per_operation"]["mean"] > 0
        assert row["operations"] == 1499


def test_the_policies_of_what_the_trace_is_of(results, tmp_path):
    """A device's first, ours before the others; mallocs for what malloc did."""
    mallocs = ["lifetime", "span"]
    rows = [row["policy"] for row in results(SMALL)]
    assert rows[:3] == ["memoir", "guided", "planned"] and not set(mallocs) & set(rows)
    (tmp_path / "x.trace").write_text("b\na 0 1000000 0 0\nf 0\n")
    assert [row["policy"] for row in results("x.trace")] == rows
    assert simulation.default_policies([str(SMALL)], "malloc") == mallocs
    assert simulation.default_policies([str(SMALL)], "both") == [*rows, *mallocs]


def test_no_list_that_nobody_asked_for_has_a_peer(memoir):
    """Allocators that are only compared with are tried by their names, and by "all"."""
    peers = {"binned", "split", "rmm", "rmm_arena", "llama", "size_classes", "size_classes_huge"}
    assert set(_core.peer_policies()) == peers
    lists = (
        simulation.default_policies([str(SMALL)], "both"),
        simulation.what_if_policies(True),
        out_of_memory.judged_policies(),
    )
    for names in lists:
        assert not peers & set(names) and "memoir" in names
    assert peers < set(simulation.expand(["all"]))
    _, out, _ = memoir("simulate", "--policies")
    _, every, _ = memoir("simulate", "--policies", "all")
    for peer in peers:
        assert f"\n{peer} " not in out and f"\n{peer} " in every


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_a_plan_is_followed_only_where_it_is_better(tmp_path, streams):
    """Steps of several streams, speculative ones among them, whose results are dropped soon or kept."""
    for seed in range(8):
        random = Random(100 * streams + seed)
        path, live, number = str(tmp_path / f"{seed}.trace"), [], 0
        with _core.TraceWriter(path) as writer:
            for _ in range(600):
                number += 1
                size = random.choice([random.randint(1, 40) << 10, random.randint(1, 12) << 20, 48 << 20])
                stream = random.randrange(streams)
                writer.allocate(number, 0, size, alignment=512, stream=stream)
                live.append((number, stream))
                while len(live) > random.choice([4, 24, 40]):
                    gone, on = live.pop(random.randrange(len(live)) if random.random() < 0.3 else -1)
                    writer.free(gone, stream=on)
        reserved = {name: simulate(path, name, timed=False).peak_reserved for name in ("memoir", "guided")}
        assert reserved["guided"] <= reserved["memoir"], (streams, seed)


def test_a_price_list_for_the_drivers_calls(results, memoir, tmp_path):
    from memoir.simulation.device_costs import A100, CALLS

    def cost(row, prices):
        return sum(row["device_calls"][kind] * prices[name] for kind, name in CALLS.items()) / 1000

    (row,) = results(SMALL, "--policy", "memoir", "--cap", "1.02x")
    assert row["driver_ms"] == pytest.approx(cost(row, A100)) and row["driver_ms"] > 0
    (tmp_path / "costs.json").write_text('{"device": "x", "us": {"cuMemCreate": 1000, "cuMemMap": 0.5}}')
    (other,) = results(SMALL, "--policy", "memoir", "--cap", "1.02x", "--device-costs", "costs.json")
    assert other["driver_ms"] == pytest.approx(cost(row, A100 | {"cuMemCreate": 1000, "cuMemMap": 0.5}))
    passes = row["passes"]
    assert row["driver_ms_per_pass"] == (pytest.approx(row["driver_ms"] / passes) if passes else None)
    out = memoir("simulate", SMALL, "--policy", "memoir")[1]
    assert ("ms a step" if passes else "ms of them") in out and "driver calls" in out
    for text, why in (
        ("{", "is not JSON"),
        ("[1]", "is not a price list"),
        ('{"cuMemory": 1}', "'cuMemory' is none of cuMemAlloc"),
        ('{"cuMemMap": -1}', "cuMemMap costs -1, which is not a number of microseconds"),
        ('{"cuMemMap": NaN}', "which is not a number of microseconds"),
        ('{"cuMemMap": true}', "which is not a number of microseconds"),
    ):
        (tmp_path / "bad.json").write_text(text)
        code, _, err = memoir("simulate", SMALL, "--policy", "memoir", "--device-costs", "bad.json")
        assert code == 2 and why in err, text
    code, _, err = memoir("simulate", SMALL, "--policy", "memoir", "--device-costs", "none.json")
    assert code == 2 and "none.json: cannot be read" in err


def test_the_table_has_the_floor_and_the_next_command(memoir):
    code, out, err = memoir("simulate", SMALL, "--cap", "1.05x", "--policy", "span", "--policy", "binned")
    assert code == 0
    assert "floor: most bytes live" in out and "531 MiB" in out
    assert "at event" in out and "Another layout had room" in out  # binned does not fit
    assert "\nnext: memoir simulate" in out
    assert "Left out:" in err


def test_settings_policies_and_caps_multiply(results):
    rows = results(
        SMALL, "--policy", "span,granule=64KiB|2MiB", "--policy", "rmm", "--cap", "1.5x", "--cap", "2GiB"
    )
    assert [row["policy"] for row in rows] == ["span,granule=64KiB", "span,granule=2MiB", "rmm"] * 2
    assert [row["cap"] for row in rows] == [rows[0]["cap"]] * 3 + [2**31] * 3
    assert rows[0]["cap"] == -(-3 * rows[0]["floor"] // 2)


def test_out_of_memory_says_where_and_whether_a_layout_had_room(results, tmp_path):
    with _core.TraceWriter(str(tmp_path / "x.trace")) as writer:
        writer.define_site(5, 0, "aten::mm")
        writer.allocate(1, 5, 8 << 20, alignment=512)
        writer.allocate(2, 5, 8 << 20, alignment=512)
        writer.free(1)
        writer.allocate(3, 5, 20 << 20, alignment=512)
        writer.allocate(4, 5, 1 << 20, alignment=512)
    fits, refused = results("x.trace", "--policy", "span", "--cap", "32MiB", "--cap", "24MiB")
    assert fits["completed"]
    oom = refused["out_of_memory"]
    assert not refused["completed"] and refused["failed"] == 1
    assert (oom["event"], oom["object"], oom["asked"]) == (4, 3, 20 << 20)
    assert (oom["live"], oom["site"]) == (8 << 20, "aten::mm")
    assert oom["any_layout_fits"] is False
    (on,) = results("x.trace", "--policy", "span", "--cap", "24MiB", "--continue")
    assert on["operations"] == 4 and on["failed"] == 1  # the last allocation is placed


def test_the_smallest_cap_completes_and_less_does_not(results):
    (row,) = results(SMALL, "--policy", "pytorch", "--find-cap")
    found = row["smallest_cap"]
    assert found["ratio"] >= 1
    for cap, completes in ((found["cap"], True), (found["cap"] - found["resolution"], False)):
        (again,) = results(SMALL, "--policy", "pytorch", "--cap", cap)
        assert again["completed"] is completes


def test_devices_are_simulated_one_by_one(results, memoir, two_devices):
    rows = results(two_devices, "--policy", "span")
    assert [(row["device"], row["floor"]) for row in rows] == [(0, 3 << 20), (3, 9 << 20)]
    (row,) = results(two_devices, "--policy", "span", "--device", "3")
    assert row["device"] == 3
    code, _, err = memoir("simulate", two_devices, "--device", "2")
    assert code == 2 and "devices: 0, 3" in err


def test_pictures_and_pages(memoir, two_devices, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("x.svg", "x.png", "x.html"):
        code, _, err = memoir("simulate", SMALL, "--policy", "span", "--policy", "pytorch", "-o", name)
        assert code == 0 and (tmp_path / name).stat().st_size > 5000, err
    xml.etree.ElementTree.parse(tmp_path / "x.svg")
    page = (tmp_path / "x.html").read_text()
    assert "http://" not in page and "https://" not in page
    assert "Where would each object lie?" in page and "pytorch" in page
    code, _, err = memoir("simulate", SMALL, "--policy", "span", "-o", "x.svg")
    assert code == 2 and "pass -f" in err
    code, _, err = memoir("simulate", two_devices, "--policy", "span", "-o", "two.png")
    assert code == 2 and "--device" in err and not (tmp_path / "two.png").exists()
    code, _, err = memoir("simulate", two_devices, "--policy", "span", "-o", "two.html")
    page = (tmp_path / "two.html").read_text()
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert code == 0 and page.count("Where would each object lie") == 4 and len(set(ids)) == len(ids)


def test_a_trace_of_one_event_is_a_line_in_the_picture(memoir, tmp_path):
    pytest.importorskip("matplotlib")
    writer = _core.TraceWriter()
    writer.allocate(1, 7, 5 << 20)
    writer.close()
    (tmp_path / "one.trace").write_bytes(writer.bytes())
    code, _, err = memoir("simulate", "one.trace", "--policy", "span", "-o", "one.svg")
    assert code == 0, err
    # the line's path, as matplotlib names it: from the left edge of the axes to the right one
    (path,) = re.findall(
        r'<path d="M ([^"]*)" clip-path="[^"]*" style="fill: none; stroke: #b03a2e',
        (tmp_path / "one.svg").read_text(),
    )
    across = [float(point.split()[0]) for point in path.split("L")]
    assert max(across) - min(across) > 100


def test_what_if_names_settings_to_copy(memoir, results):
    rows = results(SMALL, "--what-if", "--cap", "1.1x")
    torch = [row["torch_settings"] for row in rows if row["policy"].startswith("pytorch:")]
    assert len(set(torch)) == len(torch) >= 8
    assert all(settings.startswith("PYTORCH_CUDA_ALLOC_CONF=") for settings in torch)
    for row in rows:  # what is printed for copying is taken again, and means the same
        if row["torch_settings"]:
            assert _core.torch_settings("pytorch:" + row["torch_settings"].partition("=")[2])
    code, out, _ = memoir("simulate", SMALL, "--what-if")
    assert code == 0 and "PYTORCH_CUDA_ALLOC_CONF=" in out


def test_phases(memoir, results):
    (row,) = results(SMALL, "--policy", "split", "--phases")
    phases = {phase["phase"]: phase for phase in row["phases"]}
    assert list(phases) == sorted(phases) and list(phases)[8] == "2.0 gc(false)"
    assert phases["1.2 scan"]["calls"] == row["workload"]["objects"]
    code, out, _ = memoir("simulate", SMALL, "--policy", "split", "--phases")
    assert code == 0 and "1.2 scan" in out and "share" in out


def test_timelines_keep_the_peak(results):
    (row,) = results(SMALL, "--policy", "pytorch", "--timeline")
    line = row["timeline"]
    assert len(line["event"]) <= 1000
    assert max(line["live"]) == row["peak_live"] and max(line["reserved"]) == row["peak_reserved"]
    assert "timeline" not in results(SMALL, "--policy", "pytorch")[0]


def test_policies_are_listed_with_their_settings(memoir):
    code, out, _ = memoir("simulate", "--policies")
    assert code == 0 and "granule" in out and "max_split_size" in out
    code, out, _ = memoir("simulate", "--policies", "--json")
    rows = {row["policy"]: row for row in json.loads(out)}
    granule = rows["span"]["settings"][0]
    assert granule["takes"] == "bytes" and granule["default"] == "0"


def test_a_sweep_uses_processes_and_survives_a_task_that_fails(memoir):
    arguments = (
        "simulate",
        SMALL,
        GPU / "bcrafton_cs336.d0.trace",
        "--cap",
        "2GiB",
        "--workers",
        "2",
        "--json",
    )
    code, out, err = memoir(*arguments, "--policy", "span", "--policy", "static_tensors,pool=1GiB|3GiB")
    summary = json.loads(out)
    assert code == 1
    assert len(summary["results"]) == 4 and len(summary["failed"]) == 2
    assert "does not fit where" in summary["failed"][0]["error"]
    assert "--policy static_tensors,pool=3GiB" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "spam"), "did you mean 'span'?"),
        (("--policy", "span,granul=1"), "did you mean 'granule'?"),
        (("--policy", "span,granule=big"), "is not a size"),
        (("--policy", "span,granule=3KiB"), "power of two"),
        (("--policy", "rmm:x:1"), "no text form"),
        (("--policy", "pytorch:max_spilt_size_mb:64"), "did you mean 'max_split_size_mb"),
        (("--cap", "0.5x"), "nothing can complete"),
        (("--cap", "lots"), "is not a cap"),
        (("--cap", "1MiB"), "largest request"),
        (("--workers", "0"), "not in the range"),
        (("--what-if", "--policy", "span"), "leave --policy out"),
        (("-o", "x.txt"), "suffix"),
    ],
)
def test_bad_arguments_get_one_line(memoir, arguments, message):
    if "--policy" not in arguments and "--what-if" not in arguments:
        arguments = (*arguments, "--policy", "span")
    code, out, err = memoir("simulate", SMALL, *arguments)
    assert code == 2 and out == ""
    assert message in err
    assert "Traceback" not in err


def test_bad_files_get_one_line(memoir, tmp_path):
    (tmp_path / "x.trace").write_bytes(b"\x89memoirT rubbish")
    for name in ("x.trace", "none.trace"):
        code, out, err = memoir("simulate", name)
        assert code == 2 and out == "" and name in err
    assert memoir("simulate")[0] == 2


def test_from_python():
    trace = open_trace(SMALL)
    result = simulate(trace, "pytorch:expandable_segments:True", cap="1.2x", timed=False)
    assert result.completed and result.peak_reserved <= result.cap
    with pytest.raises(AttributeError):
        result.peak_reserved = 0
    import memoir

    assert memoir.simulate is simulate


def test_alternatives_are_expanded_outside_brackets():
    assert expand(["span,granule=4KiB|64KiB"]) == ["span,granule=4KiB", "span,granule=64KiB"]
    assert expand(["pytorch:max_split_size_mb:64|128,roundup_power2_divisions:[256:1,>:4]"]) == [
        "pytorch:max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]",
        "pytorch:max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]",
    ]
    assert expand(["rmm", "all"]).count("rmm") == 1


def test_a_snapshot_is_read_as_it_is(results, memoir, tmp_path):
    frames = [{"filename": "train.py", "line": 7, "name": "step"}]
    entry = {"stream": 0, "time_us": 10, "frames": frames}
    entries = [
        {**entry, "action": action, "addr": (1 + i % 3) << 24, "size": 1 << (20 + i % 3)}
        for action in ("alloc", "free_requested", "free_completed")
        for i in range(3)
    ]
    snapshot = {"segments": [], "device_traces": [entries], "allocator_settings": {}}
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
    (row,) = results("snapshot.pickle", "--policy", "pytorch")
    assert row["floor"] == 7 << 20 and row["operations"] == 6
    (row,) = results("snapshot.pickle", "--policy", "pytorch", "--cap", "6MiB")
    assert row["out_of_memory"]["site"].endswith("step train.py:7") or "step" in row["out_of_memory"]["site"]
    (tmp_path / "cut.pickle").write_bytes(pickle.dumps(snapshot, protocol=4)[:100])
    code, out, err = memoir("simulate", "cut.pickle")
    assert code == 2 and out == "" and "cut.pickle" in err


# --- text traces ---


def test_import_makes_a_trace_of_text(memoir, results, tmp_path):
    code, out, err = memoir("import", SMALL, "-o", "x.trace")
    assert code == 0 and "memoir simulate x.trace" in out, err
    (imported,), (text,) = results("x.trace", "--policy", "span"), results(SMALL, "--policy", "span")
    assert imported["peak_reserved"] == text["peak_reserved"]
    (tmp_path / "bad").write_text("b\nf 1\n")
    code, out, err = memoir("import", "bad", "-o", "y.trace")
    assert code == 2 and "bad:2:" in err and not (tmp_path / "y.trace").exists()


def test_a_text_trace_becomes_a_trace(tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT)
    assert (
        _core.is_text_trace(TEXT.encode())
        and not _core.is_text_trace(b"\x89memoirT")
        and not _core.is_text_trace(b"id,lower")
    )
    content, counts = _core.import_text_trace(TEXT.encode(), device=2)
    assert counts == {"allocations": 2, "frees": 2, "segments": 1, "out_of_memory": 1, "live_before": 1}
    trace = _core.Trace.from_bytes(content)
    kinds = [_core.EventKind(kind).name for kind in trace.events["kind"]]
    assert kinds == [
        *("kMeta", "kSegmentAllocate", "kAllocate", "kAddress", "kAllocate", "kAddress", "kAllocate"),
        *("kFree", "kOutOfMemory", "kFree"),
    ]
    assert trace.complete
    assert set(trace.events["device"][1:]) == {2}
    assert list(trace.events["stream"][trace.events["kind"] == _core.EventKind.kAllocate]) == [0, 0, 1]
    workload = _core.Workload(trace, 2)
    assert workload.peak_live == 10000000 and workload.streams == 2  # with the request that failed
    assert open_trace(path).events["size"].tolist() == trace.events["size"].tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b\na 1 5\n", ":2: 'a' takes 3 or 4 numbers"),
        ("b\na 1 5 0\na 1 5 0\n", ":3: object 1 is allocated a second time"),
        ("b\nf 1\n", ":2: object 1 is not live"),
        ("b\nx 1\n", ":2: no event begins with 'x'"),
        ("b\na 1 -5 0\n", ":2: '-5' is not a number"),
        ("b\na 1 99999999999999999999 0\n", ":2: '99999999999999999999' is not a number"),
        (f"b\na 1 {2**60} 0\n", ":2: a number in it is out of bounds"),
        ("b\ni 1 5 0\n", ":2: 'i' is on the wrong side"),
        ("i 1 5 0\n", "no line 'b'"),
        ("b\nb\n", ":2: a second 'b'"),
        ("b\na 1 5 4294967296\n", ":2: stream"),
        ("b\na 1 5 0 1 2\n", ":2: 'a' takes 3 or 4 numbers"),
        ("# caf\u00e9\nb\n", ":1: is not ASCII"),
        (f"b\na 1 {2**56} 0\na 2 1 0\n", ":3: the live objects add up to more than 2^56"),
        (f"b\na 1 2 0 {2**63 - 1}\n", ":2: object 1 ends beyond 2^63"),
        ("b\n" + "S 4096 2097152\n" * 1000, ":3: the segment of 2097152 bytes at 0x1000 overlaps"),
        ("s 4096 4096\ns 0 4097\nb\n", ":2: the segment of 4097 bytes at 0x0 overlaps the one of 4096 bytes"),
        ("b\nM 0 4096\nM 4096 4096\nS 8191 4096\n", ":4: the segment of 4096 bytes at 0x1fff overlaps"),
        ("b\nR 4096 4096\n", ":2: the segment of 4096 bytes at 0x1000 goes back but is not held"),
        (
            "b\nM 4096 4096\nU 4096 8192\n",
            ":3: memory of 8192 bytes at 0x1000 is unmapped, but not all of it",
        ),
        ("s 4096 4096\ni 1 4097 0 4096\nb\n", ":2: object 1 of 4097 bytes at 0x1000 lies in no segment"),
        ("b\na 1 5 0 8\na 2 5 0 4\n", ":3: object 2 of 5 bytes at 0x4 overlaps object 1 of 5 bytes at 0x8"),
        ("b\nS 1 9\na 1 5 0 2\nR 1 9\n", ":4: the segment of 9 bytes at 0x1 goes back while object 1"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Error, match="text") as error:
        open_trace(path)
    assert message in str(error.value)


def test_memory_of_addresses_is_given_and_taken_in_other_pieces():
    text = (
        "b\nM 0 4096\nM 4096 4096\na 1 8192 0 0\nf 1\nU 1024 4096\nM 2048 1024\na 2 1024 0 2048\na 3 0 0 9\n"
    )
    assert _core.import_text_trace(text.encode())[1]["segments"] == 4


def test_a_workload_may_take_the_events_of_a_trace():
    trace, other = open_trace(SMALL), open_trace(SMALL)
    before = trace.events
    kept, taken = _core.Workload(other), _core.Workload.take(trace)
    for name in ("operations", "objects", "peak_live", "peak_event", "largest", "streams", "most_live"):
        assert getattr(taken, name) == getattr(kept, name), name
    for policy in ("memoir", "pytorch"):
        one, two = (_core.simulate(workload, policy, timed=False) for workload in (kept, taken))
        assert (one.peak_reserved, one.calls.all) == (two.peak_reserved, two.calls.all)
    assert len(trace.events) == 0 and len(other.events) == len(before)
    assert trace.meta("source") == "text trace"


def test_simulations_do_without_numpy():
    """It takes 10 MB, and longer to import than a small trace to simulate."""
    script = "import sys; from memoir.cli import main\ntry: main()\nfinally: print('numpy' in sys.modules)"
    command = [sys.executable, "-c", script, "simulate", str(SMALL), "--policy", "memoir", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("}\nFalse\n")


def test_many_events_are_not_kept(memoir, results, monkeypatch, tmp_path):
    """Of large traces: a question that needs the events again reads the file again."""
    path = tmp_path / "failed.txt"
    path.write_text(TEXT)

    def answers():
        rows = results(path, "--policy", "span|rmm") + results(path, "--device", "0", "--policy", "memoir")
        counted = [(row["peak_reserved"], row["floor"], row["device_calls"], row["workload"]) for row in rows]
        code, out, err = memoir("oom", path, "--cap", "20MiB", "--no-caps", "--json")
        assert code == 0, err
        return counted, json.loads(out)["failure"], json.loads(out)["held"]

    kept = answers()
    monkeypatch.setattr(simulation, "_MANY", 1)
    for cached in (simulation._trace_of, simulation._workload_of, simulation._devices_of):
        cached.cache_clear()
    assert answers() == kept
    code, _, err = memoir("simulate", path, "--device", "3")
    assert code == 2 and "allocates nothing on device 3" in err


def test_the_benchmark_runs_in_small():
    bench = Path(__file__).parents[2] / "bench" / "pool" / "simulate.py"
    done = subprocess.run([sys.executable, bench, "--smoke"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"| {name} |" in done.stdout for name, _, _ in _core.policies())
    assert "policies and settings in" in done.stdout


def test_all_recorded_programs(results):
    shared = Path(__file__).parents[3] / "shared" / "gpu-traces"
    if not shared.exists():
        pytest.skip("no shared traces here")
    paths = sorted(shared.glob("*/*.trace"))
    rows = results(*paths, "--policy", "planned", "--policy", "pytorch")
    assert len(rows) == 2 * len(paths)
    assert all(row["completed"] for row in rows)
