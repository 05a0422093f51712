# SPDX-License-Identifier: Apache-2.0
"""memoir doctor --get, --fix and --undo, without a network and without touching this machine's settings."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from memoir.bench.process import allocators, fetching, tuning
from memoir.cli.doctor import command as doctor

import memoir

STUB = Path(__file__).with_name("stub_allocator.c")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    allocators.find.cache_clear()
    yield
    allocators.find.cache_clear()


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A cargo that has one crate, whose checksum is what the test says."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def offer(checksum):
        crate = tmp_path / "crate"
        shutil.rmtree(crate, ignore_errors=True)
        (crate / "c").mkdir(parents=True)
        shutil.copy(STUB, crate / "c" / "stub.c")
        (crate / ".cargo-checksum.json").write_text(json.dumps({"files": {}, "package": checksum}))
        cargo = tools / "cargo"
        cargo.write_text(
            "#!/bin/sh\ngrep -q 'stub-sys = \"=1.2.3\"' Cargo.toml && mkdir vendor && "
            f"cp -r {crate} vendor/stub-sys\n"
        )
        cargo.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    build = ("cc", "-O1", "-fno-builtin", "-shared", "-fPIC", "stub.c", "-o", "{out}")
    crate = fetching.Crate("stub-sys", "1.2.3+x", "f00d", "c", (build,), "libsnmallocshim.so", ("cc",))
    monkeypatch.setitem(fetching.SOURCES, "snmalloc", fetching.Source(None, crate))
    return offer


def test_a_source_is_fetched_checked_built_kept_and_found(registry, tmp_path):
    if allocators.find("snmalloc"):
        pytest.skip("this machine has an snmalloc of its own")
    allocators.find.cache_clear()
    registry("f00d")
    said = []
    library = fetching.get("snmalloc", said.append)
    assert library == tmp_path / "cache/memoir/allocators/snmalloc/libsnmallocshim.so"
    assert said == ["snmalloc: crate stub-sys 1.2.3+x"]
    about = json.loads((library.parent / "about.json").read_text())
    assert about["sha256"] == hashlib.sha256(library.read_bytes()).hexdigest() and about["checksum"] == "f00d"
    assert allocators.parse("snmalloc")[0].library == library
    assert allocators.version("snmalloc", library) == "stub-sys 1.2.3+x"
    library.write_bytes(library.read_bytes() + b"x")
    allocators.find.cache_clear()
    with pytest.raises(
        memoir.Error, match="has changed since it was installed: remove .* memoir doctor --get snmalloc"
    ):
        allocators.parse("snmalloc")


def test_another_checksum_is_refused_before_anything_is_built(registry, tmp_path):
    registry("beef")
    with pytest.raises(
        memoir.Error, match="snmalloc is not available here: crate stub-sys.* checksum is beef, not f00d"
    ):
        fetching.get("snmalloc")
    assert not (tmp_path / "cache").exists()


def test_what_does_not_build_or_run_is_told(registry, tmp_path, monkeypatch):
    registry("f00d")
    for command, words in (
        (("cc", "nothing.c", "-o", "{out}"), "cc ended with 1: .*nothing.c"),
        (("cp", "stub.c", "{out}"), "no program runs with it: .*(cannot be preloaded|invalid ELF)"),
        (
            ("cc", "-shared", "-x", "c", "/dev/null", "-o", "{out}"),
            "it has no malloc that programs can use: .*libc",
        ),
        (("true",), "the build made no library"),
    ):
        crate = fetching.Crate("stub-sys", "1.2.3", "f00d", "c", (command,), "libx.so", ())
        monkeypatch.setitem(fetching.SOURCES, "snmalloc", fetching.Source(None, crate))
        with pytest.raises(memoir.Error, match=words):
            fetching.get("snmalloc")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(memoir.Error, match="no cargo here"):
        fetching.get("snmalloc")


def test_what_cannot_be_had_has_its_reason():
    with pytest.raises(
        memoir.Error, match="hoard is not available here: no distribution and no package registry"
    ):
        fetching.get("hoard")
    with pytest.raises(memoir.Error, match="--get x: use jemalloc"):
        fetching.get("x")
    for source in fetching.SOURCES.values():
        assert source.package or source.crate or source.why_none
        assert source.crate is None or len(source.crate.checksum) == 64


def test_settings_are_changed_and_put_back(tmp_path, monkeypatch):
    for name, value in (("a0", "powersave"), ("a1", "performance"), ("b", "3")):
        (tmp_path / name).write_text(value + "\n")
    settings = (
        tuning.Setting(str(tmp_path / "a[0-9]"), "performance", ("performance",), "steady"),
        tuning.Setting(str(tmp_path / "b"), "1", ("1", "0"), "counted"),
        tuning.Setting(str(tmp_path / "none"), "1", ("1",), "nothing"),
    )
    monkeypatch.setattr(tuning, "SETTINGS", settings)
    assert [(Path(c.path).name, c.before, c.after) for c in tuning.wanted()] == [
        ("a0", "powersave", "performance"), ("b", "3", "1"),
    ]  # fmt: skip
    assert all(change.done for change in tuning.fix()) and tuning.wanted() == []
    assert (tmp_path / "b").read_text() == "1"
    tuning.fix()  # again: nothing to do, and nothing forgotten
    assert {change.after for change in tuning.undo()} == {"powersave", "3"}
    assert (tmp_path / "a0").read_text() == "powersave" and (tmp_path / "b").read_text() == "3"
    with pytest.raises(memoir.Error, match="nothing was changed"):
        tuning.undo()


def test_what_is_not_allowed_is_said_with_the_command(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    setting = tuning.Setting(str(tmp_path / "f"), "1", ("1",), "why")
    (tmp_path / "f").write_text("0")
    monkeypatch.setattr(tuning, "SETTINGS", (setting,))
    monkeypatch.setattr(tuning, "_write", lambda path, value: False)
    (change,) = tuning.fix()
    assert not change.done and change.command == f"echo 1 | sudo tee {tmp_path / 'f'}"
    with pytest.raises(memoir.Error):
        tuning.undo()


def test_what_somebody_else_changed_since_is_left_alone(tmp_path, monkeypatch):
    """Between --fix and --undo an administrator may have set it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        path.write_text("3\n")
    settings = [tuning.Setting(str(path), "1", ("1",), "counted") for path in (ours, theirs)]
    monkeypatch.setattr(tuning, "SETTINGS", settings)
    tuning.fix()
    theirs.write_text("2\n")
    told = CliRunner().invoke(doctor, ["--undo"])
    assert (
        told.exit_code == 0 and f"{theirs}: 2: left alone, somebody has changed it since --fix" in told.output
    )
    assert f"echo 3 | sudo tee {theirs}" in told.output
    assert (ours.read_text().strip(), theirs.read_text().strip()) == ("3", "2")
    with pytest.raises(memoir.Error, match="nothing was changed"):
        tuning.undo()  # it is forgotten
    theirs.write_text("1\n")
    tuning.fix()
    theirs.write_text("7\n")
    tuning.fix()  # 7 is what was there before this one
    assert {(change.path, change.after) for change in tuning.undo()} >= {(str(theirs), "7")}
