# SPDX-License-Identifier: Apache-2.0
"""pprof's protobuf taken apart, and pprof itself."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def fields(message):
    """(field, value) of a protobuf message: numbers, and bytes for what has a length."""

    def number(at):
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value, at

    at, result = 0, []
    while at < len(message):
        key, at = number(at)
        value, at = number(at)
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        result.append((key >> 3, value))
    return result


def pprof_program(folder):
    """pprof itself: the one that is installed, or (where there is Go and a module proxy) built for this test."""
    if found := shutil.which("pprof"):
        return found
    go = shutil.which("go") or next(iter(Path("/usr/local/go/bin").glob("go")), None)
    if go is None:
        pytest.skip("neither pprof nor Go is here: go install github.com/google/pprof@latest")
    built = subprocess.run(
        [str(go), "install", "github.com/google/pprof@latest"],
        env={**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if built.returncode != 0:
        pytest.skip(f"pprof cannot be built here: {built.stderr.strip().splitlines()[-1]}")
    return str(folder / "pprof")
