# SPDX-License-Identifier: Apache-2.0
"""An allocator is proved to serve malloc, or the reason why it does not is told."""

import os
import shutil
from pathlib import Path

import pytest
from memoir.bench.process import allocators
from memoir.bench.process.allocators import Allocator
from memoir.bench.process.executables import check_executable
from memoir.bench.process.proof import environment_for, prove

import memoir


@pytest.fixture
def stub(built):
    return Allocator("stub", built / "stub.so")


def test_a_stub_allocator_is_proved(built, stub):
    proof = prove(stub, [str(built / "asks")], {})
    assert os.path.samefile(proof.provider, built / "stub.so")
    assert proof.calls >= 1000
    assert proof.programs == (str(built / "asks"),)
    assert "ops: 1000" in proof.measurement.output


@pytest.mark.parametrize("name", [name for name in allocators.KNOWN if allocators.find(name)] or [None])
def test_an_installed_allocator_is_proved(built, name):
    if name is None:
        pytest.skip("no known allocator is installed")
    (allocator,) = allocators.parse(name)
    proof = prove(allocator, [str(built / "asks")], {})
    assert os.path.samefile(proof.provider, allocator.library)
    assert proof.calls >= 1000


def test_system_is_proved_and_needs_no_preload(built):
    proof = prove(Allocator("system"), [str(built / "asks")], {})
    assert proof.preload == ()
    assert Path(proof.provider).name.startswith("libc")


def test_system_wins_over_a_malloc_that_the_program_links(built):
    from small_programs import ASKS, compile_c

    program = compile_c(
        ASKS, built / "asks_linked", f"-L{built}", "-l:stub.so", f"-Wl,-rpath,{built}", "-Wl,--no-as-needed"
    )
    proof = prove(Allocator("system"), [str(program)], {})
    assert proof.preload == (str(allocators.c_library()),)
    assert Path(proof.provider).name.startswith("libc")


def test_children_are_proved_too(built, stub):
    proof = prove(stub, ["sh", "-c", f"{built / 'asks'}; {built / 'asks'}"], {})
    assert str(built / "asks") in proof.programs
    assert proof.calls >= 2000


def test_a_fork_runs_on_the_malloc_of_what_it_was_forked_from(built, stub):
    """It never meets the loader, so the probe is silent in it; a shell's ( ... ) that goes on for a while."""
    counting = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    proof = prove(stub, ["sh", "-c", f"{built / 'asks'}; ({counting}; ({counting}); true); true"], {})
    assert str(built / "asks") in proof.programs
    with pytest.raises(memoir.Error, match="stub is not in .*never_asks.* cleared LD_PRELOAD"):
        prove(stub, ["sh", "-c", f"(env -i {built / 'never_asks'}; true); true"], {})


def test_a_static_program_is_refused(stub, static_program):
    with pytest.raises(memoir.Error, match="static_: it is statically linked"):
        prove(stub, [str(static_program)], {})


def test_a_static_child_is_refused(stub, static_program):
    with pytest.raises(memoir.Error, match="stub is not in .*static_, which the command starts: .*static"):
        prove(stub, ["sh", "-c", f"{static_program}; true"], {})


def test_a_setuid_program_is_refused(tmp_path):
    if os.getuid() == 0:
        program = tmp_path / "true"
        shutil.copy("/bin/true", program)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
    else:
        program = Path(shutil.which("su") or "/bin/su")
        if not program.exists() or not program.stat().st_mode & 0o4000:
            pytest.skip("no setuid program here")
    with pytest.raises(memoir.Error, match="it is setuid, and the loader then ignores LD_PRELOAD"):
        check_executable(program)


def test_a_cleared_environment_is_noticed(built, stub):
    with pytest.raises(memoir.Error, match="stub is not in .*never_asks.* cleared LD_PRELOAD"):
        prove(stub, ["env", "-i", str(built / "never_asks")], {})


def test_a_program_that_never_asks_is_no_test_of_an_allocator(built, stub):
    with pytest.raises(memoir.Error, match="never asks it for memory"):
        prove(stub, [str(built / "never_asks")], {})


def test_a_library_that_is_no_allocator_is_refused(built):
    with pytest.raises(
        memoir.Error, match=r"empty does not serve malloc in .*asks: .*libc.* does \(is .*empty.so an"
    ):
        prove(Allocator("empty", built / "empty.so"), [str(built / "asks")], {})


def test_scripts_are_judged_by_their_interpreter(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    check_executable(script)


def test_what_the_user_preloads_stays_behind_ours(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/a.so /b.so")
    allocator = Allocator("x", Path("/x.so"), (("A", "b"),))
    assert environment_for(["/x.so"], allocator) == {"A": "b", "LD_PRELOAD": "/x.so:/a.so:/b.so"}
    monkeypatch.delenv("LD_PRELOAD")
    assert environment_for([], Allocator("system")) == {}
