# SPDX-License-Identifier: Apache-2.0
"""Any bytes as the file of a bench: refused with a memoir.Error that names it, or read as a header and rows that every
reader can rely on; cutting off a torn line changes nothing of what is read, and a journal goes on behind it. One changed
bit of a journal with checksums is always refused.

python fuzz/bench_journal_fuzz.py [--rounds N] [--seconds N] [--seed N] SEED_FILE_OR_FOLDER...

The options of driver.cc, for a reader in Python. The input of a failure is written to ./crash-SEED-ROUND.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from memoir.bench import journal

import memoir

TELLING = (
    b"\n",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\x00",
    b"\xff",
    b"null",
    b"1e999",
    b"-",
    b"[" * 300,
)


class Bytes:
    """A file that is only its bytes, for `journal.read_regular`."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __str__(self) -> str:
        return "x.jsonl"


journal.read_regular = lambda path: path.content


def whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def try_to_read(content: bytes) -> None:
    try:
        header, rows = journal.read(Bytes(content))
    except memoir.Error as error:
        assert str(error).startswith("x.jsonl:"), error
        return
    assert header["memoir_bench"] == journal.VERSION
    for row in rows:
        assert isinstance(row, dict) and "wall" in row and "status" in row, row
    assert repr(journal.read(Bytes(whole_lines(content)))) == repr((header, rows))


def mutated(seeds: list[bytes], draw: random.Random) -> bytes:
    content = bytearray(seeds[draw.randrange(len(seeds))])
    for _ in range(1 + draw.randrange(6)):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(6):
            case 0 if at < len(content):
                content[at] ^= 1 << draw.randrange(8)
            case 1:
                del content[at : at + 1 + draw.randrange(8)]
            case 2:
                content[at:at] = TELLING[draw.randrange(len(TELLING))]
            case 3:
                del content[at:]
            case 4:
                content[at:at] = content[at : at + draw.randrange(64)]
            case 5:
                other = seeds[draw.randrange(len(seeds))]
                content[at:] = other[draw.randrange(len(other) + 1) :]
    return bytes(content)


def flipped(seed: bytes, draw: random.Random) -> bytes:
    """One bit of a journal changed, anywhere but in the newline that ends it: without that the last line is torn."""
    at = draw.randrange(len(seed) - 1)
    return seed[:at] + bytes([seed[at] ^ (1 << draw.randrange(8))]) + seed[at + 1 :]


def refuses(content: bytes) -> None:
    """A journal in which every line has a checksum is never read with a bit changed."""
    try:
        journal.read(Bytes(content))
    except memoir.Error:
        return
    raise AssertionError("a changed bit was not noticed")


def run(content: bytes, name: str, check: Callable[[bytes], None] = try_to_read) -> None:
    try:
        check(content)
    except BaseException:
        Path(name).write_bytes(content)
        print(f"the input is in ./{name}", flush=True)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("seeds", nargs="+", type=Path)
    arguments = parser.parse_args()
    files = [f for path in arguments.seeds for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
    seeds = [file.read_bytes() for file in files]
    for seed in seeds:
        run(seed, f"crash-{arguments.seed}-seed")
    draw = random.Random(arguments.seed)
    end = time.monotonic() + arguments.seconds if arguments.seconds else None
    rounds = 0
    checked = [seed for seed in seeds if b'"checksums":true' in seed and seed.endswith(b"\n")]
    while (end is not None or arguments.rounds) and (rounds < arguments.rounds or not arguments.rounds):
        if end is not None and time.monotonic() >= end:
            break
        run(mutated(seeds, draw), f"crash-{arguments.seed}-{rounds}")
        if checked:
            run(flipped(checked[rounds % len(checked)], draw), f"crash-{arguments.seed}-{rounds}", refuses)
        rounds += 1
    print(f"{len(seeds)} seeds, {rounds} mutations, no crash")


if __name__ == "__main__":
    main()
