# SPDX-License-Identifier: Apache-2.0
import os
import random
import signal

import pytest

# A job in the background of a script starts with SIGINT ignored, what nohup starts with SIGHUP, and so do their children:
# tests that send these would wait.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The terminal of whoever runs the tests is not the one that they speak of.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(name, None)


def pytest_addoption(parser):
    parser.addoption(
        "--order", type=int, metavar="SEED", help="files, and tests within each, in this random order"
    )


def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("--order")) is None:
        return
    # Every worker must come to the same order. A file stays together: its fixtures are made once.
    chance = random.Random(seed)
    files = {item.path: chance.random() for item in items}
    items.sort(key=lambda item: (files[item.path], chance.random()))


@pytest.fixture
def memoir_cli(capfd):
    """Runs the command: (exit code, stdout, stderr). In this process, for speed."""
    from memoir.cli import main

    def run(*arguments):
        capfd.readouterr()
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit:
            return exit.code or 0, *capfd.readouterr()
        raise AssertionError("main() always exits")

    return run
