# SPDX-License-Identifier: Apache-2.0
"""The planner, the static tensors and the malloc as other projects have them: installed and found by CMake or
pkg-config, or as a folder of the project's own."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"
EXAMPLES = ROOT / "examples"
CXX = os.environ.get("CXX", "c++")
CC = os.environ.get("CC", "cc")

IN_CPP = """
#include <cstdio>
#include "memoir/static_tensors/static_tensors.h"
int main() {
  memoir::StaticTensors pool({.pool = 1 << 20});
  memoir::StaticTensors::Tensor* tensor = pool.create(4096);
  if (tensor == nullptr) return std::puts(pool.why()), 1;
  std::printf("%zu bytes\\n", static_cast<std::size_t>(tensor->size));
  return pool.release(tensor) ? 0 : 1;
}
"""


MALLOCS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((weak)) const char* memoir_malloc_settings(void);
int main(void) {
  char* copy = strdup("a copy, which libc allocates");
  printf("%s\\n", memoir_malloc_settings ? "memoir" : "another");
  free(copy);
  return 0;
}
"""


# Counts what malloc is asked for while nothing may be asked for.
COUNTS = """
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include "memoir_plan.h"
extern void* __libc_malloc(size_t);
static int counting, counted;
void* malloc(size_t size) { counted += counting; return __libc_malloc(size); }
enum { N = 3000 };
static uint64_t lower[N], upper[N], size[N], offsets[N], arena;
static int told(void* context, uint64_t arena_size, double seconds) {
  return ++*(int*)context >= 3 || arena_size == 0 || seconds < 0;
}

int main(void) {
  int calls = 0;
  uint64_t state = 1;
  for (int i = 0; i < N; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    lower[i] = state >> 33 & 1023;
    upper[i] = lower[i] + 1 + (state >> 50 & 63);
    size[i] = 1 + (state >> 20 & 4095);
  }
  memoir_planner* planner = memoir_planner_create(N);
  counting = 1;
  int bad = memoir_planner_plan(planner, N, lower, upper, size, NULL, offsets, &arena);
  counting = 0;
  bad |= memoir_plan_check(N, lower, upper, size, NULL, offsets, arena);
  memoir_skeleton* skeleton = memoir_skeleton_create(N, lower, upper, size, NULL, offsets);
  for (int i = 0; i < N; ++i) size[i] = i % 7 == 0 ? 0 : size[i] * (uint64_t)(1 + i % 5);
  counting = 1;
  bad |= memoir_skeleton_place(skeleton, size, offsets, &arena);
  counting = 0;
  bad |= memoir_plan_check(N, lower, upper, size, NULL, offsets, arena);
  memoir_plan_options options = memoir_plan_defaults();
  options.deadline_s = 0.05;
  bad |= memoir_plan(N, lower, upper, size, NULL, &options, offsets, NULL);
  options.tolerance_share = 1;
  memoir_plan_result close;
  bad |= memoir_plan(N, lower, upper, size, NULL, &options, offsets, &close);
  bad |= close.arena_size > 2 * close.lower_bound;
  options.tolerance_share = -1;
  bad |= memoir_plan(N, lower, upper, size, NULL, &options, offsets, NULL) != MEMOIR_PLAN_BAD_INPUT;
  options.tolerance_share = 0;
  options.deadline_s = 1e9; /* until it is told to stop */
  options.progress = told;
  options.context = &calls;
  bad |= memoir_plan(N, lower, upper, size, NULL, &options, offsets, &close);
  bad |= memoir_plan_check(N, lower, upper, size, NULL, offsets, close.arena_size);
  bad |= !close.optimal && calls != 3;
  options.struct_size = offsetof(memoir_plan_options, tolerance_bytes); /* a caller of before */
  options.deadline_s = 0.05;
  bad |= memoir_plan(N, lower, upper, size, NULL, &options, offsets, NULL);
  int threads = 0;
  DIR* tasks = opendir("/proc/self/task");
  for (struct dirent* one; (one = readdir(tasks)) != NULL;) threads += one->d_name[0] != '.';
  if (bad) return puts(memoir_plan_why()), 1;
  printf("%d allocations, %d thread\\n", counted, threads);
  return 0;
}
"""


def run(*command, **settings):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cmake():
    found = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if found is None:
        pytest.skip("there is no cmake")
    return found


def test_a_cmake_of_the_system_configures_it(cmake, tmp_path):
    """Distributions have older ones than the virtual environment."""
    folders = [one for one in os.get_exec_path() if Path(one).resolve() != Path(cmake).parent.resolve()]
    other = shutil.which("cmake", path=os.pathsep.join(folders))
    version = other and re.search(r"version (\d+)\.(\d+)", run(other, "--version"))
    if not version or (int(version[1]), int(version[2])) < (3, 24):
        pytest.skip("there is no second cmake from 3.24 on")
    run(other, "-S", ROOT, "-B", tmp_path, "-G", "Unix Makefiles")


@pytest.fixture(scope="module")
def prefix(cmake, tmp_path_factory):
    """Installs one component alone, and says where."""
    libraries = {
        "plan": BUILD / "src" / "memoir" / "libmemoir_plan.a",
        "plan_c": BUILD / "src" / "memoir" / "plan" / "c" / "libmemoir_plan_c.a",
        "static_tensors": BUILD / "src" / "memoir" / "static_tensors" / "c" / "libmemoir_static_tensors.a",
        "malloc": BUILD / "src" / "memoir" / "malloc" / "preload" / "libmemoir_malloc.a",
    }
    made = {}

    def install(component):
        if not libraries[component].exists():
            pytest.skip("the release preset is not built (make test builds it)")
        if component not in made:
            made[component] = tmp_path_factory.mktemp("installed") / "prefix"
            run(cmake, "--install", BUILD, "--prefix", made[component], "--component", component)
        return made[component]

    return install


@pytest.fixture
def flags(prefix):
    """What pkg-config tells a compiler."""
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")

    def read(component, *options):
        package = "memoir-" + component.replace("_", "-")
        path = prefix(component.removesuffix("_static")) / "lib" / "pkgconfig"
        return shlex.split(
            run("pkg-config", *options, package, env={**os.environ, "PKG_CONFIG_PATH": str(path)})
        )

    return read


def project(folder, lines):
    """A project of somebody else's, in C and C++."""
    folder.mkdir()
    shutil.copy(EXAMPLES / "static_tensors" / "adopt.c", folder)
    (folder / "in_cpp.cc").write_text(IN_CPP)
    head = [
        "cmake_minimum_required(VERSION 3.24)",
        "project(consumer LANGUAGES C CXX)",
        "set(CMAKE_CXX_STANDARD 20)",
    ]
    (folder / "CMakeLists.txt").write_text("\n".join(head + lines) + "\n")
    return folder


STATIC_TENSORS = [
    "add_executable(adopt adopt.c)",
    "target_link_libraries(adopt PRIVATE memoir::static_tensors)",
    "add_executable(in_cpp in_cpp.cc)",
    "target_link_libraries(in_cpp PRIVATE memoir::static_tensors)",
]


def test_cmake_finds_the_planner(cmake, prefix, tmp_path):
    installed = prefix("plan")
    assert (installed / "include" / "memoir" / "plan" / "search" / "auto.h").exists()
    assert not list(installed.rglob("*.cc"))
    run(cmake, "-S", EXAMPLES / "planner", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}")
    run(cmake, "--build", tmp_path)
    out = run(tmp_path / "plan_layers")
    assert out.count("layer ") == 12
    assert "no plan is below" in out


def test_pkg_config_finds_the_planner(flags, tmp_path):
    source = EXAMPLES / "planner" / "plan_layers.cc"
    run(CXX, "-std=c++20", source, "-o", tmp_path / "plan_layers", *flags("plan", "--cflags", "--libs"))
    assert run(tmp_path / "plan_layers").count("layer ") == 12


def c_planners(cmake, prefix, tmp_path):
    """The example in C, built outside of the tree with the shared and the static library."""
    lines = ["find_package(memoir REQUIRED COMPONENTS plan_c)"]
    for target in ("plan_c", "plan_c_static"):
        lines += [
            f"add_executable({target} plan.c)",
            f"target_link_libraries({target} PRIVATE memoir::{target})",
        ]
    folder = project(tmp_path / "consumer", lines)
    shutil.copy(EXAMPLES / "plan_c" / "plan.c", folder)
    lists = folder / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("LANGUAGES C CXX", "LANGUAGES C"))
    run(cmake, "-S", folder, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix('plan_c')}")
    run(cmake, "--build", tmp_path / "build")
    return [tmp_path / "build" / target for target in ("plan_c", "plan_c_static")]


def test_cmake_finds_the_planner_for_c(cmake, prefix, tmp_path):
    for program in c_planners(cmake, prefix, tmp_path):
        out = run(program)
        assert out.count("layer ") == 6 and "into 1000 bytes: no plan fits the capacity" in out
    installed = prefix("plan_c")
    assert [path.name for path in installed.rglob("*.h")] == ["memoir_plan.h"]
    assert (installed / "share" / "licenses" / "memoir" / "LICENSE").exists()
    for name in ("libmemoir_plan_c.so", "libmemoir_plan_c.a"):
        stripped = tmp_path / name
        run("strip", "--strip-unneeded", installed / "lib" / name, "-o", stripped)
        assert stripped.stat().st_size <= 1.25 * 2**20
    exported = run("nm", "-D", "--defined-only", installed / "lib" / "libmemoir_plan_c.so").split()[2::3]
    declared = re.findall(r"\b(memoir_\w+)\(", (installed / "include" / "memoir_plan.h").read_text())
    assert set(exported) <= set(declared)
    assert set(exported) >= {"memoir_plan", "memoir_skeleton_place", "memoir_planner_plan"}


def test_pkg_config_finds_the_planner_for_c(flags, prefix, tmp_path):
    source = EXAMPLES / "plan_c" / "plan.c"
    where = {**os.environ, "LD_LIBRARY_PATH": str(prefix("plan_c") / "lib")}
    for component in ("plan_c", "plan_c_static"):
        found = flags(component, "--cflags", "--libs")
        run(CC, "-Wall", "-Werror", source, "-o", tmp_path / component, *found)
        assert run(tmp_path / component, env=where).count("batch ") == 3


def test_the_planner_for_c_allocates_nothing_when_it_promises_so(flags, prefix, tmp_path):
    (tmp_path / "counts.c").write_text(COUNTS)
    run(
        CC,
        "-O1",
        "-fno-builtin",
        tmp_path / "counts.c",
        "-o",
        tmp_path / "counts",
        *flags("plan_c_static", "--cflags", "--libs"),
    )
    assert run(tmp_path / "counts") == "0 allocations, 1 thread\n"


def test_the_planner_for_rust(prefix, tmp_path):
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("there is no cargo, Rust's builder: the crate in examples/plan_rust is not tried")
    crate = tmp_path / "crate"
    shutil.copytree(EXAMPLES / "plan_rust", crate)
    where = {
        **os.environ,
        "MEMOIR_LIB": str(prefix("plan_c") / "lib"),
        "CARGO_TARGET_DIR": str(tmp_path / "target"),
    }
    where["LD_LIBRARY_PATH"] = where["MEMOIR_LIB"]
    assert "7 passed" in run(cargo, "test", "--offline", "--lib", cwd=crate, env=where)
    run(cargo, "package", "--offline", "--allow-dirty", cwd=crate, env=where)  # as it is published
    assert "no plan is below 500" in run(
        cargo, "run", "--offline", "--example", "layers", cwd=crate, env=where
    )


def test_cmake_finds_the_static_tensors_without_the_planner(cmake, prefix, tmp_path):
    installed = prefix("static_tensors")
    assert not [path for path in installed.rglob("*") if path.name in ("plan", "trace", "libmemoir_plan.a")]
    folder = project(
        tmp_path / "consumer", ["find_package(memoir REQUIRED COMPONENTS static_tensors)", *STATIC_TENSORS]
    )
    run(cmake, "-S", folder, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run(cmake, "--build", tmp_path / "build")
    assert "kept by the view: 1" in run(tmp_path / "build" / "adopt")
    assert run(tmp_path / "build" / "in_cpp") == "4096 bytes\n"


def test_a_project_in_c_alone_links_the_static_tensors(cmake, prefix, tmp_path):
    folder = project(
        tmp_path / "consumer",
        ["find_package(memoir REQUIRED COMPONENTS static_tensors)", *STATIC_TENSORS[:2]],
    )
    lists = folder / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("LANGUAGES C CXX", "LANGUAGES C"))
    run(cmake, "-S", folder, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix('static_tensors')}")
    run(cmake, "--build", tmp_path / "build")
    assert "kept by the view: 1" in run(tmp_path / "build" / "adopt")


def test_cmake_says_which_component_is_not_installed(cmake, prefix, tmp_path):
    folder = project(tmp_path / "consumer", ["find_package(memoir REQUIRED COMPONENTS plan)"])
    command = [
        cmake,
        "-S",
        folder,
        "-B",
        tmp_path / "build",
        f"-DCMAKE_PREFIX_PATH={prefix('static_tensors')}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "memoir is installed without plan" in " ".join(done.stderr.split())


def test_pkg_config_finds_the_static_tensors(flags, tmp_path):
    (tmp_path / "in_cpp.cc").write_text(IN_CPP)
    found = flags("static_tensors", "--cflags", "--libs")
    assert not [flag for flag in found if "plan" in flag.rpartition("/")[2]]
    run(CC, EXAMPLES / "static_tensors" / "adopt.c", "-o", tmp_path / "adopt", *found)
    assert "kept by the view: 1" in run(tmp_path / "adopt")
    run(CXX, "-std=c++20", tmp_path / "in_cpp.cc", "-o", tmp_path / "in_cpp", *found)
    assert run(tmp_path / "in_cpp") == "4096 bytes\n"


def test_a_project_that_holds_memoir_compiles_what_it_links_and_no_planner(cmake, tmp_path):
    folder = project(tmp_path / "consumer", [f"add_subdirectory({ROOT.as_posix()} memoir)", *STATIC_TENSORS])
    run(cmake, "-S", folder, "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Debug")
    run(cmake, "--build", tmp_path / "build")
    assert "kept by the view: 1" in run(tmp_path / "build" / "adopt")
    assert run(tmp_path / "build" / "in_cpp") == "4096 bytes\n"
    objects = {path.name.removesuffix(".cc.o") for path in tmp_path.rglob("*.cc.o")} - {"in_cpp"}
    assert {"static_tensors", "static_tensors_heap", "host_arena"} <= objects
    assert not objects & {path.stem for path in (ROOT / "src/memoir/plan").rglob("*.cc")}
    assert {path.name for path in tmp_path.rglob("*.a")} == {"libmemoir_base.a", "libmemoir_static_tensors.a"}


def test_cmake_finds_the_malloc_alone(cmake, prefix, tmp_path):
    installed = prefix("malloc")
    assert not list(installed.rglob("*.h"))
    lines = ["find_package(memoir REQUIRED COMPONENTS malloc)"]
    for target in ("malloc", "malloc_static"):
        lines += [
            f"add_executable({target} program.c)",
            f"target_link_libraries({target} PRIVATE memoir::{target})",
        ]
    folder = project(tmp_path / "consumer", lines)
    (folder / "program.c").write_text(MALLOCS)
    run(cmake, "-S", folder, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run(cmake, "--build", tmp_path / "build")
    for target in ("malloc", "malloc_static"):
        assert run(tmp_path / "build" / target) == "memoir\n"


def test_pkg_config_and_a_plain_flag_find_the_malloc(flags, prefix, tmp_path):
    (tmp_path / "program.c").write_text(MALLOCS)
    where = {**os.environ, "LD_LIBRARY_PATH": str(prefix("malloc") / "lib")}
    for name, found in {
        "shared": flags("malloc", "--libs"),
        "static": flags("malloc_static", "--libs"),
        "plain": [f"-L{prefix('malloc') / 'lib'}", "-lmemoir_malloc"],
    }.items():
        run(CC, "-fno-builtin", tmp_path / "program.c", "-o", tmp_path / name, *found)
        needed = "libmemoir_malloc" in run("ldd", tmp_path / name, env=where)
        assert needed == (name != "static")
        assert run(tmp_path / name, env=where) == "memoir\n"
    run(CC, tmp_path / "program.c", "-o", tmp_path / "without")
    assert run(tmp_path / "without") == "another\n"
