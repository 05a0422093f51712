# SPDX-License-Identifier: Apache-2.0
"""What only a model needs is a library of its own: loaded where a model is set, and nowhere else."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from memoir.lifetimes.names import name_frames
from memoir.lifetimes.sampling import Collector
from memoir.train.assembly import NETWORK, Parts, Settings, model_bytes
from memoir.train.contexts import read_contexts
from test_foresight import STACKS, answers, model

LIBRARY = "libmemoir_model.so"
# Grows, and waits until the library is there, or until the background must have come by many times.
WAITS = """
import sys, time
kept = [bytes(1000) for _ in range(60000)]
end = time.monotonic() + float(sys.argv[1])
while not (loaded := "libmemoir_model" in open("/proc/self/maps").read()) and time.monotonic() < end:
    kept.append([bytes(1000) for _ in range(100)])
    time.sleep(0.02)
print("loaded" if loaded else "not loaded")
"""
SMALL = "background_from=1,split_from=1,sample=4KiB"


def run(library, settings, seconds, program=WAITS):
    """A Python program under the malloc of that file, with one second for what should not come."""
    return subprocess.run(
        [sys.executable, "-c", program, str(seconds)],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc", "MEMOIR_MALLOC": settings},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def known(tmp_path):
    path = tmp_path / "x.model"
    path.write_bytes(model(STACKS))
    return path


@pytest.mark.parametrize("secure", [False, True])
def test_it_is_loaded_where_a_model_is_set(library, known, secure):
    if secure:
        library = library.with_name("libmemoir_malloc_secure.so")
    done = run(library, f"{SMALL},secure={int(secure)},model={known}", 60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded\n", "")
    done = run(library, f"{SMALL},secure={int(secure)}", 1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "not loaded\n", "")


def test_without_it_there_is_a_sentence_and_no_model(library, known, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(library, alone)
    done = run(alone / library.name, f"{SMALL},model={known}", 1)
    said = rf"memoir: {alone}/{LIBRARY}: cannot be loaded; the program runs without a model\n"
    assert (done.returncode, done.stdout) == (0, "not loaded\n")
    assert re.fullmatch(said, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("struct { unsigned version; } memoir_model_door = {99};", "is of another version of memoir"),
        ("int nothing;", "is of another version of memoir"),
        (None, "cannot be loaded"),
    ],
)
def test_another_library_of_that_name_is_not_used(library, known, tmp_path, source, said):
    shutil.copy(library, tmp_path)
    other = tmp_path / LIBRARY
    if source is None:
        other.write_bytes(b"no library")
    else:
        made = tmp_path / "other.c"
        made.write_text(source)
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", str(other), str(made)], check=True
        )
    done = run(tmp_path / library.name, f"{SMALL},model={known}", 1)
    assert done.returncode == 0
    assert re.fullmatch(rf"memoir: \S*{LIBRARY}: {said}; the program runs without a model\n", done.stderr), (
        done.stderr
    )


def test_a_child_answers_too(library, known):
    """Forked before the library is loaded, while it is, and after: the child goes on, whatever it has of it."""
    forks = """
import os, time
kept = [bytes(1000) for _ in range(30000)]
for _ in range(60):
    kept.append([bytes(1000) for _ in range(500)])
    child = os.fork()
    if child == 0:
        more = [bytes(1000) for _ in range(2000)]
        os._exit(7 if len(more) == 2000 else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    time.sleep(0.005)
print("done")
"""
    for _ in range(3):
        done = run(library, f"{SMALL},model={known}", 0, forks)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("kind", ["lstm", "mingru"])
def test_a_network_answers_for_contexts(kind, under, compiled, tmp_path):
    torch = pytest.importorskip("torch")
    from memoir.train.network import SPLITS, _vocabulary, make_module, section

    program = compiled("foreseen.c", "-ldl", "-fno-omit-frame-pointer")
    with Collector(64 << 10) as collector:
        subprocess.run([program, "0"], env=collector.environment, check=True)
    contexts = read_contexts([name_frames(collector.lifetimes())], 2.0)
    torch.manual_seed(3)
    hashes = _vocabulary(contexts.stacks, SPLITS[kind], 0)
    module = make_module(kind, len(hashes) + 3).eval()
    path = tmp_path / "x.model"
    path.write_bytes(
        model_bytes(contexts, Settings(stages=NETWORK), Parts(network=section(kind, hashes, module)))
    )
    done = under([program, 1], {"model": str(path), "stats": "true", "sample": "4KiB"})
    assert done.returncode == 0, done.stderr
    assert answers(done)["network"] >= 1, done.stderr
