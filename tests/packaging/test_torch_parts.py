# SPDX-License-Identifier: Apache-2.0
"""memoir.torch with a torch that it has no part for, or whose part does not load: one sentence, and the rest works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

memoir_torch = pytest.importorskip("memoir.torch", reason="memoir.torch is not built: there is no torch")
from memoir.torch import _compile, _parts  # noqa: E402

REST = """
import memoir
print(memoir.plan(([0, 1], [2, 3], [5, 5]), "best_fit").arena_size)
try:
    import memoir.torch
except ImportError as error:
    print(error)
"""


@pytest.fixture
def said(tmp_path):
    """What memoir.torch says of a torch that is nothing but its version, after memoir made a plan."""

    def say(version):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n")
        done = subprocess.run(
            [sys.executable, "-c", REST],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        planned, *words = done.stdout.splitlines()
        assert planned == "10"
        assert len(words) == 1
        return words[0]

    return say


def test_a_torch_of_another_minor_version(said):
    words = said("2.99.1+cpu")
    assert (
        f"this memoir.torch is for torch {', '.join(_parts.built())}, and this is torch 2.99.1+cpu" in words
    )
    assert "The rest of memoir works without it." in words


def test_a_torch_whose_libraries_are_not_those_of_its_version(said):
    words = said(f"{_parts.built()[-1]}.0+mine")
    assert f"does not load with this torch {_parts.built()[-1]}.0+mine" in words
    assert "libc10.so: cannot open shared object file" in words


def test_a_build_without_torch(monkeypatch, tmp_path):
    monkeypatch.setattr(_parts, "FOLDER", tmp_path / "none")
    with pytest.raises(
        ImportError, match=r"memoir was built where no PyTorch was.*now that torch 2\.13\.0 is here"
    ):
        _parts.find("2.13.0", tmp_path)


@pytest.fixture
def kit(monkeypatch, tmp_path):
    """What a build without torch leaves, as far as is looked at before a compiler runs."""
    (tmp_path / "kit" / "lib").mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "torch" / "include").mkdir(parents=True)
    monkeypatch.setattr(_parts, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(_compile, "KIT", tmp_path / "kit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "false")
    return tmp_path


def test_where_nothing_can_be_compiled_the_reason_is_said(kit, monkeypatch, capsys):
    def says(reason, version="2.13.0"):
        with pytest.raises(
            ImportError, match=r"built where no PyTorch was, and .* cannot be compiled here: "
        ) as e:
            _parts.find(version, kit / "torch")
        assert reason in str(e.value) and "The rest of memoir works without it." in str(e.value)

    says("false says of _torch.cpp: it ended with 1")
    assert "compiling memoir.torch for torch 2.13.0, once" in capsys.readouterr().err
    assert list((kit / "cache" / "memoir" / "torch").iterdir()) == [
        kit / "cache" / "memoir" / "torch" / "lock"
    ]
    says("it needs torch 2.11 or a newer one", "2.9.1")
    (kit / "torch" / "include").rmdir()
    says("PyTorch's headers are not in")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    says("XDG_CACHE_HOME may name another place")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(kit))
    says("there is no C++ compiler")


def test_what_is_compiled_is_found_again_for_this_torch_and_this_kit_alone(kit, monkeypatch):
    def compile_it(compiler, torch, folder, module):
        assert compiler == ["false"] and torch == kit / "torch" and folder.is_dir()
        module.write_bytes(b"made")

    monkeypatch.setattr(_compile, "_compile", compile_it)
    first = _parts.find("2.13.0", kit / "torch")
    assert first.read_bytes() == b"made"
    monkeypatch.setattr(_compile, "_compile", None)  # not called
    assert _parts.find("2.13.0", kit / "torch") == first
    monkeypatch.setattr(_compile, "_compile", compile_it)
    assert _parts.find("2.13.1", kit / "torch") != first
    (kit / "kit" / "lib" / "libmemoir_base.a").touch()
    assert _parts.find("2.13.0", kit / "torch") != first


def test_it_is_compiled_for_the_versions_that_the_package_asks_for():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    (least,) = re.findall(r'^torch = \["torch>=([\d.]+),', text, re.MULTILINE)
    assert least == ".".join(map(str, _compile.LEAST))


def test_the_part_of_this_torch_is_the_one_in_use():
    import torch

    minor = ".".join(torch.__version__.split(".")[:2])
    assert _parts.find(torch.__version__, Path(torch.__file__).parent).parent == _parts.FOLDER / minor
    assert memoir_torch.memory._torch.__file__ == str(
        _parts.find(torch.__version__, Path(torch.__file__).parent)
    )


def test_versions_are_ordered_by_number(monkeypatch, tmp_path):
    for version in ("2.9", "2.13", "2.11"):
        (tmp_path / version).mkdir()
    monkeypatch.setattr(_parts, "FOLDER", tmp_path)
    assert _parts.built() == ["2.9", "2.11", "2.13"]
