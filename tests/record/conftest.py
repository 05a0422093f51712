# SPDX-License-Identifier: Apache-2.0
"""The recorder of native programs, and small programs that are run under it."""

import subprocess
import sys
from pathlib import Path

import pytest
from compiled import compiler_into

from memoir import Error
from memoir.record import native


@pytest.fixture(scope="session", autouse=True)
def library():
    try:
        return native.library()
    except Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A file of this folder as a program: compiled("family.c"); compiled("library.c", "-shared", name="a.so")."""
    return compiler_into(tmp_path_factory.mktemp("compiled"), Path(__file__).parent)


@pytest.fixture
def record(tmp_path):
    """Runs `memoir record` around a command, the trace in tmp_path/x.trace: its CompletedProcess."""

    def run(*command, options=(), **more):
        arguments = [
            sys.executable,
            "-m",
            "memoir",
            "record",
            "-o",
            str(tmp_path / "x.trace"),
            *options,
            "--",
        ]
        return subprocess.run(
            [*arguments, *map(str, command)], capture_output=True, text=True, timeout=120, **more
        )

    return run
