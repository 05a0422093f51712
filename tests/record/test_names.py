# SPDX-License-Identifier: Apache-2.0
"""Names are true: those of every address of a recording against the symbol tables as nm lists them, and against
addr2line; of programs that were built in all the ways that move names away from their addresses."""

import bisect
import functools
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from memoir._core import Trace

from memoir.record import jit_names, libdw, symbols

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
#define APART __attribute__((noinline))
static volatile int zero = 0;
namespace deep {
inline __attribute__((always_inline)) void* inlined(int size) {
  void* made = std::malloc(size);
  std::memset(made, 1, size);
  return made;
}
template <int kSize> APART void* make() { void* volatile block = inlined(kSize); return block; }
struct Session { std::string user; std::vector<char> state; APART void grow(int size) { state.resize(size); } };
}
// The unlikely half goes to another section.
APART static void* split(int size) {
  if (__builtin_expect(zero != 0, 0)) return nullptr;
  if (__builtin_expect(size == 6006, 0)) {
    void* made = deep::inlined(size);
    if (made == nullptr) std::abort();
    std::fputs("", stdout);
    return made;
  }
  return deep::make<5005>();
}
__attribute__((cold)) APART void* rarely(int size) {
  void* volatile made = std::malloc(size);
  return made;
}
APART void throws(int depth) {
  std::string text(700 + depth, 'x');
  if (depth == 0) throw std::runtime_error(text);
  throws(depth - 1);
}
int main() {
  deep::Session session;
  session.grow(9009);
  for (int i = 0; i < 3; ++i) std::free(deep::make<4242>());
  std::free(split(6006));
  std::free(split(1));
  std::free(rarely(8008));
  try { throws(3); } catch (const std::exception&) { std::free(rarely(8009)); }
  return 0;
}
"""

# How a program may be built, by a name; what happens to it afterwards has the same name.
BUILDS = {
    "pie": ["-O2", "-g"],
    "no-pie": ["-O2", "-g", "-no-pie", "-fno-pie"],
    "no-pie, no debug information": ["-O2", "-no-pie", "-fno-pie"],
    "far base": ["-O2", "-g", "-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x10000000"],
    "gaps between segments": ["-O2", "-g", "-Wl,-z,max-page-size=0x200000"],
    "no-pie, gaps": ["-O2", "-g", "-no-pie", "-fno-pie", "-Wl,-z,max-page-size=0x200000"],
    "optimized at link time": ["-O2", "-g", "-flto"],
    "one section a function": ["-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,--icf=none"],
    "split": ["-O2", "-g", "-gsplit-dwarf"],
    "compressed": ["-O2", "-g", "-gz"],
    "old debug information": ["-O2", "-gdwarf-3", "-no-pie", "-fno-pie"],
    "stripped, with a link": ["-O2", "-g", "-no-pie", "-fno-pie", "-Wl,--build-id"],
    "stripped, with a link, without a build id": ["-O2", "-g", "-Wl,--build-id=none"],
    "stripped, with a link, parts shared": ["-O2", "-g", "-Wl,--build-id"],
    "stripped, symbols packed": ["-O2", "-Wl,--build-id"],
    "not optimized": ["-O0", "-g"],
    "all frame pointers": ["-O3", "-g", "-fno-omit-frame-pointer", "-no-pie", "-fno-pie"],
}


def plain(name: str) -> str:
    """Without what tells copies and versions of one function apart."""
    return re.sub(
        r"(\.(cold|part|isra|constprop|lto_priv|localalias|llvm)(\.\d+)*)+$", "", name.partition("@")[0]
    )


class Oracle:
    """Functions by address, of binutils."""

    def __init__(self, path: Path):
        self.path = path
        rows = []
        for options in (["-S"], ["-DS"]):
            done = subprocess.run(
                ["nm", *options, "--defined-only", str(path)], capture_output=True, text=True
            )
            for line in done.stdout.splitlines():
                words = line.split()
                if len(words) == 4 and words[2] in "tTwWiuV":
                    rows.append((int(words[0], 16), int(words[1], 16), words[3]))
                elif len(words) == 3 and words[1] in "tTwWi":
                    rows.append((int(words[0], 16), 0, words[2]))
        self.rows = sorted(rows)
        self.starts = [row[0] for row in self.rows]

    def names(self, addresses: list[int]) -> dict[int, set[str]]:
        """All that a function which covers the address is called."""
        asked = "\n".join(hex(address) for address in addresses)
        done = subprocess.run(
            ["addr2line", "-f", "-i", "-a", "-e", str(self.path)], input=asked, capture_output=True, text=True
        )
        result = {address: set() for address in addresses}
        groups = re.split(r"^0x([0-9a-f]+)\n", done.stdout, flags=re.M)[1:]
        for address, text in zip(groups[::2], groups[1::2], strict=True):
            functions = text.splitlines()[::2]
            if functions and functions[-1] != "??":
                result[int(address, 16)].add(functions[-1])
        for address in addresses:
            index = bisect.bisect_right(self.starts, address) - 1
            for start, size, name in self.rows[max(index - 40, 0) : index + 1]:
                if start <= address < start + size:
                    result[address].add(name)
        return result


def outermost(opened: Trace) -> dict[str, dict[int, tuple[str, list[str]]]]:
    """By module and offset, the name of the function itself, and of what is inlined into it."""
    result: dict[str, dict[int, list[str]]] = {}
    for site in set(opened.events["site"].tolist()):
        frames = opened.site_frames(site)
        for i, frame in enumerate(frames):
            if not frame["module"]:
                continue
            known = result.setdefault(frame["module"], {})
            if not frame["is_inlined"]:
                inlined = []
                for more in frames[i + 1 :]:
                    if not more["is_inlined"]:
                        break
                    inlined.append(more["function"])
                known[frame["offset"]] = (frame["function"], inlined)
    return result


def compare(trace: Path, least: int, files: dict[str, Path] | None = None) -> int:
    """Compares all named addresses of a recording; how many there are. `files`: where an oracle knows more than the file
    that ran."""
    opened = Trace.open(str(trace))
    count, wrong = 0, []
    for path, names in outermost(opened).items():
        if not Path(path).is_file():
            continue
        oracle = Oracle((files or {}).get(path, Path(path)))
        named = {offset: name for offset, (name, _) in names.items() if name}
        wanted = oracle.names([offset - 1 for offset in named])
        for offset, name in named.items():
            known = {symbols.demangle(plain(one)) for one in wanted[offset - 1]}
            count += 1
            # addr2line gives what has no linkage name without its scope.
            if known and name not in known and not any(name.partition("(")[0].endswith(one) for one in known):
                wrong.append(f"{path}+{offset:#x}: {name}, not {sorted(known)[:3]}")
    assert not wrong, f"{len(wrong)} of {count} differ:\n" + "\n".join(wrong[:10])
    assert count >= least, f"only {count} addresses have names"
    return count


def symbolize(trace: Path) -> None:
    symbols.symbolize(trace)


@functools.cache
def _tools() -> tuple[str, ...]:
    return tuple(tool for tool in ("nm", "addr2line", "objcopy", "strip") if shutil.which(tool) is None)


@pytest.fixture(autouse=True)
def tools():
    if _tools():
        pytest.skip(f"no {_tools()[0]} here")


def build(folder: Path, how: str) -> tuple[Path, Path]:
    """The program, and the file with all its names."""
    (folder / "program.cc").write_text(SOURCE)
    program = folder / "program"
    command = ["c++", "-std=c++17", *BUILDS[how], "program.cc", "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        command = [word for word in command if "--icf" not in word]
        subprocess.run(command, cwd=folder, check=True)
    full = folder / "program.full"
    shutil.copy(program, full)
    if "link" in how and "stripped" in how:
        debug = folder / "program.debug"
        subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
        if "shared" in how:
            if shutil.which("dwz") is None:
                pytest.skip("no dwz here")
            shutil.copy(debug, folder / "other.debug")
            subprocess.run(["dwz", "-m", "shared.debug", debug, "other.debug"], cwd=folder, check=True)
        subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program], check=True)
    if "packed" in how:
        small = folder / "small"
        subprocess.run(["objcopy", "--strip-debug", program, small], check=True)
        packed = folder / "packed.xz"
        packed.write_bytes(lzma.compress(small.read_bytes()))
        subprocess.run(["strip", program], check=True)
        subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={packed}", program], check=True)
    return program, full


QUICK = ("no-pie, gaps", "stripped, with a link, parts shared", "split")  # the others are as full


@pytest.mark.parametrize(
    "how", [how if how in QUICK else pytest.param(how, marks=pytest.mark.full) for how in BUILDS]
)
def test_names_are_those_of_the_symbol_table(how, record, tmp_path):
    program, full = build(tmp_path, how)
    done = record(program, options=["--check-stacks"])
    assert done.returncode == 0, done.stderr
    assert " 0 different, 0 cut" in done.stderr, "each stack reaches main"
    symbolize(tmp_path / "x.trace")
    compare(tmp_path / "x.trace", 20, {str(program): full})
    opened = Trace.open(str(tmp_path / "x.trace"))
    seen = {}
    for event in opened.events[opened.events["kind"] == 1]:
        seen.setdefault(int(event["size"]), [f["function"] for f in opened.site_frames(int(event["site"]))])
    has_lines = pytest.importorskip("symbolic") and "no debug" not in how and "packed" not in how
    for size, wanted in ((4242, "deep::make<4242>"), (6006, "split"), (8008, "rarely"), (704, "throws")):
        stack = seen[size]
        assert any("main" in name for name in stack), stack
        assert any(wanted in name for name in stack), (size, stack)
    if how in ("split", "stripped, with a link, parts shared") and libdw.open_reader(full) is None:
        has_lines = False  # as symbolize() says
    if has_lines:
        assert any("inlined" in name for name in seen[4242]), seen[4242]


LIBRARY = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void* FUNCTION(int size) {
  void* made = malloc(size);
  memset(made, 1, size);
  return made;
}
void* work(int size) {
  void* made = FUNCTION(size);
  __asm__ volatile("");
  return made;
}
"""


def test_a_library_that_is_loaded_again_has_names_each_time(record, tmp_path):
    (tmp_path / "library.c").write_text(LIBRARY)
    (tmp_path / "program.c").write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n  for (int round = 0; round < 40; ++round)\n"
        '    for (int i = 1; i <= 3; ++i) {\n      char path[32];\n      sprintf(path, "./library%d.so", i);\n'
        "      void* library = dlopen(path, RTLD_NOW);\n"
        '      ((void* (*)(int))dlsym(library, "work"))(1000 * i);\n      dlclose(library);\n    }\n  return 0;\n}\n'
    )
    for number in (1, 2, 3):
        command = ["cc", "-O2", "-g", "-fPIC", "-shared", f"-DFUNCTION=leaf{number}", "library.c"]
        subprocess.run([*command, "-o", f"library{number}.so"], cwd=tmp_path, check=True)
    subprocess.run(["cc", "-O2", "-g", "program.c", "-o", "program", "-ldl"], cwd=tmp_path, check=True)
    done = record("./program", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    symbolize(tmp_path / "x.trace")
    opened = Trace.open(str(tmp_path / "x.trace"))
    for number in (1, 2, 3):
        made = opened.events[(opened.events["kind"] == 1) & (opened.events["size"] == 1000 * number)]
        assert len(made) == 40
        for site in set(made["site"].tolist()):
            names = [frame["function"] for frame in opened.site_frames(site)]
            assert names[-2:] == ["work", f"leaf{number}"] and "main" in names
    assert all(module["path"].startswith(("/", "linux-vdso")) for module in opened.modules)


def test_a_file_that_was_written_later_is_another_one(record, tmp_path):
    program, _ = build(tmp_path, "stripped, with a link, without a build id")
    assert record(program).returncode == 0
    os.utime(program)
    rows = {row.path: row for row in symbols.symbolize(tmp_path / "x.trace")}
    assert rows[str(program)].named == 0 and "written after it was recorded" in rows[str(program)].why


@pytest.mark.parametrize("pointers", ["-fno-omit-frame-pointer", "-fomit-frame-pointer"])
def test_code_made_at_run_time(pointers, compiled, record, tmp_path):
    program = compiled("made_code.c", "-O1", pointers, name=f"made{pointers}")
    done = record(program, options=["--check-stacks"])
    assert done.returncode == 0, done.stderr
    assert " 0 different, 0 cut" in done.stderr and "in code made at run time" in done.stderr
    Path(done.stdout.strip()).touch()
    try:
        symbolize(tmp_path / "x.trace")
    finally:
        Path(done.stdout.strip()).unlink()
    opened = Trace.open(str(tmp_path / "x.trace"))
    stacks = {}
    for size in (3000, 4000, 5000):
        (site,) = set(opened.events["site"][opened.events["size"] == size].tolist())
        stacks[size] = opened.site_frames(site)
    names = {size: [frame["function"] for frame in frames] for size, frames in stacks.items()}
    assert names[3000][-4:] == ["main", "outer", "with a pointer", "callee"]
    if pointers == "-fno-omit-frame-pointer":  # its callers' pointers say where it was called
        assert names[4000][-4:] == ["main", "outer", "leak", "callee"]
        assert (stacks[4000][-2]["file"], stacks[4000][-2]["line"]) == ("/app/x.js", 7)
    else:
        assert names[4000][-2:] == ["leak", "callee"]
    assert names[5000] == ["code made at run time, without frame pointers", "one or two", "callee"]


def test_names_in_a_jitdump():
    def record_of(kind: int, body: bytes) -> bytes:
        return kind.to_bytes(4, "little") + (16 + len(body)).to_bytes(4, "little") + bytes(8) + body

    def words(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(8, "little") for number in numbers)

    head = (
        (0x4A695444).to_bytes(4, "little")
        + (1).to_bytes(4, "little")
        + (40).to_bytes(4, "little")
        + bytes(28)
    )
    lines = words(0x1000, 2) + b"".join(
        words(at) + line.to_bytes(4, "little") + bytes(4) + b"/app/x.jl\0"
        for at, line in ((0x1000, 5), (0x1010, 9))
    )
    load = bytes(8) + words(0x1000, 0x1000, 0x40, 7) + b"julia_f\0" + bytes(0x40)
    move = bytes(8) + words(0x2000, 0x1000, 0x2000, 0x40, 7)
    dump = head + record_of(2, lines) + record_of(0, load) + record_of(1, move)
    codes = list(jit_names._of_dump(dump))
    assert [(code.begin, code.end, code.name) for code in codes] == [
        (0x1000, 0x1040, "julia_f"),
        (0x2000, 0x2040, "julia_f"),
    ]
    assert codes[1].place(0x2018) == ("julia_f", "/app/x.jl", 9)
    for cut in range(0, len(dump), 7):  # a file that is cut off, or that somebody made
        list(jit_names._of_dump(dump[:cut]))


def others() -> dict[str, list[str]]:
    """Programs of other kinds that this machine has."""
    found = {"python": [sys.executable, "-c", "import json; print(len(json.dumps(list(range(2000)))))"]}
    if node := shutil.which("node"):
        found["node"] = [
            node,
            "-e",
            "const b=[]; for (let i=0;i<50;i++) b.push(Buffer.alloc(9000)); JSON.parse('[1,2]')",
        ]
    if gcc := shutil.which("gcc"):
        cc1 = subprocess.run([gcc, "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
        if os.path.isabs(cc1):
            found["cc1"] = [cc1, "-quiet", "-O2", "{folder}/small.c", "-o", "{folder}/small.s"]
    for name in ("go", "rustc"):
        if shutil.which(name):
            found[name] = []
    return found


GO = """package main
// #include <stdlib.h>
// #include <string.h>
// static void* leak(int n) { void* made = malloc(n); memset(made, 1, n); return made; }
import "C"
func keep(n int) { C.leak(C.int(n)) }
func main() {
	for i := 0; i < 50; i++ { keep(5000) }
	done := make(chan bool)
	go func() { keep(7000); done <- true }()
	<-done
}
"""
RUST = """struct Cache { rows: Vec<Vec<u8>> }
impl Cache { #[inline(never)] fn add(&mut self, n: usize) { self.rows.push(vec![1u8; n]); } }
fn main() {
    let mut cache = Cache { rows: Vec::new() };
    for i in 0..40 { cache.add(3000 + i); }
    std::mem::forget(cache);
}
"""


@pytest.mark.full
@pytest.mark.parametrize("what", ["python", "node", "cc1", "go", "rustc"])
def test_names_of_programs_of_other_kinds(what, record, tmp_path):
    if what not in (known := others()):
        pytest.skip(f"no {what} here")
    (tmp_path / "small.c").write_text("int f(int a) { return a * 2; } int main(void) { return f(3); }\n")
    command = [word.replace("{folder}", str(tmp_path)) for word in known[what]]
    if what == "go":
        (tmp_path / "m.go").write_text(GO)
        done = subprocess.run(
            ["go", "build", "-o", "m", "m.go"], cwd=tmp_path, capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"go cannot build here: {done.stderr[:80]}")
        command = [str(tmp_path / "m")]
    if what == "rustc":
        (tmp_path / "m.rs").write_text(RUST)
        subprocess.run(["rustc", "-g", "-O", "m.rs"], cwd=tmp_path, check=True)
        command = [str(tmp_path / "m")]
    done = record(*command)
    assert done.returncode == 0, done.stderr
    symbolize(tmp_path / "x.trace")
    compare(tmp_path / "x.trace", 20)
    if what == "go":
        opened = Trace.open(str(tmp_path / "x.trace"))
        for size, caller in ((5000, "main.main"), (7000, "main.main.func1")):
            (site,) = set(opened.events["site"][(opened.events["size"] == size)].tolist())
            names = [frame["function"] for frame in opened.site_frames(site)]
            assert caller in names and "main.keep" in names and "leak" in names, names
