# SPDX-License-Identifier: Apache-2.0
"""Names as people write them, and whose code a frame is: a table for each language, and a slow second way to find who asked."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import native_trace as native
import numpy as np
import pytest
from memoir._core import FrameKind, Trace
from memoir.traces import code_names
from memoir.traces.code_names import function_name, script_place, shortened_name
from memoir.traces.own_code import Owner, frame_of
from memoir.traces.stacks import NONE, Stacks

TRACES = Path(code_names.__file__).parent
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
NAMES = {
    "SessionCache::add(int)": "SessionCache::add",
    "std::vector<Session, std::allocator<Session> >::_M_grow(unsigned long) [clone .cold]": "std::vector<Session>::_M_grow",
    f"std::pair<int, int> best<int>({STRING} const&)": "best<int>",
    f"void keep<{STRING} >(int) const": "keep<std::string>",
    f"{STRING}::_M_create(unsigned long&, unsigned long)": "std::string::_M_create",
    "std::map<int, Session*, std::less<int>, std::allocator<std::pair<int const, Session*> > >::operator[](int const&)": (
        "std::map<int, Session*>::operator[]"
    ),
    "std::map<int, int, std::greater<int>, std::allocator<std::pair<int const, int> > >::find(int const&)": (
        "std::map<int, int, std::greater<int>>::find"
    ),
    "std::queue<int, std::deque<int, std::allocator<int> > >::push(int&&)": "std::queue<int>::push",
    "std::unique_ptr<Foo, std::default_delete<Foo> >::reset(Foo*)": "std::unique_ptr<Foo>::reset",
    "std::ostream& operator<< <char>(std::ostream&, X)": "operator<<<char>",
    "bool operator< <int>(A<int> const&, A<int> const&)": "operator<<int>",
    "Pool<Small, 8ul>::operator->() const": "Pool<Small, 8ul>::operator->",
    "(anonymous namespace)::leak(int)": "leak",
    "main::{lambda(int)#1}::operator()(int) const": "main::{lambda}",
    "Foo::operator unsigned int() const": "Foo::operator unsigned int",
    "operator new[](unsigned long, std::align_val_t)": "operator new[]",
    "keep(int)::Local::bar(char)": "keep::Local::bar",
    "X<&(keep(int))>::y()": "X<&(keep(int))>::y",
    "Shape<(Kind)1>::area(Point) const &": "Shape<(Kind)1>::area",
    "decltype(auto) apply<int>(int)": "apply<int>",
    "make_name[abi:cxx11](int)": "make_name",
    "main.cold": "main",
    "grow.constprop.0.isra.0": "grow",
    "malloc@plt": "malloc",
    "alloc::raw_vec::RawVec<T,A>::grow_one::h0123456789abcdef": "alloc::raw_vec::RawVec<T, A>::grow_one",
    "_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$shop..Price$GT$::price": "<alloc::vec::Vec<T> as shop::Price>::price",
    "shop::main::_$u7b$$u7b$closure$u7d$$u7d$": "shop::main",
    "shop[8f3a9c21]::invoice::{closure#0}": "shop::invoice",
    "github.com/them/server/cache.(*Cache).Add.abi0": "cache.(*Cache).Add",
    "main.openHandle": "main.openHandle",
    "LazyCompile:*handle /app/server.js:12:3": "handle",
    "_PyEval_EvalFrameDefault": "_PyEval_EvalFrameDefault",
    "": "",
    "(": "(",
    "operator": "operator",
}


def repeated() -> list[str]:
    """Names in which one thing comes again and again, before an end that does not fit."""
    sources = "".join(path.read_text() for path in TRACES.glob("*.py"))
    parts = set(
        re.findall(r"\w+|[^\w\s]{1,3}", "".join(re.findall(r"re.compile\((.*?)^\)?$", sources, re.S | re.M)))
    )
    parts |= (
        {f".{part}" for part in parts}
        | {f"::{{{part}}}" for part in parts}
        | {"[clone x]", " const", "&&", "1", " "}
    )
    return [f"f{before}{part * 200}{end}" for part in sorted(parts) for before in ("", "<int> ", ".cold", "::{closure#")
            for end in ("!", "x")]  # fmt: skip


def test_no_name_takes_long():
    text = "import sys, json, resource; resource.setrlimit(resource.RLIMIT_CPU, (100, 100))\n"
    text += "from memoir.traces.code_names import *\n"
    text += (
        "for name in json.load(sys.stdin): function_name(name), script_place(name), shortened_name(name, 60)"
    )
    names = repeated()
    assert len(names) > 500
    subprocess.run([sys.executable, "-c", text], input=json.dumps(names), text=True, check=True)


@pytest.mark.parametrize("name", NAMES)
def test_names_as_people_write_them(name):
    assert function_name(name) == NAMES[name]
    assert function_name(function_name(name)) == function_name(name)


def test_places_that_a_script_engine_tells():
    assert script_place("LazyCompile:*handle /app/server.js:12:3") == ("/app/server.js", 12)
    assert script_place("JS:~keep file:///app/a.mjs:3:4") == ("file:///app/a.mjs", 3)
    assert script_place("Cache::add(int)") == ("", 0)


@pytest.mark.parametrize("seed", range(20))
def test_any_text_has_a_name_that_fits(seed):
    """Texts of a stranger's file: brackets that do not close, operators that are none."""
    pick = random.Random(seed)
    parts = [
        "<",
        ">",
        "(",
        ")",
        "::",
        "std::vector",
        "operator",
        "operator()",
        " ",
        ",",
        "{lambda",
        "#1}",
        "a",
        "$u7b$",
        "const",
    ]
    for _ in range(200):
        text = "".join(pick.choice(parts) for _ in range(pick.randrange(40)))
        assert len(shortened_name(function_name(text), 30)) <= 30
    assert function_name("<" * 100_000)


OWNERS = {
    Owner.ALLOCATOR: [
        ("malloc", "", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("__libc_calloc", "", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("operator new(unsigned long)", "", "/usr/lib/libstdc++.so.6"),
        ("xmalloc", "/app/util.c", "/app/server"),
        ("zcalloc", "/app/zmalloc.c", "/app/redis-server"),
        ("g_malloc0", "", "/usr/lib/libglib-2.0.so.0"),
        ("_PyObject_Malloc", "/b/Objects/obmalloc.c", "/usr/bin/python3.11"),
        ("__rust_alloc", "", "/app/shop"),
        ("je_malloc", "", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
    ],
    Owner.STANDARD: [
        ("std::vector<char>::resize(unsigned long)", "/usr/include/c++/12/bits/stl_vector.h", "/app/server"),
        ("_M_invoke<0>", "/usr/include/c++/12/bits/std_thread.h", "/app/server"),
        ("std::__1::vector<int>::push_back(int&&)", "", "/app/server"),
        ("qsort_r", "", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("alloc::raw_vec::RawVec<T,A>::grow_one", "/rustc/9fc6b431/library/alloc/src/raw_vec.rs", "/app/shop"),
        ("<alloc::vec::Vec<T> as core::clone::Clone>::clone", "", "/app/shop"),
        ("runtime.cgocall", "/usr/local/go/src/runtime/cgocall.go", "/app/bridge"),
        ("fmt.Sprintf", "/usr/local/go/src/fmt/print.go", "/app/bridge"),
        ("main._Cfunc_c_buffer", "_cgo_gotypes.go", "/app/bridge"),
    ],
    Owner.PACKAGE: [
        ("serde_json::from_str", "/c/registry/src/index.crates.io-6f17d22b/serde_json-1.0/src/de.rs", "/app/shop"),
        ("nlohmann::json::parse", "/usr/include/nlohmann/json.hpp", "/app/server"),
        ("yaml.Unmarshal", "/root/go/pkg/mod/gopkg.in/yaml.v3@v3.0.1/yaml.go", "/app/bridge"),
    ],
    Owner.LIBRARY: [
        ("deflateInit2_", "", "/lib/x86_64-linux-gnu/libz.so.1"),
        ("array_new", "", "/v/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"),
    ],
    Owner.RUNTIME: [
        ("start_thread", "", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("_PyEval_EvalFrameDefault", "/b/Python/ceval.c", "/usr/lib/libpython3.11.so.1.0"),
        ("node::Buffer::New(v8::Isolate*)", "", "/usr/bin/node"),
    ],
    Owner.OWN: [
        ("SessionCache::add(int)", "/app/server.cc", "/app/server"),
        ("leak_malloc_table", "/app/leak.c", "/app/leak"),
        ("session_alloc", "/app/leak.c", "/app/leak"),
        ("shop::invoice", "/app/src/main.rs", "/app/shop"),
        ("<alloc::vec::Vec<T> as shop::Price>::price", "", "/app/shop"),
        ("main.openHandle", "/app/bridge.go", "/app/bridge"),
        ("cache.(*Cache).Add", "/home/me/go/src/example.com/server/cache/cache.go", "/app/server"),
        ("plugin_load", "/app/plugin.c", "/app/lib/plugin.so"),
        ("", "", "/app/stripped"),
        ("LazyCompile:*handle /app/server.js:12:3", "", ""),
    ],
}  # fmt: skip


@pytest.mark.parametrize("owner", OWNERS)
def test_whose_code_a_frame_is(owner):
    for function, file, module in OWNERS[owner]:
        row = {
            "kind": FrameKind.kNative,
            "function": function,
            "file": file,
            "line": 1,
            "module": module,
            "offset": 1,
        }
        assert frame_of(row).owner == owner, (function, file, module)


PYTHON = {
    "/app/serve.py": Owner.OWN,
    "<stdin>": Owner.OWN,
    "/v/lib/python3.11/site-packages/flask/app.py": Owner.PACKAGE,
    "/usr/lib/python3/dist-packages/apt/cache.py": Owner.PACKAGE,
    "/usr/lib/python3.11/json/encoder.py": Owner.STANDARD,
    "<frozen importlib._bootstrap>": Owner.STANDARD,
}


@pytest.mark.parametrize("file", PYTHON)
def test_whose_code_a_line_of_python_is(file):
    row = {"kind": FrameKind.kPython, "function": "f", "file": file, "line": 1, "module": "", "offset": 0}
    assert frame_of(row).owner == PYTHON[file]


def test_a_program_is_its_own_wherever_it_is_installed():
    row = {"kind": FrameKind.kNative, "function": "exec_simple_query", "file": "", "line": 0, "offset": 1}
    row["module"] = "/usr/lib/postgresql/15/bin/postgres"
    assert frame_of(row).owner == Owner.LIBRARY
    assert frame_of(row, row["module"]).owner == Owner.OWN


@pytest.mark.parametrize("seed", range(5))
def test_who_asked_is_the_innermost_of_the_lowest_owner(seed):
    """Against a walk of each stack: every frame looked at, from the innermost on."""
    pick = random.Random(seed)
    trace = native.NativeTrace()
    trace.meta("command", "/app/server --port 1")
    kinds = [
        (function, file, module) for cases in OWNERS.values() for function, file, module in cases if module
    ]
    frames = []
    for offset in range(1, 40):
        function, file, module = pick.choice(kinds)
        lines = [(function, file, offset)] if function else []
        inlined = [("detail::inlined(int)", "/app/detail.h", offset)] if pick.random() < 0.3 and lines else []
        frames.append(trace.native(module, offset, inlined + lines))
    for number in range(60):
        stack = trace.stack(*(pick.choice(frames) for _ in range(pick.randrange(1, 9))))
        trace.allocate(1, 1, 0x1000 * (number + 1), 100, stack)
    opened = Trace.from_bytes(trace.bytes())
    sites = np.unique(opened.events["site"][opened.events["kind"] == 1])
    stacks = Stacks(opened, sites)
    for site, row in zip(sites.tolist(), stacks.row.tolist(), strict=True):
        read = [frame_of(one, stacks.program) for one in opened.site_frames(site)]
        assert [frame.function for frame in stacks.outward(row)] == [
            frame.function for frame in reversed(read)
        ]
        lowest = min(frame.owner for frame in read)
        inner = len(read) - 1 - [frame.owner for frame in reversed(read)].index(lowest)
        assert stacks.frame_at(int(stacks.asked[row])) == read[inner]
        called = [frame for frame in read[inner + 1 :] if frame.owner in (Owner.PACKAGE, Owner.LIBRARY)]
        through = int(stacks.through[row])
        assert (None if through == NONE else stacks.frame_at(through)) == (called[0] if called else None)
    everything = Stacks(opened, sites, all_frames=True)
    assert everything.asked[everything.row].tolist() == everything.row.tolist()
