# SPDX-License-Identifier: Apache-2.0
"""A program under the malloc with a model: it answers for contexts, and a model that is none costs a sentence."""

import os
import re
import shutil
import struct
import subprocess
import sys

import numpy
import pytest
from memoir.lifetimes.names import name_frames
from memoir.lifetimes.sampling import Collector
from memoir.train import train

from memoir import Error, _core, malloc

ALL_STAGES = 31


def model(stacks, *, stages=ALL_STAGES, one_class=False, modules=(), addresses=(), key=0):
    """A model that knows these stacks: {plain names, innermost first: probability of long}. One label an edge."""
    hashes = sorted({_core.name_hash(name, key) for stack in stacks for name in stack})
    numbers = {value: number for number, value in enumerate(hashes)}
    paths = sorted(
        (tuple(numbers[_core.name_hash(name, key)] for name in stack), share)
        for stack, share in stacks.items()
    )
    answers, nodes, labels = [], [], []
    rows = [((), False)]
    for prefix, _ in rows:
        below = [(path, share) for path, share in paths if path[: len(prefix)] == prefix]
        children = sorted({path[: len(prefix) + 1] for path, _ in below if len(path) > len(prefix)})
        share = sum(share for _, share in below) / max(len(below), 1)
        answers.append(
            struct.pack(
                "<8BHH", 1 if share < 0.5 else 0, *[0] * 6, 1 if share >= 0.5 else 0, int(share * 65535), 50
            )
        )
        ends = any(path == prefix for path, _ in below) and prefix != ()
        first = len(rows) if children else 0
        nodes.append(
            struct.pack(
                "<III", first | bool(prefix) << 24, len(labels) | ends << 24, len(nodes) | len(children) << 16
            )
        )
        labels += prefix[-1:]
        rows += [(child, False) for child in children]
    settings = struct.pack("<IIHHfffffIff", one_class, stages, 2, 1, 0, 0, 0, 0.5, 2, 0, 0, 0) + bytes(20)
    knots = numpy.linspace(0, 1, 17, dtype="<f4").tobytes() * 4
    return _core.write_model(
        {
            "settings": settings,
            "modules": b"".join(struct.pack("<II32s", len(build), 0, build) for build in modules),
            "addresses": b"".join(struct.pack("<IIHH", *row) for row in addresses),
            "names": numpy.array(hashes, "<u8").tobytes(),
            "nodes": b"".join(nodes),
            "labels": numpy.array(labels, "<u2").tobytes(),
            "answers": b"".join(answers),
            "calibration": (struct.pack("<f", 1) + knots) * 5 + bytes(60),
        },
        key,
    )


STACKS = {
    ("keep_session", "main"): 0.95,
    ("keep_session", "serve", "main"): 0.95,
    ("parse_request", "serve", "main"): 0.02,
    ("render_reply", "serve", "main"): 0.02,
}


@pytest.fixture
def program(compiled):
    return compiled("foreseen.c", "-ldl", "-fno-omit-frame-pointer")


def answers(result):
    """How many contexts each stage answered for, by the fourth line of the figures."""
    line = re.search(
        r"model: (\d+) contexts known by address, (\d+) looked at, answered by (.*), (\d+) called long",
        result.stderr,
    )
    assert line is not None, result.stderr
    return {stage: int(count) for stage, count in re.findall(r"(\w+) (\d+)", line[3])} | {
        "known": int(line[1])
    }


def test_contexts_are_answered_for_by_their_names(tmp_path, under, program):
    path = tmp_path / "x.model"
    path.write_bytes(model(STACKS))
    result = under([program, 4], {"model": str(path), "stats": "true", "sample": "4KiB"})
    assert result.returncode == 0, result.stderr
    found = answers(result)
    assert found["names"] + found["near"] >= 4, result.stderr
    assert "called long-lived" in result.stderr
    assert "two classes" in result.stderr


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip")
def test_a_stripped_program_has_no_names(tmp_path, under, program):
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(program)], check=True)
    path = tmp_path / "x.model"
    path.write_bytes(model(STACKS))
    result = under([stripped, 0], {"model": str(path), "stats": "true", "sample": "4KiB"})
    assert result.returncode == 0, result.stderr
    assert sum(count for stage, count in answers(result).items()) == 0


def test_a_model_of_one_class_changes_nothing(tmp_path, under, program):
    path = tmp_path / "x.model"
    path.write_bytes(model(STACKS, one_class=True))
    result = under([program, 0], {"model": str(path), "stats": "true"})
    assert result.returncode == 0, result.stderr
    assert "malloc: model" not in result.stderr


def test_a_model_that_is_none_costs_a_sentence(tmp_path, under, program):
    good = model(STACKS)
    for name, content in {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "long": good + b"more",
        "turned": good[:200] + bytes([good[200] ^ 1]) + good[201:],
        "text": b"no model at all" * 100,
    }.items():
        path = tmp_path / f"{name}.model"
        path.write_bytes(content)
        result = under([program, 0], {"model": str(path)})
        assert result.returncode == 0, result.stderr
        assert re.fullmatch(rf"memoir: {path}: .*; the program runs without a model\n", result.stderr), (
            result.stderr
        )
    result = under([program, 0], {"model": str(tmp_path)})
    assert result.returncode == 0
    assert "cannot be read" in result.stderr
    result = under([program, 0], {"model": str(path), "background": "false"})
    assert result.returncode == 0
    assert result.stderr == ""


def test_the_settings_take_a_path(under):
    assert malloc.settings()["model"].initial == "none"
    result = under(["true"], {"model": "x" * 5000})
    assert "must be a path" in result.stderr


def test_addresses_fill_the_table_at_the_start(tmp_path, under, program):
    from memoir.record.elf import ElfFile

    with ElfFile(program) as file:
        build = bytes.fromhex(file.build_id)
        starts = {symbol.name: symbol.value for symbol in file.symbols(dynamic=False)}
    if not build:
        pytest.skip("this compiler writes no build ids")
    # Any address inside of the module will do: what is told is counted.
    rows = sorted((starts[name] + 4, 64, 0, 0) for name in ("keep_session", "parse_request"))
    path = tmp_path / "x.model"
    path.write_bytes(model(STACKS, modules=[build], addresses=rows))
    result = under([program, 2], {"model": str(path), "stats": "true", "sample": "4KiB"})
    assert answers(result)["known"] == 2


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip")
def test_a_stripped_program_s_threads_are_known_by_the_height_of_their_stacks(tmp_path, under, program):
    """Of a profile: what the recorder preloads and the malloc have different static TLS, where a thread's stack begins."""
    with Collector(64 << 10) as collector:
        subprocess.run([program, "0", "thread"], env=collector.environment, check=True)
    trained = train([name_frames(collector.lifetimes())], replayed=False)
    if not trained.model.count("modules"):
        pytest.skip("this compiler writes no build ids")
    stripped, path = tmp_path / "stripped", tmp_path / "x.model"
    subprocess.run(["strip", "-o", str(stripped), str(program)], check=True)
    path.write_bytes(trained.content)
    result = under([stripped, 1, "thread"], {"model": str(path), "stats": "true", "sample": "16KiB"})
    assert result.returncode == 0, result.stderr
    # What is kept is known from the start; what is freed is looked at, and has no name.
    assert answers(result)["known"] >= 1
    assert re.search(r"known by address, [01] looked at", result.stderr), result.stderr


def test_a_model_is_checked_before_a_program_runs(tmp_path):
    with pytest.raises(Error, match="not a model"):
        _core.LifetimeModel.from_bytes(b"x" * 100, "x.model")


def test_a_model_that_is_a_pipe_is_said_and_waited_for_by_nobody(library, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    program = "import time; kept = [bytes(1000) for _ in range(60000)]; time.sleep(0.5)"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONMALLOC": "malloc",
            "MEMOIR_MALLOC": f"background_from=1,split_from=1,model={tmp_path / 'pipe'}",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0 and "cannot be read" in ended.stderr, ended.stderr
