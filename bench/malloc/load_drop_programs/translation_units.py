# SPDX-License-Identifier: Apache-2.0
"""A compiler behind an editor (libclang): files are opened, parsed and looked at, most are closed again."""

import ctypes
import glob
import sys
import tempfile
from pathlib import Path

import marks

HEADERS = [
    "map",
    "regex",
    "iostream",
    "algorithm",
    "thread",
    "unordered_map",
    "functional",
    "chrono",
    "memory",
    "deque",
]


def libclang():
    for name in sorted(glob.glob("/usr/lib/llvm-*/lib/libclang-*.so*")):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("libclang is not here: install Debian's libclang-14-dev, or clang")


clang = libclang()
clang.clang_createIndex.restype = ctypes.c_void_p
clang.clang_parseTranslationUnit.restype = ctypes.c_void_p
folder = tempfile.TemporaryDirectory()
index = ctypes.c_void_p(clang.clang_createIndex(0, 0))
units = []


def load(choose, cycle):
    while len(units) < marks.scaled(10):
        source = Path(folder.name) / f"{cycle}-{len(units)}.cc"
        chosen = choose.sample(HEADERS, 3)
        source.write_text("".join(f"#include <{name}>\n" for name in chosen) + "int main() { return 0; }\n")
        unit = clang.clang_parseTranslationUnit(index, bytes(source), None, 0, None, 0, 0)
        if not unit:
            sys.exit(f"libclang did not parse {source.read_text()!r}")
        units.append(unit)


def drop(choose, cycle):
    choose.shuffle(units)
    while len(units) > 1:
        clang.clang_disposeTranslationUnit(ctypes.c_void_p(units.pop()))


marks.run(load, drop)
