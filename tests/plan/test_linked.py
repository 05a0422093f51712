# SPDX-License-Identifier: Apache-2.0
"""memoir::plan as another project has it: installed, found by CMake, linked into examples/planner, run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_links_the_installed_planners(tmp_path):
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    if not (BUILD / "src" / "memoir" / "libmemoir_plan.a").exists():
        pytest.skip("the release preset is not built (make test builds it)")
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    run(cmake, "--install", BUILD, "--prefix", prefix, "--component", "planners")
    assert (prefix / "include" / "memoir" / "plan" / "search" / "auto.h").exists()
    assert not list(prefix.rglob("*.cc"))
    run(cmake, "-S", ROOT / "examples" / "planner", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(cmake, "--build", build)
    out = run(build / "plan_layers")
    assert out.count("layer ") == 12
    assert "no plan is below" in out
