# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from memoir.bench.process import allocators

import memoir


def test_plain_names_variables_and_paths(built):
    stub = built / "stub.so"
    found = allocators.parse(f"system,arena1=system,MALLOC_ARENA_MAX=1,mine={stub},A=b=c,D=e")
    assert [one.name for one in found] == ["system", "arena1", "mine"]
    assert found[0].library is None and found[0].environment == ()
    assert found[1].environment == (("MALLOC_ARENA_MAX", "1"),)
    assert found[2].library == stub
    assert found[2].environment == (("A", "b=c"), ("D", "e"))
    assert [allocators.from_dict(one.to_dict()) for one in found] == found


def test_the_commas_of_malloc_conf_stay_in_its_value(built):
    (one,) = allocators.parse(f"je={built / 'stub.so'},MALLOC_CONF=narenas:1,dirty_decay_ms:0")
    assert one.environment == (("MALLOC_CONF", "narenas:1,dirty_decay_ms:0"),)


@pytest.mark.parametrize("name", allocators.KNOWN)
def test_known_allocators_are_found_or_the_package_is_named(name):
    library = allocators.find(name)
    if library is not None:
        assert allocators.parse(name)[0].library == library
        assert allocators.version(name, library)
    else:
        with pytest.raises(memoir.Error, match="was not found on this machine: (apt-get|no package: )"):
            allocators.parse(name)


@pytest.mark.parametrize(
    "text, words",
    [
        ("sistem", "unknown allocator 'sistem': use system, memoir, jemalloc"),
        ("system,jemaloc", "unknown allocator 'jemaloc'"),
        ("x=/nowhere/libx.so", "allocator x: no file /nowhere/libx.so"),
        ("system,system", "allocator system is named twice"),
        ("system,,x", "an empty name"),
        ("A=b", "comes before any allocator"),
        ("x!=system", "allocator name 'x!'"),
        (f"x={Path(__file__)}", "not a shared library"),
        ("x=./a b.so", "a space or a colon"),
    ],
)
def test_what_cannot_be_is_refused(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.so").touch()
    with pytest.raises(memoir.Error, match=words):
        allocators.parse(text)


def test_system_has_a_version_and_a_library():
    assert allocators.version("system", None)
    assert allocators.c_library().exists()
