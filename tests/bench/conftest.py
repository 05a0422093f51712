# SPDX-License-Identifier: Apache-2.0
"""Small real programs, compiled once per session."""

import os
import subprocess
from pathlib import Path

import pytest

ASKS = """
#include <stdio.h>
#include <stdlib.h>
int main(int count, char** arguments) {
  long total = 0;
  for (int i = 0; i < 1000; ++i) {
    char* block = malloc(100 + i);
    block[0] = (char)i;
    total += block[0];
    free(block);
  }
  printf("total: %ld\\nops: %d\\n", total, count > 1 ? atoi(arguments[1]) : 1000);
  return 0;
}
"""
NEVER_ASKS = "int main(void) { for (volatile long i = 0; i < 50000000; ++i) {} return 0; }"


def compile_c(source: str | Path, output: Path, *flags: str) -> Path:
    text = source.read_text() if isinstance(source, Path) else source
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-x", "c", "-", "-o", str(output), *flags],
        input=text,
        text=True,
        check=True,
        capture_output=True,
    )
    return output


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
