# SPDX-License-Identifier: Apache-2.0
"""memoir's malloc as a library, and the small programs that are run under it."""

import os
import subprocess
from pathlib import Path

import pytest
from compiled import compiler_into

from memoir import Error, malloc


@pytest.fixture(scope="session")
def library():
    try:
        return malloc.library()
    except Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A file of this folder as a program: compiled("conformance.c")."""
    return compiler_into(tmp_path_factory.mktemp("compiled"), Path(__file__).parent)


@pytest.fixture(scope="session")
def conformance(compiled):
    """conformance.c as a program, and the library that it opens next to it."""
    compiled("opened.c", "-shared", "-fPIC", name="opened.so")
    return compiled("conformance.c")


@pytest.fixture
def under(library):
    """Runs a command under the malloc, and what else is preloaded: its CompletedProcess."""

    def run(command, settings=None, preloaded="", **options):
        environment = malloc.environment(settings or {}, os.environ | {"LD_PRELOAD": str(preloaded)})
        return subprocess.run(
            [str(word) for word in command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    return run
