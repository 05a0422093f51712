# SPDX-License-Identifier: Apache-2.0
"""The wheel of `make wheel` with the releases of PyTorch, installed in either order. Downloads gigabytes: pytest -m full."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed import ROOT, USE_TORCH, Environment, build_wheel

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_a_part_for_every_supported_torch(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]  # folders have rows, or not
        parts = {name.split("/")[3] for name in files if name.startswith("memoir/torch/_built/")}
        assert parts == {"2.11", "2.12", "2.13"}
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), f"{name} says where it was built"


@pytest.mark.parametrize("torch", ["2.11", "2.13"])
@pytest.mark.parametrize("first", ["memoir", "torch"])
def test_memoir_torch_works_whichever_is_installed_first(wheel, tmp_path, torch, first):
    environment = Environment(tmp_path)
    order = [wheel, f"torch=={torch}.*"]
    for what in order if first == "memoir" else reversed(order):
        environment.install(what)
    said = environment.run("python", "-c", USE_TORCH.format(torch=torch))
    assert "planned" in said


def test_sources_build_for_the_torch_that_is_here_without_a_package_index(tmp_path):
    """As docs/guides/gpu.md has it; -S leaves this checkout's own installation out."""
    torch = pytest.importorskip("torch")
    packages = Path(torch.__file__).parents[1]
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*install, "--target", str(tmp_path), "."], cwd=ROOT, env={**os.environ, "PATH": path}, check=True
    )
    code = USE_TORCH.format(torch=".".join(torch.__version__.split(".")[:2])) + "print(memoir.__file__)"
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    assert str(tmp_path / "memoir") in said.stdout
