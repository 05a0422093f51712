# SPDX-License-Identifier: Apache-2.0
"""A trace for pprof and for flame graphs: the stacks of a program that is known, with what each allocated."""

import gzip
import subprocess

import pytest
from pprof_files import fields, pprof_program


@pytest.fixture
def trace(compiled, record, memoir_cli, tmp_path):
    done = record(compiled("stacks.c", "-O0", "-g"))
    assert done.returncode == 0, done.stderr
    assert memoir_cli("symbolize", str(tmp_path / "x.trace"))[0] == 0
    return tmp_path / "x.trace"


def by_function(lines):
    """The functions of the program -> the sum of their lines."""
    sums = {}
    for line in lines:
        stack, _, count = line.rpartition(" ")
        for name in ("short_lived", "together", "stays"):
            if f"main;{name}" in stack:
                sums[name] = sums.get(name, 0) + int(count)
    return sums


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (None, {"together": 50_000}),
        ("peak", {"together": 50_000}),
        ("allocated", {"short_lived": 100_000, "together": 50_000, "stays": 21}),
        ("unfreed", {"stays": 21}),
        ("temporary", {"short_lived": 100_000}),
    ],
)
def test_folded_stacks_count_what_is_asked_for(trace, memoir_cli, count, wanted, tmp_path):
    target = tmp_path / "x.folded"
    options = () if count is None else ("--count", count)
    code, _, error = memoir_cli("export", str(trace), "--to", "folded", "-o", str(target), *options)
    assert code == 0, error
    found = by_function(target.read_text().splitlines())
    if count == "temporary":  # the last of those that lived together is freed right before its thread goes on
        found.pop("together", None)
    assert found == wanted


def test_the_pprof_export_has_every_stack_and_value(trace, memoir_cli, tmp_path):
    target = tmp_path / "x.pb"
    assert memoir_cli("export", str(trace), "--to", "pprof", "-o", str(target))[0] == 0
    profile = fields(target.read_bytes())
    strings = [value.decode() for field, value in profile if field == 6]
    types = [strings[dict(fields(value))[1]] for field, value in profile if field == 1]
    assert types[:4] == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
    assert strings[dict(profile)[14]] == "inuse_space"
    functions = {}
    for field, value in profile:
        if field == 5:
            function = dict(fields(value))
            functions[function[1]] = strings[function[2]]
    locations = {}
    for field, value in profile:
        if field == 4:
            location = dict(fields(value))
            locations[location[1]] = functions[dict(fields(location[4]))[1]]
    mappings = [strings[dict(fields(value))[5]] for field, value in profile if field == 3]
    assert mappings[0].endswith("stacks"), "pprof calls the first one the program"

    found = {}
    for field, value in profile:
        if field == 2:
            sample = dict(fields(value))
            stack = [locations[number] for number in varints(sample[1])]
            for name in ("short_lived", "together", "stays"):
                if name in stack:
                    assert stack.index(name) < stack.index("main"), "innermost first"
                    sums = found.setdefault(name, [0] * len(types))
                    found[name] = [a + b for a, b in zip(sums, varints(sample[2]), strict=True)]
    assert found["short_lived"][:2] == [1000, 100_000]
    assert found["together"][:6] == [50, 50_000, 50, 50_000, 0, 0]
    assert found["stays"] == [3, 21, 0, 0, 3, 21, 0, 0]


def varints(content):
    values, value, shift = [], 0, 0
    for byte in content:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


def test_count_is_for_folded_stacks(trace, memoir_cli, tmp_path):
    for target_format in ("pprof", "chrome"):
        code, _, error = memoir_cli("export", str(trace), "--to", target_format, "--count", "peak")
        assert code == 2 and "folded" in error


@pytest.mark.full
def test_pprof_itself_opens_the_export(trace, memoir_cli, tmp_path):
    target = tmp_path / "x.pb.gz"
    assert memoir_cli("export", str(trace), "--to", "pprof", "-o", str(target))[0] == 0
    assert gzip.decompress(target.read_bytes())
    command = [pprof_program(tmp_path), "-top", "-cum", "-sample_index=alloc_objects", str(target)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "Type: alloc_objects" in shown.stdout and "short_lived" in shown.stdout
