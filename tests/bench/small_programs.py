# SPDX-License-Identifier: Apache-2.0
"""Sources of small real programs, and how to compile them."""

import os
import subprocess
from pathlib import Path

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
