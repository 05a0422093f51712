# SPDX-License-Identifier: Apache-2.0
"""memoir's malloc as a library, and the small programs that are run under it."""

import os
import subprocess
from pathlib import Path

import pytest

from memoir import Error, malloc

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def library():
    try:
        return malloc.library()
    except Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compiles a file of this folder, once: compiled("conformance.c")."""
    folder, done = tmp_path_factory.mktemp("compiled"), {}

    def build(name, *flags):
        if name not in done:
            done[name] = folder / Path(name).stem
            compiler = os.environ.get("CXX", "c++") if name.endswith(".cpp") else os.environ.get("CC", "cc")
            command = [
                compiler,
                "-O1",
                "-w",
                "-fno-builtin",
                "-pthread",
                str(HERE / name),
                "-o",
                str(done[name]),
            ]
            subprocess.run([*command, *flags], check=True)
        return done[name]

    return build


@pytest.fixture
def under(library):
    """Runs a command under the malloc: its CompletedProcess."""

    def run(command, settings=None, **options):
        environment = malloc.environment(settings or {})
        return subprocess.run(
            [str(word) for word in command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    return run
