# SPDX-License-Identifier: Apache-2.0
"""The doors to frameworks that make dev does not install, with the real packages: ExecuTorch, jax for XLA's dumps, and the
interpreters of TensorFlow Lite and TensorFlow Lite Micro. Downloads 300 MB: pytest -m full."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["executorch>=1.5,<1.6", "jax", "ai-edge-litert", "tflite-micro"]
TESTS = ["tests/frameworks/test_executorch.py", "tests/cli/test_importers.py"]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Of an environment of its own, which sees what this one has."""
    folder = tmp_path_factory.mktemp("frameworks") / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (inside,) = folder.glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (inside / "outer.pth").write_text("\n".join(lines))
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "-q", *PACKAGES], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed: {(done.stderr.splitlines() or [''])[-1]}")
    return folder / "bin" / "python"


def test_none_is_skipped_and_all_pass(python):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "SKIPPED" not in done.stdout, done.stdout + done.stderr
