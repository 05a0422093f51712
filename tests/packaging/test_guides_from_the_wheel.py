# SPDX-License-Identifier: Apache-2.0
"""The guides' commands as a reader types them: memoir from a wheel, in a shell, in a folder of the reader's own."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import ROOT, Environment, build_wheel

pytestmark = pytest.mark.full

spec = importlib.util.spec_from_file_location("docs_tests", ROOT / "tests" / "test_docs.py")
docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)
GUIDES = {page.name for page in (ROOT / "docs" / "guides").glob("*.md")}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs a command in a folder that has what the docs speak of; the checkout is on no path."""
    torch = importlib.util.find_spec("torch")
    for module in ("torch", "scikit_build_core", "nanobind", "auditwheel", "uv"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not here (make dev brings it)")
    environment = Environment(tmp_path_factory.mktemp("reader"))
    if not environment.can_install("click"):
        pytest.skip("no package index is reached: what memoir needs cannot be installed")
    environment.install(build_wheel(tmp_path_factory.mktemp("wheel"), "--installed-torch"))
    # PyTorch is gigabytes: the one that is here, which a folder in a .pth file adds behind the environment's own.
    (site,) = environment.folder.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    own = str(Path(sys.executable).parent)
    path = [
        str(environment.folder / "bin"),
        *(one for one in os.environ["PATH"].split(os.pathsep) if one != own),
    ]
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folder = tmp_path_factory.mktemp("folder")

    def run(command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**kept, "PATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=600,
        )

    where = run("python -c 'import memoir; print(memoir.__file__)'")
    assert where.stdout.startswith(str(environment.folder)), where.stdout + where.stderr
    docs.lay_out(folder, environment.python)
    return run


def test_commands_of_the_guides(shell):
    failed, ran = [], set()
    for page, command in docs.commands():
        if page not in GUIDES or not command.startswith("memoir"):
            continue
        if "redis" in command and shutil.which("redis-server") is None:
            continue
        for pattern, smaller in docs.SMALLER:
            command = re.sub(pattern, smaller, command)
        if command in ran:
            continue
        ran.add(command)
        words = shlex.split(command)
        outputs = [words[i + 1] for i, word in enumerate(words) if word == "-o"]
        gone = " ".join(f"{one} {Path(one).with_suffix('.index')}" for one in [*outputs, "memoir-bench"])
        done = shell(f"rm -rf {gone}; {command}")
        # 1 from `memoir plan --capacity` is an answer, "proven that none fits".
        if done.returncode not in ((0, 1) if "--capacity" in words else (0,)):
            failed.append(f"{page}: {command}\n{done.stderr}")
    assert len(ran) > 40 and not failed, "\n\n".join(failed)
