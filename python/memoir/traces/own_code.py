# SPDX-License-Identifier: Apache-2.0
"""Whose code a frame of a stack is, and with that who asked for memory: the innermost frame of the program's own.

All that is folded is in RULES, by language; nothing else in memoir knows names of functions or folders of libraries. A rule
looks at a function's name as people write it, at its source file, or at the path of its library or program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from memoir._core import FrameKind
from memoir.traces.code_names import function_name, script_place


class Owner(IntEnum):
    """Whose a frame is; the lowest of a stack asked for the memory."""

    OWN = 0  # the program's own code
    PACKAGE = 1  # source code of others: site-packages, node_modules, crates, headers that are installed
    LIBRARY = 2  # compiled code of others
    STANDARD = 3  # a language's standard library
    RUNTIME = 4  # what runs the program: an interpreter, the start of a thread
    ALLOCATOR = 5  # malloc, operator new, and what stands for them
    UNKNOWN = 6  # no frame at all


@dataclass(frozen=True)
class Rule:
    """Patterns are searched for in the function's name, its file and its module's path; the first rule that finds one says
    whose the frame is."""

    owner: Owner
    function: str = ""
    file: str = ""
    module: str = ""


# In this order. A file says more than a name, and a name more than a library.
RULES: dict[str, tuple[Rule, ...]] = {
    "allocators": (
        Rule(
            Owner.ALLOCATOR,
            function=r"^_*(?:libc_)?(?:malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|"
            r"pvalloc|strn?dup|mmap(?:64)?|mremap|brk|sbrk)$|^(?:GI_+|_+GI_+)",
        ),
        Rule(Owner.ALLOCATOR, function=r"^operator (?:new|delete)(?:\[\])?$"),
        # The same under the names that programs and libraries give to theirs.
        Rule(
            Owner.ALLOCATOR,
            function=r"^_*(?:x|z|s|g|e|p|q|ck|je|tc|mi|rpl|my|av|av_fast|png|apr|ap|git|git__|cJSON|lua[ML]|uv__?|h5?|"
            r"ngx|pg|safe|sqlite3(?:Db|_)?(?:Mem)?|CRYPTO|OPENSSL|BIO|xml|xmlMem|g_try|try|ztry|tls|mem|z|dict)_*"
            r"(?:[mc]alloc0?|realloc|reallocarray|memalign|strn?dup|Malloc|Calloc|Realloc|MallocZero|MallocRaw)"
            r"(?:_?(?:n|0|array|usable|zero|zeroed|tracked|no_tcache|no_tcache_internal|aligned|internal|wrapper|[a-z]))?$",
        ),
        Rule(
            Owner.ALLOCATOR,
            function=r"^(?:palloc|palloc0|repalloc|pstrdup|MemoryContext\w*|AllocSet\w*|Generation\w*Alloc)$",
        ),
        Rule(
            Owner.ALLOCATOR,
            function=r"^_?Py(?:Mem|Object|MemRaw)_(?:Raw)?(?:Malloc|Calloc|Realloc|New|Strdup|Wcsdup)$|"
            r"^_Py(?:Mem|Object)_(?:Raw|Debug)\w*$|^pymalloc_\w+$|^(?:new|_PyObject)_arena\w*$|^_PyObject_Arena\w+$",
        ),
        Rule(
            Owner.ALLOCATOR,
            function=r"^__(?:rust|rdl|rg|rustc?)_(?:alloc|realloc|alloc_zeroed)\w*$|^__rustc::__r\w+$",
        ),
        Rule(Owner.ALLOCATOR, function=r"^<?(?:mimalloc|tikv_jemallocator|jemallocator|snmalloc_rs)::"),
        Rule(
            Owner.ALLOCATOR,
            module=r"/lib(?:jemalloc|tcmalloc\w*|mimalloc|memoir_\w+|hoard|snmalloc\w*)(?:-\w+)?\.so",
        ),
    ),
    "C++": (
        Rule(
            Owner.STANDARD,
            file=r"/include/c\+\+/|/libstdc\+\+-v3/|/libcxx/|/ext/(?:new|alloc)_allocator|/bits/(?:stl_|std_|alloc)",
        ),
        Rule(
            Owner.STANDARD,
            function=r"^(?:std|__gnu_cxx|__cxxabiv1|__gnu_debug|std_abi)::|^__cxa_|^_Unwind_|^__dynamic_cast$|^__gthread",
        ),
    ),
    "C": (
        Rule(
            Owner.STANDARD,
            file=r"^/build/(?:glibc|gcc)|/(?:glibc|musl)-[^/]+/|^\./(?:malloc|stdlib|libio|elf|nptl|string)/",
        ),
        Rule(
            Owner.RUNTIME,
            function=r"^(?:start_thread|clone3?|_start|_init|call_init|_dl_init|__libc_start_main\w*|__libc_start_call_main|"
            r"__libc_csu_init|frame_dummy|asprintf|vasprintf)$",
        ),
        Rule(
            Owner.STANDARD,
            module=r"/(?:libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libc\+\+(?:abi)?|libgomp|libatomic|libunwind|"
            r"ld|ld-linux[\w-]*|ld-musl[\w-]*|libc\.musl[\w-]*)(?:-[\d.]+)?(?:\.so|-)[\w.]*$|\[vdso\]|linux-vdso",
        ),
    ),
    "Rust": (
        Rule(
            Owner.STANDARD, file=r"/rustc/[^/]+/|/rustlib/src/rust/|/rust/deps/|^library/(?:std|core|alloc)/"
        ),
        Rule(Owner.PACKAGE, file=r"/registry/src/[^/]+/|/\.cargo/git/"),
        Rule(
            Owner.STANDARD,
            function=r"^(?:core|alloc|hashbrown|proc_macro|rustc_demangle)::|^rust_(?:begin|panic|eh)\w*$|"
            r"^<(?:&(?:mut )?)?(?:\[?(?:std|core|alloc|hashbrown)::[^ ]*|[A-Z]|\[?[a-z]\w{1,4}\]?|\(\)|dyn [a-z]+::.*) as "
            r"(?:std|core|alloc|hashbrown)::|"
            r"^<(?:std|core|alloc|hashbrown)::[^ ]*>::|^<impl (?:std|core|alloc|hashbrown)::",
        ),
    ),
    "Go": (
        Rule(
            Owner.STANDARD,
            file=r"/go(?:-?[\d.]+)?/src/(?:[a-z][a-z0-9]*|cmd|vendor)/(?!.*/src/)[^.]*\.(?:go|s)$|^_cgo_|/_cgo_",
        ),
        Rule(Owner.PACKAGE, file=r"/pkg/mod/|/vendor/(?:[\w-]+\.)+\w+/"),
        Rule(
            Owner.STANDARD,
            function=r"^(?:runtime|runtime/\w+|reflect|syscall|internal/[\w/]+)\.|\._Cfunc_|^_?x?_cgo_|^_cgo\w*Cfunc|^crosscall|"
            r"^_rt0_|^asmcgocall",
        ),
    ),
    "Python": (
        Rule(Owner.PACKAGE, file=r"[/\\](?:site|dist)-packages[/\\]"),
        Rule(
            Owner.STANDARD,
            file=r"[/\\]lib(?:64)?[/\\]python\d[\d.]*t?[/\\]|^<frozen |^<(?!stdin>|string>|ipython|module)",
        ),
        Rule(Owner.RUNTIME, module=r"/(?:lib)?python[\d.]*t?d?(?:-[\w.]+)?(?:\.so[\d.]*)?$|/lib-dynload/"),
        Rule(Owner.LIBRARY, module=r"[/\\](?:site|dist)-packages[/\\]"),
        Rule(Owner.PACKAGE, function=r"^(?:at|c10|torch|caffe2|pybind11|nanobind)::"),
    ),
    "JavaScript": (
        Rule(Owner.PACKAGE, file=r"[/\\]node_modules[/\\]"),
        Rule(Owner.STANDARD, file=r"^node:|^internal/|^(?:deno|ext):"),
        Rule(
            Owner.RUNTIME,
            function=r"^(?:v8|node|cppgc|uv|heap)::|^(?:uv__?|napi_|Builtins?_|V8_|BytecodeHandler|Builtin:)",
        ),
    ),
    "interpreters": (
        Rule(
            Owner.RUNTIME,
            module=r"/(?:node|nodejs|deno|bun|java|ruby[\d.]*|perl[\d.]*|php[\d.]*|php-fpm[\d.]*|lua(?:jit)?[\d.]*|julia|"
            r"R|beam\.smp|mono(?:-sgen)?|dotnet)$|"
            r"/lib(?:node|v8\w*|jvm|jli|java|ruby[\d.-]*|perl|php\d?|lua\w*[\d.-]*|julia\w*|R|mono\w*|coreclr)\.so",
        ),
    ),
    "installed": (
        Rule(Owner.PACKAGE, file=r"^/usr/(?:local/)?include/|^/opt/[^/]+/include/"),
        Rule(
            Owner.LIBRARY,
            module=r"^/(?:usr/)?(?:local/)?(?:lib(?:32|64|exec)?|share)/|^/(?:nix/store|snap|opt)/.*\.so|^\[",
        ),
    ),
}


def _compiled(pattern: str) -> re.Pattern[str] | None:
    return re.compile(pattern) if pattern else None


_COMPILED = [
    (rule.owner, _compiled(rule.function), _compiled(rule.file), _compiled(rule.module))
    for rules in RULES.values()
    for rule in rules
]


@dataclass(frozen=True)
class Frame:
    """One function of a stack, as reports write it."""

    function: str
    file: str  # as its compiler had it; "": unknown
    line: int
    owner: Owner
    module: str  # the path of its library or program; "": of none
    kind: FrameKind

    @property
    def is_named(self) -> bool:
        return bool(self.file) or "+0x" not in self.function and not self.function.startswith("0x")


def frame_of(row: dict[str, Any], program: str = "") -> Frame:
    """A frame of Trace's, read. `program`: the path of the executable, whose code is its own wherever it is installed."""
    kind, function, file, line, module = (row[key] for key in ("kind", "function", "file", "line", "module"))
    if kind == FrameKind.kPython:
        name = _PYTHON_INNER.sub("", function) or function
        return Frame(name, file, line, owner_of("", file, ""), "", kind)
    if kind != FrameKind.kNative:
        return Frame(function or "(unknown)", "", 0, _owner_of_text(function, kind), "", kind)
    if not file:
        file, line = script_place(function)
    name = function_name(function) if function else _address(module, row["offset"])
    owner = owner_of(name if function else "", file, module)
    if owner == Owner.LIBRARY and module == program:
        owner = Owner.OWN
    return Frame(name, file, line, owner, module, kind)


# What stands in a function of Python without a name of its own: the function asks.
_PYTHON_INNER = re.compile(r"(?:\.<locals>\.<(?:listcomp|genexpr|dictcomp|setcomp|lambda)>)+$")
# How others write a frame in one text: PyTorch's snapshots have "train.py:21 step", and functions of C++ with parameters.
_PYTHON_TEXT = re.compile(r"(?P<file>.+\.py|<[^>]+>):\d+ .+", re.DOTALL)


def _owner_of_text(text: str, kind: FrameKind) -> Owner:
    if kind == FrameKind.kCut:
        return Owner.UNKNOWN
    python = _PYTHON_TEXT.fullmatch(text)
    if python:
        owner = owner_of("", python["file"], "")
        return Owner.PACKAGE if _OF_TORCH.search(python["file"]) else owner
    return max(owner_of(function_name(text), "", ""), Owner.PACKAGE)


_OF_TORCH = re.compile(r"^torch[/\\]|[/\\]torch[/\\]")


def owner_of(function: str, file: str, module: str) -> Owner:
    """By the first rule that finds something; the program's own where none does."""
    for owner, of_function, of_file, of_module in _COMPILED:
        if function and of_function and of_function.search(function):
            return owner
        if file and of_file and of_file.search(file):
            return owner
        if module and of_module and of_module.search(module):
            return owner
    return Owner.OWN


def _address(module: str, offset: int) -> str:
    library = module.rpartition("/")[2]
    return f"{library}+{offset:#x}" if library else f"{offset:#x}"
