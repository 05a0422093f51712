# SPDX-License-Identifier: Apache-2.0
"""The libraries that lie in every process of their users: small, and showing nothing but what they must."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from memoir.malloc import library as library_of_malloc

ROOT = Path(__file__).parents[2]
DOORS = ROOT / "src" / "memoir"
MOST = {"malloc": 185_000, "malloc_secure": 195_000, "model": 90_000, "record": 220_000}  # bytes, stripped
LISTS = {
    "malloc": DOORS / "malloc" / "preload" / "exports.map",
    "malloc_secure": DOORS / "malloc" / "preload" / "exports.map",
    "model": DOORS / "malloc" / "model" / "exports.map",
    "record": DOORS / "record" / "preload" / "exports.map",
    "onnxruntime": DOORS / "remember" / "onnxruntime" / "exports.map",
}


def run(*words) -> str:
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def library(name: str) -> Path:
    found = Path(library_of_malloc()).with_name(f"libmemoir_{name}.so")
    if not found.exists():
        pytest.skip(f"no libmemoir_{name}.so in this build")
    return found


@pytest.fixture(params=LISTS)
def named(request):
    return request.param, library(request.param)


def test_it_shows_what_its_list_says(named):
    name, path = named
    text = re.sub(r"/\*.*?\*/", "", LISTS[name].read_text(), flags=re.DOTALL)
    listed = re.findall(r"([\w*]+);", text.split("local:")[0])
    allowed = re.compile("|".join(word.replace("*", ".*") for word in listed))
    shown = run("nm", "-D", "--defined-only", path).split()[2::3]
    assert shown and not [one for one in shown if not allowed.fullmatch(one)]
    missing = {word for word in listed if "*" not in word} - set(shown)
    assert missing <= {"memoir_malloc_class"}  # of the build for experiments


def test_installed_libraries_have_a_version(tmp_path):
    """Only configured: to build them takes a minute."""
    cmake = Path(sys.executable).with_name("cmake")
    ninja = Path(sys.executable).with_name("ninja")
    if not (cmake.exists() and ninja.exists()):
        pytest.skip("no cmake and ninja beside this Python")
    options = [f"-D{name}=OFF" for name in ("MEMOIR_PYTHON", "MEMOIR_TESTS")]
    run(cmake, "-S", ROOT, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *options)
    rules = (tmp_path / "build.ninja").read_text()
    for name in ("plan_c", "malloc"):
        assert f"SONAME = libmemoir_{name}.so.0" in rules


@pytest.mark.parametrize("name", MOST)
def test_it_is_small_and_its_zeros_are_not_in_the_file(name, tmp_path):
    path = library(name)
    run("strip", "-o", tmp_path / "stripped", path)
    content = (tmp_path / "stripped").read_bytes()
    sections = re.findall(r"\] (\.\S+) +\S+ +\w+ (\w+) (\w+)", run("readelf", "-SW", tmp_path / "stripped"))
    for section, offset, size in sections:
        begin, length = int(offset, 16), int(size, 16)
        if section in (".data", ".rodata"):
            zeros = max(map(len, re.findall(rb"\0+", content[begin : begin + length])), default=0)
            assert zeros < 8192, f"{zeros} zeros in {section} of {name}"
    assert len(content) <= MOST[name]
