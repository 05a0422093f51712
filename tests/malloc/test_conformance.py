# SPDX-License-Identifier: Apache-2.0
"""What a malloc owes its callers, a case each (conformance.c, operators.cpp), with the malloc preloaded and linked."""

import subprocess
from pathlib import Path

import pytest

CASES = [
    "malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "posix_memalign", "aligned_alloc", "valloc",
    "sized", "usable_size", "aliases", "deep_binding", "by_handle", "information",
    "fork_under_load", "thread_churn", "remote_frees", "idle_gives_back", "part_touched", "address_limit", "wild_frees",
]  # fmt: skip
SETTINGS = {"default": {}, "plain": {"background": "0", "split": "0", "huge": "0"}}
C_NAMES = """malloc calloc realloc free cfree memalign posix_memalign aligned_alloc valloc pvalloc reallocarray
    malloc_usable_size free_sized free_aligned_sized malloc_trim mallopt mallinfo mallinfo2 malloc_info malloc_stats
    __libc_malloc __libc_free __libc_calloc __libc_realloc __libc_memalign __libc_valloc __libc_pvalloc __libc_cfree
    __libc_reallocarray __posix_memalign"""
NEW = ["_Znwm", "_Znam"]
DELETE = ["_ZdlPv", "_ZdaPv"]


def test_every_case_is_listed(conformance):
    said = subprocess.run([conformance], capture_output=True, text=True).stdout.split()
    assert set(said) - {"under_limit"} == set(CASES)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("case", CASES)
def test_case(case, settings, conformance, under):
    run = under([conformance, case], SETTINGS[settings])
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("case", ["new", "nothrow", "aligned", "handler", "containers"])
def test_operators(case, compiled, under):
    run = under([compiled("operators.cpp"), case])
    assert run.returncode == 0, run.stderr


def test_symbols(library):
    defined = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in defined.stdout.splitlines()}
    wanted = {
        *C_NAMES.split(),
        *(
            n + t
            for n in NEW
            for t in ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")
        ),
    }
    wanted |= {
        n + t for n in DELETE for t in ("", "m", "RKSt9nothrow_t", "St11align_val_t", "mSt11align_val_t")
    }
    wanted |= {n + "12__hot_cold_t" for n in NEW}
    assert wanted <= names, wanted - names
    ours = {
        "memoir_malloc_settings",
        "memoir_malloc_figures",
        "memoir_malloc_figure_names",
        "memoir_malloc_sites",
    }
    assert {name for name in names if "memoir" in name} == ours


def test_library_needs_the_c_library_alone_and_little_static_tls(library):
    dynamic = subprocess.run(["readelf", "-dlW", library], capture_output=True, text=True, check=True).stdout
    needed = [line for line in dynamic.splitlines() if "NEEDED" in line]
    assert all("libc.so" in line or "ld-linux" in line for line in needed), needed
    [tls] = [line.split() for line in dynamic.splitlines() if line.strip().startswith("TLS ")]
    assert int(tls[5], 16) < 100


def test_it_can_be_loaded_late(library):
    import ctypes

    assert ctypes.CDLL(str(library)).memoir_malloc_settings


def test_it_can_be_linked(conformance, library):
    linked = conformance.with_name("linked")
    flags = [
        "-O1",
        "-w",
        "-fno-builtin",
        "-pthread",
        "-ldl",
        f"-L{library.parent}",
        "-lmemoir_malloc",
        f"-Wl,-rpath,{library.parent}",
    ]
    subprocess.run(
        ["cc", str(Path(__file__).with_name("conformance.c")), "-o", str(linked), *flags], check=True
    )
    for case in ("malloc", "deep_binding", "by_handle", "information", "wild_frees"):
        subprocess.run([linked, case], check=True, capture_output=True)


def test_a_program_that_knows_lifetimes_keeps_them_apart(compiled):
    library = (
        Path(__file__).parents[2] / "build/release/src/memoir/malloc/preload/libmemoir_malloc_classes.so"
    )
    if not library.exists():
        pytest.skip("the release preset is not built (make test builds it)")
    environment = {"LD_PRELOAD": str(library), "MEMOIR_MALLOC": "background=0"}
    done = subprocess.run([compiled("true_classes.c")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("0 of ")
