# SPDX-License-Identifier: Apache-2.0
"""Drives a Redis on the loopback through fill, delete and refill cycles, with plain sockets.

Long-lived caches fragment an allocator: keys of one size mix are deleted at random and replaced by another
mix, so live bytes fall and rise while resident bytes may only rise. Each phase ends with a line
`memory SECONDS LIVE RESIDENT`: live is Redis's own used_memory (it asks malloc_usable_size of every block),
resident is the kernel's.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import time
from pathlib import Path

KEYS = 60_000  # at load 1
BATCH = 500  # commands sent before their replies are read
PATIENCE = 20.0  # seconds for the server to come up


class Connection:
    """Sends commands in batches (RESP: the Redis serialization protocol, version 2)."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except OSError:
                if time.monotonic() > deadline:
                    sys.exit(f"redis_cycles: no server on port {port} within {PATIENCE:.0f} s")
                time.sleep(0.01)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def batch(self, commands: list[bytes]) -> None:
        """Sends commands whose replies are one line each, and waits for all replies."""
        self._socket.sendall(b"".join(commands))
        lines, last = 0, b""
        while lines < len(commands):
            received = self._socket.recv(1 << 16)
            if not received:
                sys.exit("redis_cycles: the server closed the connection")
            if received.startswith(b"-") or b"\n-" in received:
                sys.exit(f"redis_cycles: the server answered {received[:100]!r}")
            lines += received.count(b"\n")
            last = received
        if not last.endswith(b"\n"):
            sys.exit("redis_cycles: half a reply too much")

    def info(self) -> dict[str, str]:
        """INFO as a dictionary."""
        self._socket.sendall(command(b"INFO"))
        received = self._socket.recv(1 << 16)
        head, _, body = received.partition(b"\r\n")
        while len(body) < int(head[1:]) + 2:
            body += self._socket.recv(1 << 16)
        pairs = (line.split(":", 1) for line in body.decode().splitlines() if ":" in line)
        return dict(pairs)

    def shut_down(self) -> None:
        self._socket.sendall(command(b"SHUTDOWN", b"NOSAVE"))
        while self._socket.recv(1 << 16):
            pass


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def run(port: int, load: int, cycles: int, seed: int, smoke: bool) -> None:
    """All cycles, then SHUTDOWN."""
    connection, dice = Connection(port), random.Random(seed)
    keys = max(KEYS * load // (50 if smoke else 1), 100)
    process = int(connection.info()["process_id"])
    content = dice.randbytes(1 << 16)
    start, operations = time.monotonic(), 0

    def look() -> None:
        live = int(connection.info()["used_memory"])
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        print(f"memory {time.monotonic() - start:.6f} {live} {resident}", flush=True)

    alive: list[int] = []
    look()
    for cycle in range(cycles):
        largest = 256 << (cycle % 3)  # each mix is larger than the holes of the one before
        missing = keys - len(alive)
        numbers = [cycle * keys + i for i in range(missing)]
        for first in range(0, missing, BATCH):
            batch = []
            for number in numbers[first : first + BATCH]:
                at, size = dice.randrange(1 << 15), dice.randrange(16, largest)
                batch.append(command(b"SET", b"key:%d" % number, content[at : at + size]))
            connection.batch(batch)
        alive += numbers
        operations += missing
        look()
        dice.shuffle(alive)
        keep = len(alive) // 5
        victims, alive = alive[keep:], alive[:keep]
        for first in range(0, len(victims), BATCH):
            connection.batch([command(b"DEL", b"key:%d" % key) for key in victims[first : first + BATCH]])
        operations += len(victims)
        look()
    elapsed = time.monotonic() - start
    print(f"operations: {operations}\noperations_per_second: {operations / elapsed:.1f}")
    connection.shut_down()


def main() -> None:
    parser = argparse.ArgumentParser(description="fill, delete and refill a Redis on the loopback")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
