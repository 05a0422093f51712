# SPDX-License-Identifier: Apache-2.0
"""Recordings that are killed at random moments hold all that the program had done."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "record" / "record_kills.py"


@pytest.mark.full
def test_kills():
    done = subprocess.run([sys.executable, BENCH, "--kills", "60"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
