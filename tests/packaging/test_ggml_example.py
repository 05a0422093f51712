# SPDX-License-Identifier: Apache-2.0
"""examples/ggml with a real ggml: one that CMake finds, or the source of it in the Python package llama-cpp-python.
Downloads 75 MB and compiles for minutes: pytest -m full."""

import faulthandler
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"
PACKAGE = "llama-cpp-python==0.3.36"

pytestmark = pytest.mark.full


def run(*command, code=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3000)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cmake():
    found = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if found is None:
        pytest.skip("there is no cmake")
    return found


def build_ggml(cmake, folder):
    """Installs the package's ggml, of the CPU alone, and says where."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    run(*download, "--no-build-isolation", PACKAGE, "-d", folder, code=None)
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"CMake finds no ggml, and {PACKAGE}, which has its source, cannot be downloaded")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    source = next(folder.glob("*/vendor/llama.cpp/ggml"))
    (source / "ggml.pc.in").touch()  # which the package leaves out
    options = ["-DBUILD_SHARED_LIBS=OFF", "-DGGML_OPENMP=OFF", "-DGGML_NATIVE=OFF"]
    options += ["-DGGML_LLAMAFILE=OFF", "-DGGML_CPU_REPACK=OFF"]  # quicker to compile without
    options += ["-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    run(cmake, "-S", source, "-B", folder / "build", f"-DCMAKE_INSTALL_PREFIX={folder / 'ggml'}", *options)
    run(cmake, "--build", folder / "build", "-j", "2", "--target", "install")
    return folder / "ggml"


@pytest.fixture(scope="module")
def example(cmake, tmp_path_factory):
    """The program, built outside of the tree with what is installed."""
    if not (BUILD / "src" / "memoir" / "libmemoir_plan.a").exists():
        pytest.skip("the release preset is not built (make test builds it)")
    faulthandler.cancel_dump_traceback_later()  # compiling takes longer than a test that hangs may
    folder = tmp_path_factory.mktemp("ggml")
    run(cmake, "--install", BUILD, "--prefix", folder / "memoir", "--component", "plan")
    configure = [cmake, "-S", ROOT / "examples" / "ggml", "-B", folder / "example"]
    found = subprocess.run(
        [*configure, f"-DCMAKE_PREFIX_PATH={folder / 'memoir'}"], capture_output=True, text=True
    )
    if found.returncode != 0:
        assert "ggml" in found.stderr, found.stderr
        ggml = build_ggml(cmake, folder)
        run(*configure, f"-DCMAKE_PREFIX_PATH={folder / 'memoir'};{ggml}")
    run(cmake, "--build", folder / "example")
    return folder / "example" / "ggml_graphs"


def test_three_graphs_compute_the_same_in_less(example):
    rows = {line.split()[0]: line for line in run(example).splitlines() if "ggml_gallocr" in line}
    assert set(rows) >= {"unet", "dense", "decoder"}, rows
    for name, row in rows.items():
        words = row.split()
        theirs, ours, load = (int(words[words.index(key) + 1]) for key in ("ggml_gallocr", "memoir", "load"))
        assert row.endswith("outputs equal"), row
        assert load <= ours <= theirs, row
        if name != "decoder":
            assert ours < theirs, row
