# SPDX-License-Identifier: Apache-2.0
"""The examples in Python and C run as their first lines say, and do what they promise."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memoir import malloc

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_remember():
    pytest.importorskip("memoir.torch")
    run = subprocess.run(
        [sys.executable, EXAMPLES / "remember.py"], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert re.match(r"[1-4] of 5 calls followed the plan, in a slab of \d+\.\d MiB\n", run.stdout), run.stdout


@pytest.mark.parametrize("name", ["use_pool.py", "oom.py"])
def test_what_needs_a_gpu_says_so(name, tmp_path):
    torch = pytest.importorskip("torch")
    run = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    if torch.cuda.is_available():
        assert run.returncode == 0, run.stderr
    else:
        assert run.returncode == 1 and "needs a GPU" in run.stderr and "Traceback" not in run.stderr


def test_a_server_s_day(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program = tmp_path / "run"
    subprocess.run(["cc", "-O2", EXAMPLES / "run.c", "-o", program], check=True)

    def resident(environment):
        text = subprocess.run(
            [program], capture_output=True, text=True, check=True, env=environment, timeout=300
        )
        return [int(mib) for mib in re.findall(r": (\d+) MiB", text.stdout)]

    plain, ours = resident({}), resident(malloc.environment({}))
    assert len(plain) == len(ours) == 2
    assert ours[1] < ours[0] and ours[1] < plain[1]
