# SPDX-License-Identifier: Apache-2.0
"""Pickles that would make much memory of few bytes: refused before they did, whatever they are made of."""

import pickle
import struct
import subprocess
import sys

import pytest
from memoir._core import Error, import_snapshot_bytes
from snapshots import BASE, MIB, entry, imported, snapshot

HEAD, MEGABYTES = b"\x80\x04", 5
SIZE = MEGABYTES * 10**6


def repeated(piece: bytes) -> bytes:
    return HEAD + piece * (SIZE // len(piece)) + b"."


HOSTILE = {
    "tuples in tuples": HEAD + b")" + b"\x85" * SIZE + b".",
    "tuples of two in tuples": HEAD + b"N" + b"2\x86" * (SIZE // 2) + b".",
    "tuples that all differ": HEAD
    + b"".join(b"J" + struct.pack("<i", n) + b"\x85" for n in range(SIZE // 6))
    + b".",
    "empty lists": repeated(b"]"),
    "lists of one": repeated(b"]Na"),
    "dicts of one": repeated(b"}NNs"),
    "values": repeated(b"N"),
    "marks": repeated(b"("),
    "memos": HEAD + b"N" + b"\x94" * SIZE + b".",
    "floats": repeated(b"G" + bytes(8) + b"0"),
    "lists in lists": HEAD + b"]" * (SIZE // 2) + b"a" * (SIZE // 2) + b".",
}

PROGRAM = """
import resource, sys
from memoir._core import Error, import_snapshot_bytes
content = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    import_snapshot_bytes(content, "x.pickle")
except Error as error:
    print(str(error).replace("\\n", " "))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_twice_the_file_at_most(name):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=HOSTILE[name], capture_output=True, check=True
    )
    error, grown = done.stdout.decode().splitlines()
    assert error.startswith("x.pickle: ")
    assert int(grown) * 1024 < 2 * SIZE + 8 * MIB


def nested(levels: int) -> bytes:
    value = ()
    for _ in range(levels - 1):
        value = (value,)
    return pickle.dumps({**snapshot([entry("alloc", BASE, 512, 0)]), "more": value}, protocol=4)


def test_tuples_nest_sixty_four_levels():
    assert len(imported(nested(64)).events) > 0
    with pytest.raises(Error, match="tuples are nested more than 64 levels deep"):
        import_snapshot_bytes(nested(65))


def test_a_history_of_many_entries_is_within_the_bound():
    many = [entry("alloc", BASE + 512 * n, 512, n, pool_id=(0, n % 100)) for n in range(30_000)]
    assert len(imported(snapshot(many)).events) > 30_000
