# SPDX-License-Identifier: Apache-2.0
"""Real programs with test suites of their own: where those come from, and what their output says of each test. How they
run stands in suites.sh. It is the program of this machine that runs, where that can be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    what: str  # of its tests is run, for people
    tests: str  # a regular expression with the groups `name` and `status`, of a test in the output
    needs: tuple[str, ...] = ()  # commands
    debian: tuple[str, ...] = ()  # packages that have them
    source: str = ""  # Debian's source package
    crate: str = ""  # of cargo
    prepares: bool = False  # has something to build before it runs
    limit: int = 900  # seconds


EACH = r"^test (?P<name>\S+): (?P<status>.*)$"
OF_PYTHON = r"^(?P<name>test\w+ \([\w.]+\)).*(?:\n(?!test)[^\n]*?)?? \.\.\. (?P<status>ok|FAIL|ERROR|skipped)"
OF_GCC = r"^(?:test |\s+\*\*\* )(?P<name>[\w.]+(?: shared| 64-bit)?(?: test)?):? (?P<status>.*)$"
OF_TCL = r"^(?P<name>\w+\.test):\s+(?P<status>Total.*)$"
OF_REDIS = r"\[(?P<status>ok|err|exception|ignore)\]: (?P<name>.*?)(?: \(\d+ ms\))?$"
OF_NUMPY = r"^(?P<name>\S+::.*?) (?P<status>PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)"

SUITES: dict[str, Suite] = {
    "python": Suite("20 modules of CPython's test package", OF_PYTHON),
    "perl": Suite(
        "t/base, cmd, comp, io, re, and op from a to h",
        r"^t/(?P<name>[\w/-]+) \.+ ?(?P<status>.*)$",
        needs=("perl",),
        debian=("perl",),
        source="perl",
    ),
    "sqlite": Suite(
        "40 files of its Tcl tests",
        r"^(?P<name>\S+-[\w.-]+)\.\.\. (?P<status>.*)$",
        needs=("tclsh8.6",),
        debian=("tcl-dev",),
        source="sqlite3",
        prepares=True,
    ),
    "redis": Suite(
        "14 files of its Tcl tests",
        OF_REDIS,
        needs=("redis-server", "tclsh8.6"),
        debian=("redis-server", "tcl"),
        source="redis",
    ),
    "git": Suite(
        "t000?, t002?, t300?",
        r"^(?P<name>\S+\.sh) (?P<status>(?:not )?ok) ",
        needs=("git", "gcc", "make"),
        debian=("git", "gcc", "make"),
        source="git",
        prepares=True,
    ),
    "lua": Suite(
        "the tests of lpeg, a parser in C, 20 times",
        EACH,
        needs=("lua5.4",),
        debian=("lua5.4", "lua-lpeg"),
        source="lua-lpeg",
    ),
    "gcc": Suite(
        "builds zlib: the objects, and zlib's tests", OF_GCC, ("gcc", "make"), ("gcc", "make"), source="zlib"
    ),
    "clang": Suite("builds Lua: the objects", EACH, ("clang",), ("clang",), source="lua5.4"),
    "gxx": Suite(
        "g++ builds tinyxml2's tests: the program, and what it says",
        r"^\[(?P<status> ?\w+ ?)\]:? ?(?P<name>.*)$",
        needs=("g++",),
        debian=("g++",),
        source="tinyxml2",
    ),
    "node": Suite(
        "test/parallel: parts of assert, buffer, events, stream, timers, url, util, zlib, worker",
        EACH,
        needs=("node",),
        debian=("nodejs",),
        source="nodejs",
    ),
    "ruby": Suite(
        "26 files of test/ruby",
        r"^(?:\[ *\d+/\d+\] | +\d+\) (?P<status>\w+):\n)(?P<name>Test[\w:]+#test_[^\s:]+)",
        needs=("ruby",),
        debian=("ruby", "ruby-dev"),
        source="ruby3.1",
    ),
    "go": Suite(
        "programs with C: runtime/cgo, os/user, cmd/cgo",
        r"^ *--- (?P<status>PASS|FAIL|SKIP): (?P<name>\S+)",
        needs=("go", "gcc"),
        debian=("golang-go", "gcc"),
    ),
    "rust": Suite(
        "the crate indexmap, compiled and tested",
        r"^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<status>\w+)",
        needs=("cargo",),
        debian=("cargo",),
        crate="indexmap",
        prepares=True,
    ),
    "postgres": Suite(
        "its regression tests, the whole parallel schedule",
        r"^(?:test |     )?(?P<name>\w+) +\.\.\. (?P<status>ok|FAILED|failed.*?) ",
        needs=("pg_config", "setpriv", "gcc"),
        debian=("postgresql", "postgresql-server-dev-all", "gcc"),
        source="postgresql-15",
        prepares=True,
    ),
    "tcl": Suite(
        "its tests, but sockets and HTTP", OF_TCL, needs=("tclsh8.6",), debian=("tcl",), source="tcl8.6"
    ),
    "bash": Suite(
        "its tests, each by what it prints",
        EACH,
        needs=("bash", "gcc"),
        debian=("bash", "gcc"),
        source="bash",
        prepares=True,
    ),
    "php": Suite(
        "Zend/tests: closures, generators, traits, list, try, gc",
        r"(?P<status>PASS|FAIL|SKIP|XFAIL|BORK|WARN) .*\[(?P<name>[\w./-]+\.phpt)\]",
        needs=("php",),
        debian=("php-cli",),
        source="php8.2",
    ),
    "jq": Suite(
        "jq.test, onig.test, base64.test",
        r"^(?P<status>Testing|\*\*\*)(?P<name>.*)$",
        needs=("jq",),
        debian=("jq",),
        source="jq",
    ),
    "make": Suite(
        "its tests",
        r"^(?P<name>\w+/[\w-]+) \.+ (?P<status>ok|FAILED|N/A).*$",
        needs=("make", "perl"),
        debian=("make", "perl"),
        source="make-dfsg",
    ),
    "memcached": Suite(
        "its tests in perl, of the server with threads",
        EACH,
        needs=("memcached", "perl"),
        debian=("memcached", "perl"),
        source="memcached",
        prepares=True,
    ),
    "numpy": Suite("tests of strings, overlapping memory, einsum, indexing", OF_NUMPY),
    "zstd": Suite(
        "its sources there and back, by 8 levels, with 1 and 3 threads",
        EACH,
        needs=("zstd",),
        debian=("zstd",),
        source="libzstd",
    ),
}
