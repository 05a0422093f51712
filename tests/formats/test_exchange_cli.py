# SPDX-License-Identifier: Apache-2.0
"""`memoir import` and `memoir export` at the terminal."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from memoir._core import Trace
from snapshots import BASE, LINEAR, MAIN, MIB, annotation, block, entry, segment, snapshot


def memoir(folder, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "memoir", *words], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path):
    content = snapshot(
        [
            entry("free_requested", BASE, 100, 0, frames=[MAIN], user_metadata="mine", pool_id=(0, 1)),
            entry("free_completed", BASE, 100, 0, pool_id=(0, 1)),
            entry("alloc", BASE, 2 * MIB, 5, frames=[LINEAR, MAIN]),
            entry("what_is_this", BASE, 1, 6),
        ],
        segments=[segment(BASE, 4 * MIB, [block(BASE, 2 * MIB), block(BASE + 3 * MIB, 512)])],
        annotations=[
            annotation("START", "Optimizer.step#SGD.step", 1),
            annotation("START", "ProfilerStep#1", 2),
        ],
    )
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(content))
    return tmp_path


def test_actions_need_not_be_text(tmp_path):
    rows = [entry("alloc", BASE, 512, 5), entry("action-A", BASE, 1, 6), entry("action-B", BASE, 1, 6)]
    content = pickle.dumps(snapshot(rows))
    for name, byte in (b"action-A", b"\xff"), (b"action-B", b"\xfe"):
        assert content.count(name) == 1
        content = content.replace(name, b"action-" + byte)
    (tmp_path / "x.pickle").write_bytes(content)
    done = memoir(tmp_path, "import", "x.pickle", "-o", "x.trace")
    assert done.returncode == 0, done.stderr
    assert "2 entries of the unknown action 'action-\ufffd': left out" in done.stderr


def test_import(folder):
    done = memoir(folder, "import", "x.pickle", "-o", "x.trace")
    assert done.returncode == 0, done.stderr
    assert "1 allocation and 1 free on 1 device, after 2 objects that were live before" in done.stdout
    assert "next: memoir simulate x.trace --what-if" in done.stdout
    for note in (
        "1 object of those live before is known only by its free: no site",
        "1 private pool (CUDA graphs, MemPools)",
        "1 entry with user metadata, which is not kept",
        "1 entry of the unknown action 'what_is_this': left out",
        "1 annotation of 'Optimizer.step' left out (--passes Optimizer.step makes passes of them)",
        "wrote x.trace",
    ):
        assert note in done.stderr
    assert Trace.open(folder / "x.trace").complete
    refused = memoir(folder, "import", "x.pickle")
    assert refused.returncode == 2 and "x.trace exists already; pass -f to overwrite it" in refused.stderr
    done = memoir(folder, "import", "x.pickle", "-f", "--json")
    counts = json.loads(done.stdout)
    assert (
        counts["allocations"] == 1
        and counts["other_actions"] == {"what_is_this": 1}
        and counts["passes"] == 1
    )
    shown = memoir(folder, "show", "x.trace")
    assert "/srv/model.py:54 forward" in shown.stdout and shown.returncode == 0


def test_bad_snapshots_leave_nothing(folder):
    whole = (folder / "x.pickle").read_bytes()
    (folder / "x.pickle").write_bytes(whole[: len(whole) // 2])
    done = memoir(folder, "import", "x.pickle", "-o", "y.trace")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("memoir: x.pickle: byte ") and done.stderr.count("\n") == 1
    assert "it is truncated" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["x.pickle"]
    for words, why in (
        (("import", "nothing.pickle"), "nothing.pickle: cannot be read: No such file"),
        (("import", "x.pickle", "-o", "x.csv"), "use one of .trace"),
        (("import", "x.pickle", "-o", "none/x.trace"), "there is no folder none"),
        (("export", "x.pickle", "--to", "chrome"), "it is truncated"),
    ):
        done = memoir(folder, *words)
        assert done.returncode == 2 and why in done.stderr
    assert [path.name for path in folder.iterdir()] == ["x.pickle"]


@pytest.mark.parametrize(
    ("to", "suffix"), [("snapshot", ".pickle"), ("chrome", ".json"), ("perfetto", ".pftrace")]
)
def test_export(folder, to, suffix):
    assert memoir(folder, "import", "x.pickle").returncode == 0
    (folder / "x.trace").rename(folder / "y.trace")
    done = memoir(folder, "export", "y.trace", "--to", to)
    assert done.returncode == 0 and f"wrote y{suffix}" in done.stderr and "next: " in done.stdout
    content = (folder / f"y{suffix}").read_bytes()
    assert memoir(folder, "export", "y.trace", "--to", to).returncode == 2
    done = memoir(folder, "export", "y.trace", "--to", to, "-f", "--json")
    assert json.loads(done.stdout)["format"] == to
    assert (folder / f"y{suffix}").read_bytes() == content
    if to == "snapshot":
        assert memoir(folder, "import", "y.pickle", "-o", "z.trace").returncode == 0
        assert (folder / "z.trace").read_bytes() == (folder / "y.trace").read_bytes()
