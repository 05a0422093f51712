# SPDX-License-Identifier: Apache-2.0
"""Proof that an allocator is really in the process before anything is measured.

A preload can silently do nothing: static programs have no loader to obey it, setuid programs ignore it, a
wrapper may clear the environment, and a program may bring a malloc of its own. So each allocator is proved
by a run of the very command with libmemoir_proof.so in front: in every process image it asks the dynamic
loader whose malloc serves, and counts what the program asks of it. Meanwhile the process tree is watched
for images that the probe did not reach.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoir._core import Error
from memoir.bench import allocators, machine
from memoir.bench.allocators import Allocator
from memoir.bench.clients import Client
from memoir.bench.launch import Measurement, Running, resolve

_RECORD = struct.Struct("<8sQQQ1024s1024s")  # Record in bench/harness/proof.cc
_POLL = 0.001  # seconds; a static child that lives shorter than this can escape notice
_SETTLED = 0.02  # seconds after which a process image has been set up by its loader


@dataclass(frozen=True)
class Proof:
    """What the proof run of one allocator showed."""

    preload: tuple[str, ...]  # what LD_PRELOAD must name; for `system` often nothing
    provider: str  # the library whose malloc served
    calls: int  # requests that the program made of it
    programs: tuple[str, ...]  # the executables that were reached
    measurement: Measurement


@dataclass
class _Image:
    program: str
    parent: int  # the process that it was forked from
    first_seen: float
    last_seen: float


def check_executable(path: Path) -> None:
    """Raises memoir.Error for a file that no preload can reach: static, setuid, or with capabilities."""
    status = path.stat()
    reason = None
    if status.st_mode & 0o4000 and status.st_uid != os.getuid():
        reason = "it is setuid, and the loader then ignores LD_PRELOAD"
    elif status.st_mode & 0o2000 and status.st_gid != os.getgid():
        reason = "it is setgid, and the loader then ignores LD_PRELOAD"
    elif _capabilities(path):
        reason = "it has file capabilities, and the loader then ignores LD_PRELOAD"
    elif _is_static(path):
        reason = "it is statically linked, so no allocator can be preloaded into it"
    if reason:
        raise Error(f"{path}: {reason}; link it dynamically, or copy it without those rights")


def prove(
    allocator: Allocator,
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float | None = None,
    cpus: Sequence[int] = (),
    client: Callable[[Running], Client] | None = None,
) -> Proof:
    """Runs the command once under `allocator`. Raises memoir.Error when something else serves malloc.

    client: makes the client of a command that is a server.
    """
    check_executable(resolve(command[0]))
    preloads: list[tuple[str, ...]] = [()] if allocator.library is None else [(str(allocator.library),)]
    if allocator.library is None:
        # a program that links another malloc gets the C library's by having it searched first
        preloads.append((str(allocators.c_library()),))
    for preload in preloads:
        proof, others, missed = _observe(preload, command, environment, timeout, cpus, client)
        if missed:
            why = _why_missed(Path(missed[0]))
            raise Error(f"{allocator.name} is not in {missed[0]}, which the command starts: {why}")
        if proof is None:
            raise Error(
                f"{allocator.name}: {command[0]} ended before the loader was done; does it run at all?"
            )
        wrong = [(program, provider) for program, provider in others if not serves(provider, allocator)]
        if not wrong and proof.calls == 0:
            raise Error(
                f"{allocator.name} is in the process, but {command[0]} never asks it for memory: "
                "it allocates nothing, or by itself"
            )
        if not wrong:
            return proof
    raise Error(
        f"{allocator.name} does not serve malloc in {wrong[0][0]}: {wrong[0][1]} does "
        f"(is {expected_library(allocator)} an allocator?)"
    )


def expected_library(allocator: Allocator) -> Path:
    """The library whose malloc must serve under this allocator."""
    return allocator.library or allocators.c_library()


def serves(provider: str, allocator: Allocator) -> bool:
    """True when the library that serves malloc in a process is the allocator's."""
    expected = expected_library(allocator)
    try:
        return os.path.samefile(provider, expected)
    except OSError:
        return Path(provider).name == expected.name


def environment_for(preload: Sequence[str], allocator: Allocator) -> dict[str, str]:
    """The variables that put an allocator into a command; what the user preloads stays behind it."""
    variables = dict(allocator.environment)
    inherited = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    if preload or inherited:
        variables["LD_PRELOAD"] = ":".join([*preload, *inherited])
    return variables


def _observe(
    preload: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float | None,
    cpus: Sequence[int],
    client: Callable[[Running], Client] | None,
) -> tuple[Proof | None, list[tuple[str, str]], list[str]]:
    """The proof, (program, provider) of every image that was reached, and the programs that were not."""
    probe = str(machine.tool("libmemoir_proof.so"))
    with tempfile.TemporaryDirectory(prefix="memoir-proof-") as folder:
        inherited = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
        variables = {
            **environment,
            "LD_PRELOAD": ":".join([probe, *preload, *inherited]),
            "MEMOIR_PROOF": folder,
        }
        run = Running(command, environment=variables, timeout=timeout, cpus=cpus)
        try:
            driver = client(run) if client else None
            images = _watch(run, driver)
            if driver:
                driver.wait()
        except BaseException:
            run.stop()
            raise
        finally:
            measurement = run.wait()
        records = [_RECORD.unpack(path.read_bytes()) for path in sorted(Path(folder).iterdir())]
    reached: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for magic, process, calls, _, provider, program in records:
        if magic == b"memproof":
            reached.setdefault((process, _text(program)), []).append((calls, _text(provider)))
    launcher = str(machine.tool("memoir-launch").resolve())
    forks = _forks(images, set(reached))
    missed = [
        image.program
        for (process, program), image in images.items()
        if (process, program) not in reached
        and (process, program) not in forks
        and program != launcher
        and (image.last_seen - image.first_seen > _SETTLED or _unreachable(program))
    ]
    if not reached:
        return None, [], missed
    served = [(program, provider) for (_, program), uses in reached.items() for _, provider in uses]
    proof = Proof(
        preload=tuple(preload),
        provider=served[-1][1],
        calls=sum(calls for uses in reached.values() for calls, _ in uses),
        programs=tuple(dict.fromkeys(program for program, _ in served)),
        measurement=measurement,
    )
    return proof, served, missed


def _watch(run: Running, driver: Client | None) -> dict[tuple[int, str], _Image]:
    """Every (process, executable) seen below the launcher until it ends, or until its client is done."""
    images: dict[tuple[int, str], _Image] = {}
    while run.running() and not (driver and driver.ended()):
        now = time.monotonic()
        for process, parent in _descendants(run.process):
            try:
                program = os.readlink(f"/proc/{process}/exe").removesuffix(" (deleted)")
            except PermissionError:  # it runs with other rights than ours: a setuid program
                program = f"{_command_name(process)} (process {process})"
            except OSError:
                continue  # it has just ended
            image = images.setdefault((process, program), _Image(program, parent, now, now))
            image.last_seen = now
        time.sleep(_POLL)
    return images


def _forks(images: dict[tuple[int, str], _Image], reached: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Images that are a reached one's memory in another process: a shell's ( ... ), a server's workers.

    They run on the malloc of the process that they were forked from; the probe says nothing in them, since it
    speaks when the loader starts it.
    """
    forks: set[tuple[int, str]] = set()
    for (process, program), image in images.items():  # parents come before their children
        origin = image.parent, program
        if origin in reached or origin in forks:
            forks.add((process, program))
    return forks


def _descendants(root: int) -> list[tuple[int, int]]:
    """Every process below the root, with its parent; parents first."""
    found = [(root, 0)]
    for process, _ in found:
        try:
            for thread in os.listdir(f"/proc/{process}/task"):
                children = Path(f"/proc/{process}/task/{thread}/children").read_text().split()
                found.extend((int(child), process) for child in children)
        except OSError:
            continue  # it has just ended
    return found[1:]


def _command_name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return "a program"


def _unreachable(program: str) -> bool:
    try:
        check_executable(Path(program))
    except (Error, OSError):
        return True
    return False


def _why_missed(path: Path) -> str:
    try:
        check_executable(path)
    except Error as error:
        return str(error).partition(": ")[2]
    except OSError:
        return "it runs with other rights (setuid), and the loader then ignores LD_PRELOAD"
    return "something on the way cleared LD_PRELOAD (env -i, sudo, a sandbox)"


def _text(field: bytes) -> str:
    return os.fsdecode(field.split(b"\0", 1)[0])


def _capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability")) and os.getuid() != 0
    except OSError:
        return False


def _is_static(path: Path) -> bool:
    """True for an ELF executable that names no loader (PT_INTERP); a script's interpreter is judged."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:2] == b"#!":
            words = head[2:].split(b"\n")[0].split()
            return (
                bool(words)
                and Path(os.fsdecode(words[0])).is_file()
                and _is_static(Path(os.fsdecode(words[0])))
            )
        if head[:4] != b"\x7fELF" or len(head) < 64:
            return False  # not ours to judge: exec will say
        order = "<" if head[5] == 1 else ">"
        wide = head[4] == 2
        offset = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
        size, number = struct.unpack_from(order + "HH", head, 54 if wide else 42)
        file.seek(offset)
        table = file.read(size * number)
    return all(struct.unpack_from(order + "I", table, i * size)[0] != 3 for i in range(number))
