# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own caching allocator and memoir's heaps follow the same scripts.

The allocator is the one of the installed torch (libc10_cuda), on a CUDA runtime without a device: fake_cudart.cc hands
out addresses that nobody touches. Every address, every out-of-memory and every call to the device has to agree.
"""

import json
import os
import pickle
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from allocator_script import MIB, random_script
from memoir.simulation import simulate
from memoir.simulation.out_of_memory import explain

torch = pytest.importorskip("torch")

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TORCH = Path(torch.__file__).parent
CUDA = TORCH.parent / "nvidia" / "cu13" / "include"
MINOR = int(torch.__version__.split(".")[1])
CXX = shutil.which(os.environ.get("CXX", "g++"))

pytestmark = [
    pytest.mark.skipif(
        not (TORCH / "lib" / "libc10_cuda.so").exists() or not (CUDA / "cuda_runtime_api.h").exists(),
        reason="this torch was built without CUDA 13",
    ),
    pytest.mark.skipif(
        not 11 <= MINOR <= 13 or not torch.__version__.startswith("2."),
        reason="the heaps behave as torch 2.11, 2.12 or 2.13 does",
    ),
    pytest.mark.skipif(CXX is None, reason="there is no C++ compiler"),
]

SETTINGS = [
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:40,max_non_split_rounding_mb:30",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.8,max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:4,4:8,16:1,>:2]",
    "large_segment_size_mb:40",
    "large_segment_size_mb:12,max_split_size_mb:12",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:12",
    "expandable_segments:True,max_split_size_mb:24",
    "expandable_segments:True,garbage_collection_threshold:0.5,per_process_memory_fraction:0.7",
    "expandable_segments:True,roundup_power2_divisions:[2:8,>:4]",
]


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder with both programs."""
    folder = tmp_path_factory.mktemp("allocators")
    headers = [f"-I{HERE / 'stand_ins'}", f"-I{CUDA}", f"-I{TORCH / 'include'}"]
    sources = [
        path for room in ("base", "heap/peers/pytorch") for path in (ROOT / "src/memoir" / room).glob("*.cc")
    ]
    runtime = folder / "libcudart.so.13"
    script = f"-Wl,--version-script={HERE / 'fake_cudart.map'}"
    commands = [
        [
            *headers,
            "-shared",
            "-fPIC",
            HERE / "fake_cudart.cc",
            script,
            "-Wl,-soname,libcudart.so.13",
            "-o",
            runtime,
        ],
        [*headers, HERE / "torch_allocator.cc", runtime, f"-L{TORCH / 'lib'}", "-lc10_cuda", "-lc10"]
        + [f"-Wl,-rpath,{TORCH / 'lib'}", "-o", folder / "torch_allocator"],
        [f"-I{ROOT / 'src'}", HERE / "memoir_allocator.cc", *sources, "-o", folder / "memoir_allocator"],
    ]
    for command in commands:
        done = subprocess.run([CXX, "-std=c++20", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (folder / "libnvidia-ml.so.1").symlink_to(runtime)
    return folder


def run(folder, program, settings, memory, cap, script, *more):
    """What the program prints."""
    large = re.search(r"large_segment_size_mb:(\d+)", settings)
    unit = (int(large[1]) if large else 20) * MIB
    addresses = memory + memory // 8
    stride = max(-(-addresses // size) * size for size in (2 * MIB, unit))
    environment = dict(os.environ)
    if program == "torch_allocator":
        environment |= {"LD_PRELOAD": str(folder / "libcudart.so.13"), "LD_LIBRARY_PATH": str(folder)}
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    done = subprocess.run(
        [folder / program, settings, *map(str, (memory, cap, stride, MINOR, *more))],
        input=script, capture_output=True, text=True, env=environment, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def follow(*arguments):
    """What the program prints, as lines; what it gives back in one step has no order."""
    lines, given_back = [], []
    for line in run(*arguments).splitlines():
        if line[:2] in ("R ", "U "):
            given_back.append(line)
        else:
            lines += sorted(given_back) + [line]
            given_back = []
    return lines + sorted(given_back)


def assert_same(folder, settings, memory, cap, script):
    theirs = follow(folder, "torch_allocator", settings, memory, cap, script)
    ours = follow(folder, "memoir_allocator", settings, memory, cap, script)
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        assert one == other, f"{settings!r}, line {number}, after {theirs[max(0, number - 5) : number]}"
    assert len(theirs) == len(ours)
    return theirs


@pytest.mark.parametrize("features", ["", "streams", "pools"])
def test_scripts(programs, features):
    refused = calls = 0
    for seed in range(2 * len(SETTINGS)):
        choice = random.Random(seed)
        memory = choice.choice([300, 500, 1000, 2000, 100_000]) * MIB
        cap = choice.choice([memory, memory * 9 // 10, memory // 2])
        script = random_script(seed, features, choice.choice([400, 1500]), MINOR)
        lines = assert_same(programs, SETTINGS[seed % len(SETTINGS)], memory, cap, script)
        refused += sum(line.endswith("oom") for line in lines)
        calls += sum(line[:2] in ("S ", "M ", "R ", "U ") for line in lines)
    assert refused > 100 and calls > 1000  # or the scripts show little


def recorded_by_torch(folder, settings, memory, cap, script, entries):
    """A memory snapshot of PyTorch's allocator after the script, with its last so many entries."""
    found = json.loads(run(folder, "torch_allocator", settings, memory, cap, script, entries))
    divisions = found["settings"]["roundup_power2_divisions"]
    found["settings"]["roundup_power2_divisions"] = {str(1 << i): n for i, n in enumerate(divisions)}
    for segment in found["segments"]:
        segment |= {
            "frames": [],
            "segment_type": "large",
            "segment_pool_id": tuple(segment["segment_pool_id"]),
        }
    for at, entry in enumerate(found["trace"]):
        entry |= {"time_us": at + 1, "frames": [], "pool_id": tuple(entry["pool_id"])}
        if entry["action"] == "oom":
            entry["device_free"] = entry.pop("addr")
    return {
        "segments": found["segments"],
        "device_traces": [found["trace"]],
        "allocator_settings": found["settings"],
    }


def reproduced(snapshot, path):
    """The simulation from the recorded state, which has to agree with the recording in everything."""
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    result = simulate(path, from_recorded=True, timed=False)
    fidelity = result.fidelity
    assert fidelity.same_settings and fidelity.start_segments > 0
    assert (fidelity.agreed, result.calls.all) == (fidelity.objects, fidelity.recorded_calls)
    assert result.peak_reserved == fidelity.recorded_peak
    return result


@pytest.mark.skipif(MINOR == 12, reason="its ties depend on the ages of records, which no snapshot tells")
@pytest.mark.parametrize("features", ["", "streams"])
def test_simulations_go_on_from_what_torch_recorded(programs, features, tmp_path):
    """Its own snapshots, which lost the beginning of the history: every later object has to get its address."""
    compared = calls = 0
    for seed, settings in enumerate(SETTINGS):
        script = random_script(seed, features, 1500, MINOR)
        snapshot = recorded_by_torch(programs, settings, 100_000 * MIB, 100_000 * MIB, script, 1000)
        fidelity = reproduced(snapshot, tmp_path / "snapshot.pickle").fidelity
        compared += fidelity.objects
        calls += fidelity.recorded_calls
    assert compared > 4000 and calls > 500


@pytest.mark.skipif(MINOR == 12, reason="its ties depend on the ages of records, which no snapshot tells")
@pytest.mark.parametrize("features", ["graphs", "graphs ends"])
def test_simulations_go_on_with_private_pools(programs, features, tmp_path):
    """The same with up to three pools of graphs. Entries tell their pools; of older torch segments alone do, which is
    as much unless pools end."""
    path = tmp_path / "snapshot.pickle"
    private = 0
    for seed, settings in enumerate(SETTINGS):
        script = random_script(100 + seed, features, 1500, MINOR)
        snapshot = recorded_by_torch(programs, settings, 100_000 * MIB, 100_000 * MIB, script, 1000)
        recorded = [s["total_size"] for s in snapshot["segments"] if s["segment_pool_id"] != (0, 0)]
        assert reproduced(snapshot, path).private_reserved == sum(recorded)
        private += bool(recorded)
        for entry in snapshot["device_traces"][0]:
            del entry["pool_id"]
        if features == "graphs":
            assert reproduced(snapshot, path).private_reserved == sum(recorded)
    assert private > len(SETTINGS) // 2


@pytest.mark.parametrize(
    "settings",
    [
        *["large_segment_size_mb:10", "large_segment_size_mb:11", "max_split_size_mb:19", "max_split_size_mb:20MB"],
        *["max_split_size_mb:-1", "max_split_size_mb:x", "max_split_size_mb:99999999999999999999", " max_split_size_mb : 30 ,"],
        *["max_split_size_mb:30,large_segment_size_mb:40", "max_non_split_rounding_mb:19"],
        *["max_split_size_mb:20,max_split_size_mb:40"],
        *["roundup_power2_divisions:3", "roundup_power2_divisions:0", "roundup_power2_divisions:8"],
        *["roundup_power2_divisions:[256:3]", "roundup_power2_divisions:[100:4]", "roundup_power2_divisions:[0:4]"],
        *["roundup_power2_divisions:[]", "roundup_power2_divisions:[>:4,256:2]", "roundup_power2_divisions:[1:2,,4:8]"],
        *["roundup_power2_divisions:[1:2", "roundup_power2_divisions:8,roundup_power2_divisions:[4:2]"],
        *["roundup_power2_divisions:[4:0,65536:16]", "roundup_power2_divisions:[1:4,1048576:2]"],
        *["garbage_collection_threshold:1.0", "garbage_collection_threshold:0", "garbage_collection_threshold:nan"],
        *["garbage_collection_threshold:0.5x", "garbage_collection_threshold:0,8", "per_process_memory_fraction:7"],
        *["per_process_memory_fraction:0", "expandable_segments:true", "expandable_segments:False", "backend:native"],
        *["backend:cudaMallocAsync", "foo:1", "max_split_size_mb", "max_split_size_mb:", "max_split_size_mb=20", "a:b:c", "["],
        *["pinned_use_background_threads:True",
        "pinned_use_background_threads:x", "throw_on_cudamalloc_oom:False", "release_lock_on_cudamalloc:True"],
        *["graph_capture_record_stream_reuse:False", "max_split_size_mb:30;expandable_segments:True"],
    ],
)  # fmt: skip
def test_settings(programs, settings):
    if MINOR < 13 and "throw_on_cudamalloc_oom" in settings:
        pytest.skip("this torch does not know the setting")
    sizes = [1, 512, 513, 5_000, 70_001, 600_000, MIB + 1, 1_500_000]
    sizes += [3_000_000, 7_000_001, 20_000_001, 40_000_000]
    script = "".join(f"allocate {i} {size} 0\n" for i, size in enumerate(sizes)) + "trim\n"
    try:
        assert_same(programs, settings, 1000 * MIB, 1000 * MIB, script)
    except AssertionError as error:
        if "INTERNAL ASSERT" not in str(error):  # torch ends itself over these, memoir refuses them
            raise
        assert follow(programs, "memoir_allocator", settings, 1000 * MIB, 1000 * MIB, script) == ["refused"]


def fragmenting_script(seed):
    """(steps, most bytes live): sizes of several classes that come and go in phases, so that holes do not fit."""
    choice = random.Random(seed)
    lines, live, held, most = [], {}, 0, 0
    for number in range(choice.choice([300, 700])):
        largest = [4 * MIB, 16 * MIB, 48 * MIB][number // 60 % 3]
        if live and choice.random() < (0.3 if number % 60 < 40 else 0.6):
            one = choice.choice(list(live))
            held -= live.pop(one)
            lines.append(f"free {one}")
            continue
        size = choice.randrange(largest // 8, largest) if choice.random() < 0.8 else choice.randrange(1, MIB)
        live[number] = size
        held += size
        most = max(most, held)
        lines.append(f"allocate {number} {size} {choice.choice([0, 0, 0, 1]) if seed % 3 == 2 else 0}")
    return lines, most


def until_it_fails(folder, settings, cap, lines):
    """The steps up to the one that PyTorch's allocator cannot serve; None when it serves all of them."""
    for number, line in enumerate(
        line
        for line in run(folder, "torch_allocator", settings, cap, cap, "\n".join(lines) + "\n").splitlines()
        if line.startswith(("allocate ", "free "))
    ):
        if line.endswith("oom"):
            return lines[: number + 1]
    return None


@pytest.mark.skipif(MINOR == 12, reason="its ties depend on the ages of records, which no snapshot tells")
@pytest.mark.parametrize("recorded", ["", "max_split_size_mb:64", "expandable_segments:True"])
def test_what_would_have_served_a_request_is_what_torch_does(programs, recorded, tmp_path):
    """Real failures under a cap: for every setting that `memoir oom` names, the verdict is that of PyTorch's own
    allocator with that setting, run on the same steps and the same device."""
    path = tmp_path / "failed.pickle"
    failures, verdicts = 0, []
    for seed in range(24):
        lines, most = fragmenting_script(seed)
        cap = -(-int(most * random.Random(seed).choice([0.97, 1.03, 1.08, 1.15])) // (2 * MIB)) * 2 * MIB
        steps = until_it_fails(programs, recorded, cap, lines)
        if steps is None:
            continue
        script = "\n".join(steps) + "\n"
        path.write_bytes(
            pickle.dumps(recorded_by_torch(programs, recorded, cap, cap, script, 100_000), protocol=4)
        )
        answer = explain(str(path), find_caps=False, workers=1)
        assert (
            answer["cap"] == cap and answer["cap_from"] == "held and free" and answer["recorded_fails_again"]
        )
        size = int(steps[-1].split()[2])
        assert size <= answer["failure"]["asked"] < size + max(512, size // 4)
        failures += 1
        if failures > 5:  # the rest would show the same, slowly
            break
        for row in answer["rows"]:
            if not row["policy"].startswith(("pytorch", "expandable")):
                continue
            settings = row["paste"].partition("=")[2]
            lived = "oom" not in run(programs, "torch_allocator", settings, cap, cap, script)
            assert row["survives"] in (None, lived), f"seed {seed}, {row['policy']}: {row['out_of_memory']}"
            verdicts.append(lived)
    assert failures >= 4 and any(verdicts) and not all(verdicts)  # or they show little
