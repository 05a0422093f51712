# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the planners still runs and makes its tables, in small."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_smoke(tmp_path):
    table, picture = tmp_path / "table.md", tmp_path / "anytime.svg"
    command = [sys.executable, ROOT / "bench" / "plan" / "planners.py", "--smoke", "-o", table]
    command += ["--picture", picture, "--picture-seconds", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = table.read_text()
    assert text.count("| A |") == 1
    assert "| ResNet-50 |" in text and "| geometric mean |" in text
    assert picture.read_text().rstrip().endswith("</svg>")
