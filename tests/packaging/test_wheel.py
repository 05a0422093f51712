# SPDX-License-Identifier: Apache-2.0
"""The wheel on a machine that has Python and nothing else: no compiler, no torch."""

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed import Environment, build_wheel

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "tests" / "data" / "resnet18.trace"

CONTENT = [
    r"memoir/(\w+/)*\w+\.pyi?",
    r"memoir/py\.typed",
    r"memoir/views/page/script/(\w+\.js|style\.css)",  # of pages
    r"memoir/_core\.[\w-]+\.so",
    r"memoir/torch/_built/\d\.\d+/(_torch\.[\w-]+|libmemoir_cuda)\.so",
    r"memoir/include/memoir_onnxruntime\.h",
    r"memoir/bin/(memoir-launch|libmemoir_(proof|malloc|malloc_secure|model|record|onnxruntime)\.so|bench-\w+)",
    r"memoir_alloc-[\d.]+\.data/data/share/man/man1/memoir\.1",
    r"memoir_alloc-[\d.]+\.data/data/share/"
    r"(bash-completion/completions/memoir|zsh/site-functions/_memoir|fish/vendor_completions\.d/memoir\.fish)",
    r"memoir_alloc-[\d.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE)",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    for module in ("scikit_build_core", "nanobind", "auditwheel", "uv"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not here (make dev brings it)")
    return build_wheel(tmp_path_factory.mktemp("wheel"), "--installed-torch")


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("bare"))
    if not environment.can_install("click"):
        pytest.skip("no package index is reached: what memoir needs cannot be installed")
    environment.install(wheel)
    return environment


def test_its_name_says_which_systems_it_is_for(wheel):
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"memoir_alloc-[\d.]+-{python}-{python}-manylinux_2_\d+_\w+\.whl", wheel.name)


def test_it_holds_what_is_run_and_no_source(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        programs = [
            info
            for info in archive.infolist()
            if re.fullmatch(r"memoir/bin/(memoir-launch|bench-\w+)", info.filename)
        ]
    assert [name for name in names if not any(re.fullmatch(pattern, name) for pattern in CONTENT)] == []
    modules = {
        path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "memoir").rglob("*.py")
    }
    assert modules <= names
    scripts = {
        path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "memoir").rglob("*.js")
    }
    assert scripts and scripts <= names
    assert any(name.startswith("memoir/_core.") for name in names)
    assert programs and all(info.external_attr >> 16 & 0o111 for info in programs)


def test_nothing_in_it_looks_for_libraries_in_folders_of_the_machine_that_built_it(wheel, tmp_path):
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    found = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(found) >= 9
    for path in found:
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic, path


def test_plan_simulate_show_and_bench_run_without_a_compiler(bare):
    assert not any(
        shutil.which(name, path=str(bare.folder / "bin")) for name in ("cc", "c++", "gcc", "cmake", "ninja")
    )
    version = (ROOT / "VERSION").read_text().strip()
    assert bare.run("memoir", "--version").split()[-1] == version
    assert "buffers" in bare.run("memoir", "plan", TRACE, "-o", "x.plan")
    assert "buffers" in bare.run("memoir", "show", "x.plan")
    assert "allocat" in bare.run("memoir", "show", TRACE)
    simulated = bare.run("memoir", "simulate", TRACE, "--policy", "all")
    assert "memoir" in simulated and "pytorch" in simulated
    assert "system" in bare.run(
        "memoir", "bench", "system", "-n", "2", "-o", "b", "--", bare.python, "-c", "pass"
    )
    assert "churn" in bare.run("memoir", "bench", "system", "--suite", "--smoke", "-n", "2", "-o", "s")


def test_memoir_torch_says_what_it_needs(bare):
    said = bare.run("python", "-c", "import memoir.torch", code=1)
    assert "memoir.torch needs PyTorch: pip install 'memoir-alloc[torch]'" in said
    assert "Problem" in bare.run("python", "-c", "import memoir; print(memoir.Problem)")
