# SPDX-License-Identifier: Apache-2.0
import pytest
from memoir.cli import main


@pytest.fixture
def memoir_cli(capfd):
    """Runs the command: (exit code, stdout, stderr)."""

    def run(*arguments):
        capfd.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit:
            return exit.code or 0, *capfd.readouterr()
        raise AssertionError("main() always exits")

    return run
