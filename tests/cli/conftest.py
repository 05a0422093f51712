# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture
def memoir(tmp_path, monkeypatch, memoir_cli):
    """Runs the command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return memoir_cli
