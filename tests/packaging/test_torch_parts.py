# SPDX-License-Identifier: Apache-2.0
"""memoir.torch with a torch that it has no part for, or whose part does not load: one sentence, and the rest works."""

import os
import subprocess
import sys

import pytest

memoir_torch = pytest.importorskip("memoir.torch", reason="memoir.torch is not built: there is no torch")
from memoir.torch import _parts  # noqa: E402

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
        _parts.find("2.13.0")


def test_the_part_of_this_torch_is_the_one_in_use():
    import torch

    minor = ".".join(torch.__version__.split(".")[:2])
    assert _parts.find(torch.__version__).parent == _parts.FOLDER / minor
    assert memoir_torch.memory._torch.__file__ == str(_parts.find(torch.__version__))


def test_versions_are_ordered_by_number(monkeypatch, tmp_path):
    for version in ("2.9", "2.13", "2.11"):
        (tmp_path / version).mkdir()
    monkeypatch.setattr(_parts, "FOLDER", tmp_path)
    assert _parts.built() == ["2.9", "2.11", "2.13"]
