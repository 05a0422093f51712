# SPDX-License-Identifier: Apache-2.0
import pytest
from memoir.cli import main


@pytest.fixture
def memoir(tmp_path, monkeypatch, capfd):
    """Runs the command in a folder of its own: (exit code, stdout, stderr). In this process, for speed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capfd.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit:
            return exit.code or 0, *capfd.readouterr()
        raise AssertionError("main() always exits")

    return run
