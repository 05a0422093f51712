# SPDX-License-Identifier: Apache-2.0
"""Wheels, and virtual environments to install them into."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# To be formatted with the minor version of the torch that is to be there.
USE_TORCH = """
import memoir.torch, torch
assert torch.__version__.startswith({torch!r} + "."), torch.__version__
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).eval()
x = torch.randn(8, 64)
with torch.inference_mode():
    expected = model(x)
    model = memoir.torch.remember(model)
    for _ in range(4):
        assert torch.equal(model(x), expected)
print(memoir.torch.stats(model))
assert memoir.torch.stats(model).plan_hits == 3
assert "memoir" in memoir.torch.pools()
"""


def build_wheel(output: Path, *options: str) -> Path:
    command = [sys.executable, ROOT / ".ci" / "wheel.py", "-o", output, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.splitlines()[-1])


class Environment:
    """A virtual environment of this Python. What is started in it finds its programs alone, no compiler, no CMake, unless
    it is told otherwise."""

    def __init__(self, folder: Path):
        base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        self.folder = folder
        self.python = folder / "bin" / "python"

    def run(self, program: str, *arguments: str | Path, code: int = 0, tools: bool = False) -> str:
        """What a program of the environment prints, errors included. It is started away from the checkout. `tools`: it
        finds the machine's programs too."""
        path = [str(self.folder / "bin"), *([os.environ["PATH"]] if tools else [])]
        done = subprocess.run(
            [self.folder / "bin" / program, *map(str, arguments)],
            cwd=self.folder,
            env={"PATH": os.pathsep.join(path), "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def _install(self, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        # uv, whose cache spares copies of gigabytes; in the caller's own environment, which says where the index is.
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "pip", "install", "-q", "--python", self.python, *arguments]
        return subprocess.run([str(part) for part in command], capture_output=True, timeout=3600)

    def can_install(self, package: str) -> bool:
        return self._install("--dry-run", "--no-deps", package).returncode == 0

    def install(self, *what: str | Path) -> None:
        done = self._install(*what)
        assert done.returncode == 0, done.stderr.decode()
