# SPDX-License-Identifier: Apache-2.0
"""The recorder of native programs, and small programs that are run under it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memoir import Error, native

HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def library():
    try:
        return native.library()
    except Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compiles a file of this folder, once: compiled("family.c"); compiled("library.c", "-shared", name="a.so")."""
    folder, done = tmp_path_factory.mktemp("compiled"), {}

    def build(source, *flags, name=None):
        target = folder / (name or Path(source).stem)
        if target not in done:
            compiler = os.environ.get("CXX", "c++") if source.endswith(".cpp") else os.environ.get("CC", "cc")
            command = [
                compiler,
                "-O1",
                "-w",
                "-fno-builtin",
                "-pthread",
                str(HERE / source),
                "-o",
                str(target),
            ]
            subprocess.run([*command, *flags, "-ldl"], check=True)
            done[target] = True
        return target

    return build


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
