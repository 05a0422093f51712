# SPDX-License-Identifier: Apache-2.0
"""The proof by bytes: programs that take their memory from elsewhere, and what is said of each."""

import os
import shutil
import subprocess
import sys

import memoir.bench.process.machine
import pytest
from memoir.bench.process import proof
from memoir.bench.process.allocators import Allocator
from memoir.bench.process.executables import check_executable, why_unreachable
from memoir.bench.process.proof import prove
from small_programs import compile_c

import memoir

HIDDEN = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static char *at, *end;
static void* PREFIX_malloc(size_t size) {
  size = (size + 15) & ~15ul;
  if (at == 0 || at + size > end) {
    at = mmap(0, 1 << 24, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = at + (1 << 24);
  }
  at += size;
  return at - size;
}
int main(void) {
  for (int i = 0; i < 40000; ++i) memset(PREFIX_malloc(300), i, 300);
  printf("done\\n");                    /* this asks the real one */
  munmap(end - (1 << 24), 1 << 24);   /* at the end all of it is gone */
  return 0;
}
"""
MIXED = """
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(int count, char** words) {
  size_t own = (size_t)atoi(words[1]) << 20, asked = (size_t)atoi(words[2]) << 20;
  memset(mmap(0, own, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, own);
  for (size_t at = 0; at < asked; at += 5000) memset(malloc(5000), 1, 5000);
  return count;
}
"""
EXPORTED = """
#include <stddef.h>
#include <string.h>
static char heap[1 << 26];
static size_t used;
void* malloc(size_t size) { used += (size + 31) & ~15ul; return heap + used - ((size + 31) & ~15ul); }
void free(void* block) { (void)block; }
void* calloc(size_t n, size_t size) { return memset(malloc(n * size), 0, n * size); }
void* realloc(void* block, size_t size) { void* fresh = malloc(size); return block ? memcpy(fresh, block, size) : fresh; }
int main(void) { for (int i = 0; i < 4000; ++i) memset(malloc(4000), i, 4000); return 0; }
"""
NOTHING = "int main(void) { return 0; }"


@pytest.fixture(scope="module")
def programs(built):
    compile_c(HIDDEN, built / "hidden")
    compile_c(MIXED, built / "mixed")
    compile_c(EXPORTED, built / "exported", "-rdynamic")
    compile_c(NOTHING, built / "nothing")
    return built


@pytest.fixture
def stub(built):
    return Allocator("stub", built / "stub.so")


def test_a_hidden_malloc_is_an_error_though_it_asks_now_and_then(programs, stub):
    words = r"serves 0\.\d % of the [\d.]+ MiB of anonymous memory of .*hidden: it allocates"
    for allocator in (stub, Allocator("system")):
        with pytest.raises(memoir.Error, match=words):
            prove(allocator, [str(programs / "hidden")], {})


def test_a_hidden_malloc_in_a_child_is_an_error(programs, stub):
    with pytest.raises(memoir.Error, match="of anonymous memory of .*hidden: it allocates by itself"):
        prove(stub, ["sh", "-c", f"{programs / 'asks'}; {programs / 'hidden'}; {programs / 'asks'}"], {})


def test_a_malloc_that_the_program_exports_is_named(programs, stub):
    with pytest.raises(memoir.Error, match="stub .*(never asks|calls the malloc of .*exported)"):
        prove(stub, [str(programs / "exported")], {})


@pytest.mark.parametrize(
    "own, asked, low, high", [(0, 8, 0.95, 1.0), (8, 8, 0.4, 0.6), (24, 8, 0.2, 0.3), (2, 14, 0.8, 0.95)]
)
def test_the_share_is_that_of_the_bytes(programs, stub, own, asked, low, high):
    shown = prove(stub, [str(programs / "mixed"), str(own), str(asked)], {})
    assert low <= shown.share <= high
    assert bool(shown.weak) == (shown.share < 0.5)
    kept = shown.to_dict()
    assert proof.sentence("stub", kept).startswith(f"stub served {shown.calls:,} requests, ")
    if shown.weak:
        (line,) = proof.warnings("stub", kept)
        assert line.startswith(f"stub serves only {100 * shown.share:.0f} % of the") and "mixed" in line


@pytest.mark.parametrize("clearing", [["env", "-i"], ["env", "-u", "LD_PRELOAD"]])
def test_a_cleared_environment_is_noticed_however_short_the_program(programs, stub, clearing):
    with pytest.raises(memoir.Error, match="stub is not in .*nothing, .* cleared LD_PRELOAD"):
        prove(stub, [*clearing, str(programs / "nothing")], {})
    inner = " ".join([*clearing, str(programs / "nothing")])
    with pytest.raises(memoir.Error, match="stub is not in .*nothing, .* cleared LD_PRELOAD"):
        prove(stub, ["sh", "-c", f"{programs / 'asks'}; {inner}; {programs / 'asks'}"], {})


def test_a_short_static_child_does_not_escape(programs, stub, static_program):
    compile_c(NOTHING, programs / "static_nothing", "-static")
    with pytest.raises(
        memoir.Error, match="static_nothing, which the command starts: it is statically linked"
    ):
        prove(stub, ["sh", "-c", f"{programs / 'asks'}; {programs / 'static_nothing'}; true"], {})


def test_a_tiny_static_helper_of_a_large_program_is_said_and_passes(programs, stub, static_program):
    compile_c(NOTHING, programs / "static_nothing", "-static")
    large = "import subprocess, sys, time; x = [bytearray(2000) for _ in range(20000)]"
    large += "; subprocess.run(sys.argv[1]); time.sleep(1)"
    shown = prove(stub, [sys.executable, "-c", large, str(programs / "static_nothing")], {})
    assert [os.path.basename(program) for program in shown.aside] == ["static_nothing"]
    lines = proof.warnings("stub", shown.to_dict())
    assert [line for line in lines if "static_nothing, which the command starts; it is too small" in line]


@pytest.mark.full
def test_a_go_program_with_cgo_is_no_test_of_an_allocator(tmp_path, stub):
    if shutil.which("go") is None:
        pytest.skip("no Go here")
    (tmp_path / "main.go").write_text(
        'package main\n// #include <stdlib.h>\nimport "C"\nfunc main() {\n  C.free(C.malloc(100))\n  kept := [][]byte{}\n'
        "  for i := 0; i < 2000; i++ { b := make([]byte, 10000); for j := range b { b[j] = 1 }; kept = append(kept, b) }\n"
        "  println(len(kept))\n}\n"
    )
    environment = os.environ | {
        "CGO_ENABLED": "1",
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "GOCACHE": str(tmp_path / "cache"),
    }
    built = subprocess.run(
        ["go", "build", "-o", "program", "main.go"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        pytest.skip(f"go cannot build here: {built.stderr.splitlines()[-1:]}")
    with pytest.raises(memoir.Error, match="of anonymous memory of .*program: it allocates by itself .*Go's"):
        prove(stub, [str(tmp_path / "program")], {})


def test_a_program_of_another_c_library_or_processor_has_its_own_sentence(programs, tmp_path):
    content = bytearray((programs / "nothing").read_bytes())
    loader = content.index(b"/lib64/ld-linux") if b"/lib64/ld-linux" in content else None
    if loader is None:
        pytest.skip("another loader's name here")
    musl = bytes(content).replace(b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0\0\0\0")
    (tmp_path / "musl").write_bytes(musl)
    with pytest.raises(
        memoir.Error, match="it runs on musl's loader, and the libraries here are built for another"
    ):
        check_executable(tmp_path / "musl")
    content[18:20] = b"\x03\x00"  # EM_386
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(memoir.Error, match="another kind of processor"):
        check_executable(tmp_path / "other")


def test_each_reason_has_its_own_sentence(programs):
    image = {"program": str(programs / "nothing"), "secure": False, "elsewhere": False, "preloaded": False}
    library = programs / "stub.so"
    assert "cleared LD_PRELOAD" in why_unreachable(image, library)
    assert "setuid, capabilities" in why_unreachable(image | {"secure": True}, library)
    assert "sandbox (another root or mount namespace), where" in why_unreachable(
        image | {"elsewhere": True}, library
    )
    assert "its loader did not take" in why_unreachable(image | {"preloaded": True}, library)
    assert "other rights (setuid)" in why_unreachable(image | {"program": "/nowhere"}, library)


def test_a_sandbox_without_the_library_is_one(programs, stub):
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no unshare, or not allowed")
    try:
        subprocess.run(["unshare", "-m", "true"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("no mount namespaces here")
    hide = f"mount -t tmpfs none {memoir.bench.process.machine.tool('memoir-launch').parent}"
    script = f"{hide} && exec {programs / 'asks'}"
    with pytest.raises(memoir.Error, match="is not in .*asks, .*it runs in a sandbox"):
        prove(stub, ["unshare", "-m", "sh", "-c", script], {})


def test_threads_forks_and_execs_are_followed(programs, stub, tmp_path):
    source = """
    #include <pthread.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void* work(void* words) {
      for (int i = 0; i < 100; ++i) memset(malloc(1000), 1, 1000);
      if (words != 0 && fork() == 0) { memset(malloc(1 << 22), 1, 1 << 22); execv(((char**)words)[1], (char**)words + 1); }
      return 0;
    }
    int main(int count, char** words) {
      pthread_t threads[4];
      for (int i = 0; i < 4; ++i) pthread_create(threads + i, 0, work, i == 3 ? words : 0);
      for (int i = 0; i < 4; ++i) pthread_join(threads[i], 0);
      while (wait(0) > 0) {}
      return count > 9;
    }
    """
    program = compile_c(source, tmp_path / "threads", "-pthread")
    shown = prove(stub, [str(program), str(programs / "asks")], {})
    assert shown.measurement.exit_code == 0 and shown.share > 0.8
    assert set(shown.programs) == {str(program), str(programs / "asks")}
    with pytest.raises(memoir.Error, match="stub is not in .*nothing"):
        prove(stub, [str(program), shutil.which("env"), "-i", str(programs / "nothing")], {})
