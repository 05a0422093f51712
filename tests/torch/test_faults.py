# SPDX-License-Identifier: Apache-2.0
"""Where memory cannot be mapped, and where a threaded program forks, a remembered call does what the plain one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import compiler_into

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return compiler_into(tmp_path_factory.mktemp("programs"), PROGRAMS)


def run(program: str, *arguments: str, preload: Path | None = None) -> str:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONMALLOC": "malloc",
    }  # Python's own maps nothing then
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    ran = subprocess.run(
        [sys.executable, PROGRAMS / program, *arguments], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.full)])
def test_every_failing_map(compiled, step):
    library = compiled("failing_maps.c", "-shared", "-fPIC", name="failing_maps.so")
    assert "calls" in run("every_failing_map.py", str(step), preload=library)


@pytest.mark.parametrize("forks", [20, pytest.param(1000, marks=pytest.mark.full)])
def test_racy_forks_hang_no_more_often_than_plain(forks):
    remembered = int(run("racy_forks.py", str(forks), "remembered").split()[-1])
    plain = int(run("racy_forks.py", str(forks), "plain").split()[-1]) if remembered else 0
    assert remembered <= plain
