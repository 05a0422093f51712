# SPDX-License-Identifier: Apache-2.0
"""The kinds of program that the LLAMA paper evaluates, real ones, recorded: for `bench/train/llama.py --recorded`.

Each (load_drop_programs/) fills up and drops most of what it holds, twice. Its trace ends there: the program is killed, so
that what it frees when it ends is not in it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memoir._core import finish_trace

from memoir.record import native

HERE = Path(__file__).resolve().parents[1] / "malloc" / "load_drop_programs"
CYCLES = 2


@dataclass(frozen=True)
class Recorded:
    """A program that says its phases, or a server with a client that does."""

    command: Callable[[Path], list[str]]  # given a folder for what it needs
    client: list[str] | None = None
    needs: Callable[[], str | None] = lambda: None  # why it cannot run here
    scale: float = 1
    is_python: bool = False


def _word_count(folder: Path) -> list[str]:
    made = folder / "word_count"
    if not made.exists():
        compiler = os.environ.get("CXX", "c++")
        source = str(HERE / "word_count.cc")
        subprocess.run([compiler, "-std=c++20", "-O2", "-g", "-pthread", source, "-o", str(made)], check=True)
    return [str(made), "64"]


def _script(name: str) -> list[str]:
    return [sys.executable, str(HERE / name)]


def _without(module: str) -> str | None:
    return None if importlib.util.find_spec(module) else f"no {module} in this Python (pip install {module})"


PROGRAMS = {
    "image server": Recorded(
        lambda _: _script("images.py"),
        needs=lambda: _without("PIL") and "no pillow in this Python (pip install pillow)",
        is_python=True,
        scale=0.25,
    ),
    "inference server": Recorded(
        lambda _: _script("inference.py"), needs=lambda: _without("torch"), scale=0.1, is_python=True
    ),
    "data pipeline, 64 threads": Recorded(
        _word_count,
        needs=lambda: None if shutil.which(os.environ.get("CXX", "c++")) else "no C++ compiler here",
        scale=0.03,
    ),
    "redis": Recorded(
        lambda _: ["redis-server", "--port", "{port}", "--save", "", "--appendonly", "no"],
        [*_script("redis_client.py"), "{port}"],
        lambda: None if shutil.which("redis-server") else "no redis-server here (Debian's package redis-server)",
        scale=0.2,
    ),
}  # fmt: skip


def _free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return int(any_port.getsockname()[1])


def _until_answers(port: int, server: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"{server.args!r}: no answer on port {port}")


def record(name: str, trace: Path, folder: Path, seed: int, scale: float = 1) -> None:
    """One run of the program into `trace`. Raises SystemExit where it does not come to its end."""
    program = PROGRAMS[name]
    load = {
        "LOAD_DROP_SCALE": str(program.scale * scale),
        "LOAD_DROP_SEED": str(seed),
        "LOAD_DROP_CYCLES": str(CYCLES),
        "LOAD_DROP_SETTLE": os.environ.get("LOAD_DROP_SETTLE", "2"),
    }
    port = _free_port()
    command, client = (
        [word.format(port=port) for word in words]
        for words in (program.command(folder), program.client or [])
    )
    part = trace.with_suffix(".part")
    with native.Clock() as clock:
        environment = native.environment(part, clock=clock.path) | load
        with subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as recorded:
            try:
                if client:
                    _until_answers(port, recorded)
                    subprocess.run(client, env=os.environ | load, stdout=subprocess.DEVNULL, check=True)
                else:
                    assert recorded.stdout is not None
                    last = f"phase settled{CYCLES}"
                    if not any(line.strip() == last for line in recorded.stdout):
                        raise SystemExit(
                            f"{name}: ended with status {recorded.wait()} before it said {last!r}"
                        )
            finally:
                recorded.kill()
    finish_trace(str(part), 0)
    part.rename(trace)
