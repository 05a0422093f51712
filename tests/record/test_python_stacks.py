# SPDX-License-Identifier: Apache-2.0
"""Python frames in the stacks of a recorded program, as the program itself sees them: of every Python that is here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from memoir._core import EventKind, FrameKind, Trace

PROGRAM = Path(__file__).with_name("python_stacks.py")
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
MOST = 160  # Python frames of a stack


def pythons() -> list[str]:
    """This one, and others that pyenv or the system have: one of each version."""
    candidates = [sys.executable]
    for version in VERSIONS:
        candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
        candidates.append(f"/usr/bin/python{version}")
    found: dict[str, str] = {}
    for path in candidates:
        if not Path(path).exists():
            continue
        asked = "import sys, ctypes; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", asked], capture_output=True, text=True)
        version = done.stdout.strip()
        if done.returncode == 0 and version in VERSIONS and version not in found:
            found[version] = path
    return list(found.values())


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parent.parent.name)
@pytest.mark.parametrize("how", ["malloc", pytest.param("pymalloc", marks=pytest.mark.full)])
def test_frames_are_those_that_the_program_sees(python, how, record, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONMALLOC", how)
    checked = ["--check-stacks"] if how == "pymalloc" else []
    done = record(python, PROGRAM, options=["--only", "malloc", *checked])
    assert done.returncode == 0, done.stderr
    assert not checked or " 0 different" in done.stderr
    trace = Trace.open(str(tmp_path / "x.trace"))
    told = {int(size): [tuple(frame) for frame in chain] for size, chain in json.loads(done.stdout).items()}
    assert len(told) > 100
    seen = {}
    for event in trace.events:
        if event["kind"] == int(EventKind.kAllocate) and int(event["size"]) in told:
            seen[int(event["size"])] = trace.site_frames(int(event["site"]))
    assert seen.keys() == told.keys()
    for size, chain in told.items():
        frames = [frame for frame in seen[size] if frame["kind"] == FrameKind.kPython]
        got = [(frame["function"], frame["file"], frame["line"]) for frame in frames]
        assert got.pop()[0] == "mark"
        wanted = [row for row in chain if not row[1].startswith("<frozen")]
        got = [row for row in got if not row[1].startswith("<frozen")]
        assert got == wanted if len(got) < MOST - 1 else got == wanted[-len(got) :], size
    # Each Python frame stands inside of the C function that runs it.
    deep = next(frames for size, frames in seen.items() if len(told[size]) == 5)
    kinds = [frame["kind"] for frame in deep]
    first = kinds.index(FrameKind.kPython)
    assert FrameKind.kNative in kinds[:first] and FrameKind.kNative in kinds[first:]
