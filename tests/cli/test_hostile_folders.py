# SPDX-License-Identifier: Apache-2.0
"""Commands in a folder of a stranger's, which has modules of the names that Python looks for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
MEMOIR = Path(sys.executable).with_name("memoir")


@pytest.fixture
def hostile(tmp_path):
    """Each module that could be imported says so, and would be the one that is found first."""
    for name in {*sys.stdlib_module_names, "numpy", "memoir", "click", "rich", "symbolic", "ray", "torch"}:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write('{name}\\n')\n")
    (tmp_path / "a.csv").write_text("id,lower,upper,size\na,0,9,4\n")
    (tmp_path / "t.trace").write_bytes((DATA / "pools.trace").read_bytes())
    (tmp_path / "s.lifetimes").write_bytes((DATA / "small.v1.lifetimes").read_bytes())
    return tmp_path


COMMANDS = (
    "simulate t.trace t.trace --workers 2",
    "simulate t.trace --cap 1.05x --cap 2x --workers 2",
    "plan a.csv a.csv --workers 2",
    "plan a.csv --planner highs",
    "show t.trace",
    "symbolize t.trace",
    "merge s.lifetimes s.lifetimes -o m.lifetimes",
    "doctor",
    "bench system,memoir -n 1 --warmup 0 --no-pictures -o b -- ls /",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_module_of_the_current_folder_is_run(command, hostile):
    """`python -c` and `python -m` look there first."""
    done = subprocess.run([MEMOIR, *command.split()], cwd=hostile, capture_output=True, text=True)
    assert not (hostile / "RAN").exists(), (hostile / "RAN").read_text()
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr


def test_nor_by_what_asks_a_library_for_its_version(hostile, stub_library):
    words = [
        MEMOIR,
        "bench",
        f"system,mine={stub_library}",
        "-n",
        "1",
        "--warmup",
        "0",
        "--no-pictures",
        "-o",
        "b",
    ]
    subprocess.run([*words, "--", "ls", "/"], cwd=hostile, capture_output=True)
    assert not (hostile / "RAN").exists(), (hostile / "RAN").read_text()


@pytest.fixture
def stub_library(tmp_path_factory):
    """A library that is called as one that is asked."""
    path = tmp_path_factory.mktemp("stub") / "libjemalloc.so"
    done = subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", path, os.devnull], capture_output=True)
    if done.returncode != 0:
        pytest.skip("no gcc")
    return path


def test_nor_by_workers_of_ray(hostile):
    pytest.importorskip("ray")
    words = [MEMOIR, "simulate", "t.trace", "--cap", "1.05x", "--cap", "2x", "--workers", "ray"]
    done = subprocess.run(words, cwd=hostile, capture_output=True, text=True)
    assert not (hostile / "RAN").exists(), (hostile / "RAN").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["text", "pipe"])
def test_no_style_of_the_current_folder_is_read(kind, hostile):
    """matplotlib looks there for its settings: TeX of a stranger's would be run, and a pipe would hold it for ever."""
    if kind == "pipe":
        os.mkfifo(hostile / "matplotlibrc")
    else:
        (hostile / "matplotlibrc").write_text(
            "text.usetex: True\nfigure.facecolor: red\nbackend: module://numpy\n"
        )
    pictures = []
    for folder in (hostile, Path("/")):
        words = [MEMOIR, "show", hostile / "t.trace", "-f", "-o", hostile / "o.svg"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        pictures.append((hostile / "o.svg").read_bytes())
    assert pictures[0] == pictures[1]
    assert not (hostile / "RAN").exists()
