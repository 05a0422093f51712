# SPDX-License-Identifier: Apache-2.0
"""`memoir symbolize` of a trace that names files of anybody's: pipes, devices, damaged and dishonest ELF files."""

import os
import struct
import subprocess
import sys
import time

import pytest
from memoir._core import Error
from memoir.record.elf import ElfFile
from memoir.record.name_reader import NameReader
from memoir.record.symbols import demangle, find_lines, symbolize
from native_trace import NativeTrace

from memoir.record import libdw

SYMBOL = struct.Struct("<IBBHQQ")


def elf(sections: int, symbols: int, overlap: bool = True, names: bytes = b"\0f\0") -> bytes:
    """So many section headers, which all claim the same table of symbols; or one, and the others nothing."""
    rows = b"".join(SYMBOL.pack(1, 2, 0, 1, 0x1000 + 16 * i, 16) for i in range(symbols))
    data = 64 + 64 * sections
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 56, 0, 64, sections, 1)
    table = [struct.pack("<IIQQQQIIQQ", 1, 2, 0, 0, data, len(rows), 1, 0, 8, 24)] * sections
    if not overlap:
        table = [table[0], *[bytes(64)] * (sections - 1)]
    table[1] = struct.pack("<IIQQQQIIQQ", 0, 3, 4, 0, data + len(rows), len(names), 0, 0, 1, 0)
    return head + b"".join(table) + rows + names


def trace_of(path, *modules) -> str:
    trace = NativeTrace()
    trace.meta("recorder", "native")
    for number, module in enumerate(modules):
        trace.allocate(
            1, number + 1, 4096 * (number + 1), 16, trace.stack(trace.native(str(module), 0x1008 + number))
        )
    path.write_bytes(trace.bytes())
    return str(path)


def test_one_module_that_cannot_be_read_leaves_the_others_their_names(tmp_path):
    os.mkfifo(tmp_path / "fifo.so")
    (tmp_path / "folder.so").mkdir()
    (tmp_path / "text.so").write_text("text")
    (tmp_path / "good.so").write_bytes(elf(3, 20, overlap=False))
    os.utime(tmp_path / "good.so", (0, 0))  # before it was recorded
    (tmp_path / "zero.so").symlink_to("/dev/zero")
    names = ["fifo.so", "folder.so", "text.so", "zero.so", "gone.so", "good.so"]
    rows = {
        os.path.basename(row.path): row
        for row in symbolize(trace_of(tmp_path / "x.trace", *(tmp_path / n for n in names)))
    }
    assert set(rows) == set(names)
    assert rows["good.so"].named == 1 and all(rows[name].why and not rows[name].named for name in names[:-1])


def expanding(levels: int) -> bytes:
    """A short name that is long to people: each of its types is the one before, twice."""
    text = "_Z1fSt4pairIiiE"
    for level in range(levels):
        before = (
            f"S{'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ'[2 * level] if level < 18 else f'1{2 * level - 36:X}'}_"
        )
        text += f"St4pairI{before}{before}E"
    return text.encode()


def test_names_of_modules_are_printable(memoir_cli, tmp_path):
    code, said, _ = memoir_cli("symbolize", trace_of(tmp_path / "x.trace", "/a\x1b[2J\u202e.so"))
    assert code == 0 and "/a\\x1b[2J\\u202e.so; the file is gone" in said


def test_one_file_of_many_paths_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/x.so").write_bytes(elf(3, 20, overlap=False))
    os.utime(tmp_path / "lib/x.so", (0, 0))
    (tmp_path / "link.so").symlink_to("lib/x.so")
    asked, find = [], NameReader.find_lines
    monkeypatch.setattr(NameReader, "find_lines", lambda *words: asked.append(words) or find(*words))
    paths = [f"{tmp_path}/lib/{'./' * i}x.so" for i in range(12)] + [f"{tmp_path}/link.so"]
    rows = symbolize(trace_of(tmp_path / "x.trace", *paths))
    assert [row.named for row in rows] == [1] * 13 and {row.path for row in rows} == set(paths)
    assert len(asked) == 1


def test_what_names_take_counts_where_a_file_does_not_pay_for_it(tmp_path):
    (tmp_path / "bomb.so").write_bytes(elf(3, 20, overlap=False, names=b"\0" + expanding(26) + b"\0"))
    text = "import sys, pathlib; from memoir.base import work_budget; from memoir.record.name_reader import NameReader\n"
    text += (
        "work_budget.SECONDS = 1.0\nwith work_budget.within_budget([]), NameReader(seconds=1) as reader:\n"
    )
    text += "  for _ in range(20): reader.find_lines(pathlib.Path(sys.argv[1]), '', [0x1001])"
    ended = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "bomb.so")], capture_output=True, text=True
    )
    assert ended.returncode == 2 and "asks for more than 1 s of the processor" in ended.stderr


def test_what_ends_a_reader_costs_its_module_no_names(tmp_path):
    files = {"bomb.so": b"\0" + expanding(26) + b"\0", "good.so": b"\0f\0"}
    for name, names in files.items():
        (tmp_path / name).write_bytes(elf(3, 20, overlap=False, names=names))
        os.utime(tmp_path / name, (0, 0))
    with NameReader(seconds=0.5) as reader:
        assert reader.demangle(["_Z1fv", "x"]) == ["f()", "x"]
        found, why = reader.find_lines(tmp_path / "bomb.so", "", [0x1001])
        assert found == {0x1001: [(expanding(26).decode(), "", 0)]}
        assert "debug information cannot be read: the reader took more" in why
        assert reader.find_lines(tmp_path / "good.so", "", [0x1001]) == ({0x1001: [("f", "", 0)]}, "")
        assert reader.find_lines(tmp_path, "", [1]) == ({}, "it is no regular file")
    assert len(demangle(expanding(15).decode())) < 1000  # megabytes to people


@pytest.mark.parametrize("content", [elf(20_000, 20_000), elf(20_000, 100), elf(3, 20_000, names=b"\0" + b"f" * 2_000_000)],
                         ids=["20,000 tables of 20,000", "20,000 tables", "one name without an end"])  # fmt: skip
def test_work_is_in_proportion_to_the_file(content, tmp_path):
    (tmp_path / "x.so").write_bytes(content)
    begin = time.process_time()
    try:
        found, _ = find_lines(tmp_path / "x.so", "", range(0x1001, 0x1001 + 16 * 50, 16))
        assert len(found) == 50
    except Error as error:
        assert "x.so" in str(error)
    assert time.process_time() - begin < 10  # tens of minutes where each section is read again


def test_tables_of_any_kind_are_bounded(tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(elf(20, 50))
    with ElfFile(path) as file:
        assert len(list(file.symbols(dynamic=False))) == 50
        assert list(file.symbols(dynamic=True)) == [] and file.build_id == ""
    whole = path.read_bytes()
    for at in range(0, 64 + 64 * 2, 4):
        for value in (0, 1, 2**31, 2**32 - 1):
            path.write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
            try:
                with ElfFile(path) as file:
                    assert len(list(file.symbols(dynamic=False))) <= 2000
            except Error as error:
                assert "x.so" in str(error)
    with (tmp_path / "sparse.so").open("wb") as file:
        file.write(whole)
        file.truncate(100 << 30)
    with ElfFile(tmp_path / "sparse.so") as file:
        assert file.checksum() == b""  # without an end: it would be of 100 GB
        assert len(list(file.symbols(dynamic=False))) == 50


def test_a_pipe_in_the_place_of_a_part_holds_nobody(tmp_path):
    """libdw opens .dwo files by the names that a module says."""
    pytest.importorskip("symbolic")
    source = "static inline int g(int x) { return x * x; }\nint f(int x) { return g(x) + 1; }\n"
    (tmp_path / "x.c").write_text(source)
    build = ["gcc", "-g", "-gsplit-dwarf", "-O1", "-shared", "-fPIC", "-o", "x.so", "x.c"]
    if subprocess.run(build, cwd=tmp_path, capture_output=True).returncode != 0:
        pytest.skip("no gcc that splits debug information")
    with ElfFile(tmp_path / "x.so") as file:
        at = next(symbol.value for symbol in file.symbols(dynamic=True) if symbol.name == "f")
    if libdw.open_reader(tmp_path / "x.so") is None:
        pytest.skip("no libdw")
    (part,) = tmp_path.glob("*.dwo")
    part.unlink()
    os.mkfifo(part)
    with NameReader(seconds=2, patience=2) as reader:
        found, why = reader.find_lines(tmp_path / "x.so", "", [at + 1])
        assert (
            found[at + 1][-1][0] == "f"
            and f"{part.name}, where names of inlined functions are, is not a" in why
        )
        part.unlink()
        os.mkfifo(tmp_path / "x.so.dwp")
        assert "x.so.dwp, where" in reader.find_lines(tmp_path / "x.so", "", [at + 1])[1]
