# SPDX-License-Identifier: Apache-2.0
"""The version is written in one file, VERSION, and everything that says one says that; the distribution has one name."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memoir

ROOT = Path(__file__).parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()


def files():
    """The files that git tracks; a checkout without git has none."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def texts(*suffixes):
    return [path for path in files() if path.suffix in suffixes and "third_party" not in path.parts]


def test_the_package_and_the_command_say_the_version():
    assert memoir.__version__ == VERSION
    assert importlib.metadata.version("memoir-alloc") == VERSION
    out = subprocess.run(
        [sys.executable, "-m", "memoir", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout.split()[-1] == VERSION


def test_what_cmake_installs_says_the_version():
    build = ROOT / "build" / "release"
    if not (build / "memoir-config-version.cmake").exists():
        pytest.skip("nothing is configured in build/release (make dev does it)")
    assert f'set(PACKAGE_VERSION "{VERSION}")' in (build / "memoir-config-version.cmake").read_text()
    for name in ("memoir-plan.pc", "memoir-static-tensors.pc"):
        assert f"\nVersion: {VERSION}\n" in (build / name).read_text()


def test_no_other_file_writes_the_version():
    written = re.compile(rf"(?i)version\W{{0,4}}\b{re.escape(VERSION)}\b")
    assert [
        path
        for path in texts(".toml", ".txt", ".cmake", ".py", ".md", ".h")
        if written.search(path.read_text())
    ] == []


def test_whoever_is_told_to_install_memoir_is_told_its_own_name():
    """The name `memoir` on the index is somebody else's."""
    told = re.compile(r"pip3? install[^\n`#]*?[ '\"]memoir(?![\w-])(?!\.\w)")
    assert told.search("pip install 'memoir[torch]'") and told.search("pip install --force-reinstall memoir ")
    assert [
        path
        for path in texts(".py", ".md", ".toml", ".cmake")
        if path != Path(__file__) and told.search(path.read_text())
    ] == []
