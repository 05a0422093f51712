# SPDX-License-Identifier: Apache-2.0
"""Small real programs, compiled once per session."""

import subprocess
from pathlib import Path

import pytest
from small_programs import ASKS, NEVER_ASKS, compile_c


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with asks, never_asks, static_ (if the C library allows it), stub.so and empty.so."""
    folder = tmp_path_factory.mktemp("built")
    compile_c(ASKS, folder / "asks")
    compile_c(NEVER_ASKS, folder / "never_asks")
    try:
        compile_c(NEVER_ASKS, folder / "static_", "-static")
    except subprocess.CalledProcessError:
        (folder / "static_").unlink(missing_ok=True)
    compile_c(Path(__file__).with_name("stub_allocator.c"), folder / "stub.so", "-shared", "-fPIC")
    compile_c("int nothing;", folder / "empty.so", "-shared", "-fPIC")
    return folder


@pytest.fixture(scope="session")
def static_program(built):
    if not (built / "static_").exists():
        pytest.skip("no static C library here")
    return built / "static_"
