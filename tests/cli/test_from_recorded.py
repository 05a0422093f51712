# SPDX-License-Identifier: Apache-2.0
"""`memoir simulate --from-recorded`: from the state that a recording has at its start, next to what was recorded."""

import json
import pickle
from pathlib import Path

import pytest
from memoir._core import Trace, TraceWriter, Workload, import_text_trace
from memoir.simulation import simulate
from memoir.simulation.recorded import recorded_policy, recorded_settings

from memoir import Error

GPU = Path(__file__).parents[1] / "data" / "gpu"
SHARED = Path(__file__).parents[3] / "shared" / "gpu-traces" / "snapshots"
SMALL = GPU / "silmont_fwd_fp32_128.d0.trace"
BASE = 0x7F00_0000_0000
MIB = 1 << 20

# Objects of the history, objects and segments at its start, device calls: counted in the files.
RECORDED = {
    "bcrafton_cs336.d0": ("pytorch", 2162, 447, 96, 0),
    "magma27_cs336.d0": ("pytorch", 1721, 229, 216, 0),
    "silmont_fwd_fp32_128.d0": ("pytorch", 681, 137, 29, 0),
    "shreyansh_profile_grad.d0": ("pytorch", 12, 0, 0, 7),
    "silmont_mem.d0": ("pytorch", 36, 0, 0, 9),
    "constructorsun_codeloc.d0": ("expandable", 2434, 0, 0, 175),
    "constructorsun_codeloc.d2": ("expandable", 392, 0, 0, 78),
}


@pytest.fixture
def results(memoir):
    def run(*arguments):
        status, out, err = memoir("simulate", *arguments, "--from-recorded", "--json")
        assert status == 0, err
        return json.loads(out)["results"]

    return run


@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_allocator_is_found_and_reproduced(results, name):
    policy, objects, live, segments, calls = RECORDED[name]
    (row,) = results(GPU / f"{name}.trace")
    fidelity = row["fidelity"]
    assert (row["policy"], row["start"], fidelity["same_settings"]) == (policy, "recorded", True)
    assert (fidelity["agreed"], fidelity["objects"], fidelity["first_difference"]) == (objects, objects, None)
    assert (fidelity["start_objects"], fidelity["start_segments"]) == (live, segments)
    assert row["peak_reserved"] == fidelity["recorded_peak"]
    assert row["device_calls"]["all"] == fidelity["recorded_calls"] == calls
    assert not fidelity["settings_recorded"]


@pytest.mark.parametrize(
    ("name", "objects", "live", "segments"),
    [("magma27_cs336", 1721, 229, 216), ("silmont_fwd_fp32_128", 681, 137, 29), ("muduard_d", 0, 2175, 368)],
)
def test_snapshots_of_strangers(results, name, objects, live, segments):
    if not SHARED.exists():
        pytest.skip("the snapshots are not here")
    (row,) = results(SHARED / f"{name}.pickle")
    fidelity = row["fidelity"]
    assert (fidelity["agreed"], fidelity["objects"]) == (objects, objects)
    assert (fidelity["start_objects"], fidelity["start_segments"]) == (live, segments)
    assert fidelity["settings_recorded"] == (name != "muduard_d")


@pytest.mark.parametrize("name", ["bcrafton_cs336.d0", "constructorsun_codeloc.d0", "silmont_mem.d0"])
def test_a_snapshot_that_lost_its_beginning_goes_on_from_the_rest(memoir, tmp_path, name):
    """The ring buffer of the history is of any size: what it dropped is undone from the end."""
    assert memoir("import", GPU / f"{name}.trace", "-o", "x.trace")[0] == 0
    assert memoir("export", "x.trace", "--to", "snapshot", "-o", "whole.pickle")[0] == 0
    whole = pickle.loads((tmp_path / "whole.pickle").read_bytes())  # of our own making
    entries = whole["device_traces"][0]
    for part in range(1, 4):
        whole["device_traces"] = [entries[len(entries) * part // 4 :]]
        (tmp_path / "cut.pickle").write_bytes(pickle.dumps(whole, protocol=4))
        result = simulate("cut.pickle", from_recorded=True, timed=False)
        fidelity = result.fidelity
        assert fidelity.start_segments > 0 and fidelity.start_objects > 0
        assert fidelity.agreed == fidelity.objects > 0
        assert result.peak_reserved == fidelity.recorded_peak
        assert result.calls.all == fidelity.recorded_calls


def test_the_lines_say_what_agrees_and_what_starts_afresh(memoir):
    code, out, err = memoir("simulate", SMALL, "--from-recorded")
    assert code == 0, err
    assert "681 of 681 recorded addresses reproduced, 582 MiB reserved at the peak, 0 device calls" in out
    assert "from 29 segments of 582 MiB with 137 live objects" in out
    assert f"next: memoir simulate {SMALL} --from-recorded --what-if" in out
    assert "but for policies with a recorded start" in err
    code, out, _ = memoir("simulate", SMALL, "--from-recorded", "--policy", "pytorch", "--policy", "span")
    rows = {
        line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith(("pytorch ", "span"))
    }
    assert rows == {"pytorch": "recorded", "span": "afresh"}
    assert "recorded addresses" not in memoir("simulate", SMALL, "--policy", "pytorch")[1]


def test_what_does_not_agree_is_counted_and_named(memoir, tmp_path):
    objects = [(2, 3 * MIB, BASE + 3 * MIB), (3, 3 * MIB, BASE + 12 * MIB), (4, 3 * MIB, BASE + 9 * MIB)]
    write(tmp_path / "x.trace", segments=[(BASE, 20 * MIB)], before=[(1, 3 * MIB, BASE)], after=objects)
    code, out, _ = memoir("simulate", "x.trace", "--from-recorded")
    assert code == 0
    # Best fit puts the second right behind the first.
    assert "2 of 3 recorded addresses reproduced (66.67 %; the first elsewhere is event 5)" in out
    assert "perhaps the cause: a device that was full" in out and "as recorded\n" not in out


def test_other_settings_start_there_too_and_are_not_called_reproductions(memoir, results):
    rows = results(GPU / "bcrafton_cs336.d0.trace", "--what-if")
    starts = {row["policy"]: row["start"] for row in rows}
    assert starts["pytorch"] == starts["pytorch:roundup_power2_divisions:4"] == "recorded"
    assert starts["pytorch:expandable_segments:True"] == starts["memoir"] == "afresh"
    other = next(row for row in rows if row["policy"] == "pytorch:roundup_power2_divisions:4")
    assert not other["fidelity"]["same_settings"]
    assert other["fidelity"]["agreed"] < other["fidelity"]["objects"]
    code, out, _ = memoir("simulate", SMALL, "--from-recorded", "--what-if")
    assert code == 0 and out.count("recorded addresses reproduced") == 1
    (row,) = results(SMALL, "--policy", "expandable")  # other segments than the recorded
    assert row["start"] == "afresh" and row["fidelity"] is None


def test_without_the_flag_nothing_changes(memoir):
    _, out, _ = memoir("simulate", SMALL, "--policy", "pytorch", "--json")
    (row,) = json.loads(out)["results"]
    assert row["start"] is None and row["fidelity"] is None and row["operations"] == 1499


def write(path, *, settings=None, segments=(), before=(), after=()):
    """A trace as an importer writes it: (address, size) of segments, (object, size, address) of objects."""
    from memoir._core import EventKind

    with TraceWriter(str(path)) as writer:
        writer.set_time(0)
        if settings is not None:
            writer.meta("torch_settings", settings if isinstance(settings, str) else json.dumps(settings))
        for address, size in segments:
            writer.segment(EventKind.kSegmentAllocate, address, size)
        for number, size, address in before:
            writer.allocate(number, 0, size, 256)
            writer.address(number, address)
        for index, (number, size, address) in enumerate(after):
            writer.set_time(1000 * (index + 1))
            writer.allocate(number, 0, size, 256)
            writer.address(number, address)
    return path


SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:32, max_split_size_mb:64,per_process_memory_fraction:0.9",
    "max_split_size": 64 * MIB,
    "garbage_collection_threshold": 0.8,
    "expandable_segments": False,
    "roundup_power2_divisions": {"1": 4, "2": 4, "4": 0},
}


def test_the_recorded_settings_are_the_policys(tmp_path, results):
    # Under these settings 34,000,000 bytes become 40 MiB, before the history as in it.
    settings = SETTINGS | {"max_split_size": -1, "roundup_power2_divisions": {"16": 4, "32": 4, "64": 4}}
    objects = [(number, 34_000_000, BASE + 40 * MIB * number) for number in range(3)]
    write(
        tmp_path / "x.trace",
        settings=settings,
        segments=[(BASE, 120 * MIB)],
        before=objects[:1],
        after=objects[1:],
    )
    (row,) = results("x.trace")
    assert row["policy"] == (
        "pytorch:garbage_collection_threshold:0.8,"
        "roundup_power2_divisions:[16:4,32:4,64:4],large_segment_size_mb:32"
    )
    assert row["fidelity"]["settings_recorded"] and row["fidelity"]["agreed"] == 2
    (row,) = results("x.trace", "--policy", "pytorch")
    assert not row["fidelity"]["same_settings"] and row["fidelity"]["agreed"] == 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (SETTINGS, "max_split_size_mb:64,garbage_collection_threshold:0.8,"
         "roundup_power2_divisions:[1:4,2:4,4:0],large_segment_size_mb:32"),
        ({"max_split_size": -1, "roundup_power2_divisions": {"1": 0}}, ""),
        ({}, ""),
        (None, None),
        ("[1, 2]", None),
        ("{broken", None),
    ],
)  # fmt: skip
def test_settings_as_text(tmp_path, settings, text):
    assert recorded_settings(Trace.open(str(write(tmp_path / "x.trace", settings=settings)))) == text


def test_settings_that_pytorch_would_refuse_are_named(tmp_path, memoir):
    write(
        tmp_path / "x.trace",
        settings={"max_split_size": 5},
        segments=[(BASE, 20 * MIB)],
        before=[(1, 9, BASE)],
    )
    code, out, err = memoir("simulate", "x.trace", "--from-recorded")
    assert code == 2 and out == ""
    assert "x.trace: its recorded settings cannot be PyTorch's" in err and "max_split_size_mb" in err


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ({"after": [(1, 9, BASE)]}, "no recorded segments to start from"),
        (
            {"segments": [(BASE, 20 * MIB), (BASE + 2 * MIB, 2 * MIB)], "before": [(1, 9, BASE)]},
            "event 1: the recorded segment at 0x7f0000200000 overlaps the one of 20971520 bytes",
        ),
        (
            {"segments": [(BASE, 2 * MIB)], "before": [(6, 9, BASE + 4 * MIB)]},
            "event 1: object 6 of 9 bytes at 0x7f0000400000 was live when the history began, but lies in no",
        ),
        (
            {"segments": [(BASE, 20 * MIB)], "before": [(6, 3 * MIB, BASE), (7, 3 * MIB, BASE + MIB)]},
            "event 3: object 6 of 3145728 bytes at 0x7f0000000000 overlaps object 7",
        ),
        ({"segments": [(0, 1 << 50)], "before": [(1, 9, 0)]}, "more than a device has addresses for"),
    ],
)
def test_recordings_that_cannot_have_been(memoir, tmp_path, trace, message):
    write(tmp_path / "x.trace", **trace)
    code, out, err = memoir("simulate", "x.trace", "--from-recorded")
    assert code == 2 and out == "" and err.startswith("memoir: x.trace: ") and message in err
    assert memoir("simulate", "x.trace", "--policy", "span")[0] == 0  # which asks for none of it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s 4096 20971520\ni 1 9 0 4611686018427387904\nb\n", "object 1 of 9 bytes at 0x4000000000000000"),
        (f"s 0 {1 << 62}\ni 1 9 0 0\nb\n", "x.txt:1: a number in it is out of bounds"),
        (f"s 0 {1 << 64}\nb\n", "x.txt:1: '18446744073709551616' is not a number from 0 to 2^63"),
        ("s 4096 20971520\ni 1 9 0\nb\n", "object 1 was live when the history began, but the recording does"),
        ("s 4096 20971520\nb\na 1 9 0 4096\nM 33554432 2097152\n", "segments of both kinds"),
    ],
)
def test_text_traces_that_cannot_have_been(memoir, tmp_path, text, message):
    (tmp_path / "x.txt").write_text(text)
    code, out, err = memoir("simulate", "x.txt", "--from-recorded")
    assert code == 2 and out == "" and message in err


def test_caps_below_the_start(memoir, results):
    code, out, err = memoir("simulate", SMALL, "--from-recorded", "--cap", "560MiB")
    assert code == 2 and out == "" and "610271232 bytes of segments" in err
    (row,) = results(SMALL, "--find-cap")
    assert row["smallest_cap"]["cap"] == row["fidelity"]["start_reserved"]


def test_from_python():
    result = simulate(SMALL, from_recorded=True, timed=False)
    assert result.policy == "pytorch" and result.fidelity.agreed == result.fidelity.objects == 681
    assert simulate(SMALL, timed=False).policy == "span"
    assert simulate(SMALL, "span", from_recorded=True, timed=False).fidelity is None
    workload = Workload(Trace.from_bytes(_text(SMALL)))
    assert recorded_policy(workload, None) == "pytorch"
    assert simulate(workload, from_recorded=True, timed=False).fidelity.agreed == 681
    with pytest.raises(Error, match="no recorded segments"):
        simulate(GPU / "gpt2m_varlen.trace", from_recorded=True)


def _text(path):
    return import_text_trace(path.read_bytes(), str(path))[0]
