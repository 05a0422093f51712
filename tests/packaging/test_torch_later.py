# SPDX-License-Identifier: Apache-2.0
"""memoir built from sources where no PyTorch is, and PyTorch installed afterwards: compiled at the first import."""

import sysconfig
from pathlib import Path

import pytest
from installed import USE_TORCH, Environment, build_wheel

pytestmark = pytest.mark.full  # PyTorch's headers take half a minute of a core


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("bare"))
    if not environment.can_install("click"):
        pytest.skip("no package index is reached: what memoir needs cannot be installed")
    environment.install(build_wheel(tmp_path_factory.mktemp("wheel"), "--no-torch"))
    return environment


def test_memoir_torch_is_compiled_once_for_a_torch_that_came_later(bare):
    torch = pytest.importorskip("torch")
    assert "memoir.torch needs PyTorch" in bare.run("python", "-c", "import memoir.torch", code=1)
    # The torch of this Python, as if it had been installed: gigabytes less.
    packages = bare.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(packages, "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    minor = ".".join(torch.__version__.split(".")[:2])
    code = USE_TORCH.format(torch=minor)

    said = bare.run("python", "-c", "import memoir.torch", code=1)
    assert "memoir.torch cannot be compiled here: there is no C++ compiler (g++ or clang++)." in said
    assert "The rest of memoir works without it." in said

    said = bare.run("python", "-c", code, tools=True)
    assert f"memoir: compiling memoir.torch for torch {torch.__version__}, once" in said
    assert "planned" in said
    (made,) = (bare.folder / ".cache" / "memoir" / "torch").glob(f"{torch.__version__}-*")
    assert {path.name.split(".")[0] for path in made.iterdir()} == {"_torch", "libmemoir_cuda"}

    said = bare.run("python", "-c", code)  # no compiler is needed any more
    assert "compiling" not in said and "planned" in said
