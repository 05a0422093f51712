# SPDX-License-Identifier: Apache-2.0
"""Proof that an allocator really serves a program's memory, before anything is measured.

A preload can silently do nothing: static programs have no loader to obey it, setuid programs ignore it, a
wrapper may clear the environment, and a program may bring a malloc of its own, hidden or under other names, or a heap
that is not a malloc at all. So each allocator is proved by a run of the same command with libmemoir_proof.so in front. In
every process image it asks the dynamic loader whose malloc serves, counts the requests, and marks where the blocks are.
The launcher follows the tree with ptrace, which misses no exec, and compares the marks with the anonymous memory that
each process holds, while it grows and at its end. What counts is the share of bytes that the allocator served.
"""

from __future__ import annotations

import functools
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memoir._core import Error
from memoir.base.files import Record
from memoir.base.quantities import bytes_text, printable
from memoir.bench.process import allocators, machine
from memoir.bench.process.allocators import Allocator
from memoir.bench.process.executables import check_executable as check_executable
from memoir.bench.process.executables import why_unreachable
from memoir.bench.process.launch import Measurement, Running, resolve

_RECORD = struct.Struct("<8sQQQ1024s1024s1024s")  # Record in bench/harness/proof.cc
_SETTLED = 0.02  # seconds after which a process image has been set up by its loader
_SMALL = (
    1 << 20
)  # unserved bytes that every process may have: the loader's, the libraries', an allocator's tables
# What programs that no preload reaches may have of the bytes and of the time, where the others have so much.
_SLIGHT, _SUBSTANTIAL = 0.05, 8 << 20
_NONE, _HALF = 0.01, 0.5  # shares below which an allocator is not at work, or not for most of the memory


@dataclass(frozen=True)
class Image:
    """One program in one process of the tree that was reached."""

    program: str
    anonymous: int  # bytes, when there were most of them
    served: int  # of these, in ranges that the allocator handed out; -1: not known
    tables: int = 0  # of these, what the allocator and the loader take in any program, however small
    shadow: str = ""  # the object whose malloc the program calls instead, if there is one

    @property
    def share(self) -> float | None:
        return self.served / self.wanted if self.wanted and self.served >= 0 else None

    @property
    def wanted(self) -> int:
        """The program's own anonymous bytes: without the tables."""
        return max(self.served, self.anonymous - self.tables)

    @property
    def unserved(self) -> int:
        return self.wanted - self.served if self.served >= 0 else 0


@dataclass(frozen=True)
class Proof:
    """What the proof run of one allocator showed."""

    preload: tuple[str, ...]  # what LD_PRELOAD must name; for `system` often nothing
    provider: str  # the library whose malloc served
    calls: int  # requests that the program made of it
    programs: tuple[str, ...]  # the executables that were reached
    images: tuple[Image, ...]
    measurement: Measurement
    aside: tuple[str, ...] = ()  # programs without the allocator, too small and too short to matter

    @property
    def share(self) -> float | None:
        """Of the anonymous bytes of all processes, what the allocator served."""
        known = [image for image in self.images if image.share is not None]
        total = sum(image.wanted for image in known)
        return sum(image.served for image in known) / total if total else None

    @property
    def weak(self) -> list[Image]:
        """Programs most of whose memory came from elsewhere: once each, the largest."""
        found: dict[str, Image] = {}
        for image in self.images:
            weak = image.share is not None and image.share < _HALF and image.unserved > _SMALL
            if weak and (image.program not in found or found[image.program].wanted < image.wanted):
                found[image.program] = image
        return list(found.values())

    def to_dict(self) -> Record:
        """What a header keeps of it."""
        return {
            "provider": self.provider,
            "requests": self.calls,
            "share": self.share,
            "anonymous": sum(image.wanted for image in self.images),
            "weak": [[image.program, image.share, image.wanted] for image in self.weak],
            "aside": list(self.aside),
        }


@dataclass
class _Seen:
    """What one run with the probe showed."""

    images: list[Image] = field(default_factory=list)
    uses: list[tuple[str, str]] = field(
        default_factory=list
    )  # (program, library whose malloc is next in line)
    calls: int = 0
    missed: list[dict[str, Any]] = field(
        default_factory=list
    )  # images without the probe, as the witness saw them
    measurement: Measurement | None = None

    def aside(self) -> tuple[str, ...]:
        """The programs that were missed, if all are static and together hardly count: ldconfig, which Python starts."""
        known = sum(image.anonymous for image in self.images)
        held = sum(image["anonymous"] for image in self.missed)
        lived = sum(image["lived"] for image in self.missed)
        if known < _SUBSTANTIAL or not all(_is_unreachable(image["program"]) for image in self.missed):
            return ()
        if self.measurement is None or held > _SLIGHT * known or lived > _SLIGHT * self.measurement.wall:
            return ()
        return tuple(dict.fromkeys(image["program"] or "a program" for image in self.missed))


def prove(
    allocator: Allocator,
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float | None = None,
    cpus: Sequence[int] = (),
    client: Callable[[Running], None] | None = None,
) -> Proof:
    """Runs the command once under `allocator`. Raises memoir.Error when something else serves malloc.

    client: drives a command that is a server, until that is to end.
    """
    check_executable(resolve(command[0]))
    preloads: list[tuple[str, ...]] = [()] if allocator.library is None else [(str(allocator.library),)]
    if allocator.library is None:
        # a program that links another malloc gets the C library's by having it searched first
        preloads.append((str(allocators.c_library()),))
    wrong: list[tuple[str, str]] = []
    for preload in preloads:
        seen = _observe(preload, command, environment, timeout, cpus, client)
        assert seen.measurement is not None
        aside = seen.aside()
        if seen.missed and not aside:
            image = seen.missed[0]
            why = why_unreachable(image, expected_library(allocator))
            raise Error(
                f"{allocator.name} is not in {printable(image['program'] or 'a program')}, which the command starts: {why}"
            )
        if not seen.uses:
            raise Error(
                f"{allocator.name}: {command[0]} ended before the loader was done; does it run at all?"
                + _last_words(seen.measurement)
            )
        wrong = [(program, provider) for program, provider in seen.uses if not serves(provider, allocator)]
        if wrong:
            continue
        _check_shares(allocator, command[0], seen)
        return Proof(
            preload=tuple(preload),
            provider=seen.uses[-1][1],
            calls=seen.calls,
            programs=tuple(dict.fromkeys(program for program, _ in seen.uses)),
            images=tuple(seen.images),
            measurement=seen.measurement,
            aside=aside,
        )
    raise Error(
        f"{allocator.name} does not serve malloc in {wrong[0][0]}: {wrong[0][1]} does "
        f"(is {expected_library(allocator)} an allocator?)"
    )


def _check_shares(allocator: Allocator, program: str, seen: _Seen) -> None:
    """Raises memoir.Error for a program that takes its memory from elsewhere."""
    # A wrapper (env) holds a few KiB; where an allocator begins with a huge page, a page of 2 MiB around them.
    least = max(_SMALL, _SLIGHT * sum(image.wanted for image in seen.images))
    for image in seen.images:
        if image.share is not None and image.share < _NONE and image.unserved > least:
            own = f"it calls the malloc of {image.shadow}" if image.shadow else "it allocates by itself"
            raise Error(
                f"{allocator.name} serves {100 * image.share:.1f} % of the {bytes_text(image.wanted)} of anonymous "
                f"memory of {printable(image.program)}: {own} (a malloc of its own, hidden or under another name, or a "
                "heap that is not a malloc, such as Go's)"
            )
    if seen.calls == 0:
        raise Error(
            f"{allocator.name} is in the process, but {program} never asks it for memory: "
            "it allocates nothing, or by itself"
        )


def sentence(name: str, kept: Record) -> str:
    """One line for a report: who served how many requests and what share of the bytes. kept: Proof.to_dict()."""
    share = kept.get("share")
    part = "" if share is None else f", {100 * share:.0f} % of the anonymous bytes"
    return f"{name} served {kept['requests']:,} requests{part}"


def warnings(name: str, kept: Record) -> list[str]:
    """What a reader must know of a proof."""
    return [
        f"{name} serves only {100 * share:.0f} % of the {bytes_text(anonymous)} of anonymous memory of "
        f"{printable(program)}: what is compared is the rest of it too"
        for program, share, anonymous in kept.get("weak", [])
    ] + [
        f"{name} is not in {printable(program)}, which the command starts; it is too small and too short to matter"
        for program in kept.get("aside", [])
    ]


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
    client: Callable[[Running], None] | None,
) -> _Seen:
    with tempfile.TemporaryDirectory(prefix="memoir-proof-") as folder:
        if os.getuid() == 0:
            os.chmod(folder, 0o1777)  # servers give up root's rights before they begin
        run = Running(
            command,
            environment=_variables(preload, environment, folder),
            timeout=timeout,
            cpus=cpus,
            witness=folder,
        )
        try:
            if client:
                client(run)
        except BaseException:
            run.stop()
            raise
        finally:
            measurement = run.wait()
        records = _records(Path(folder))
    return _judge(records, measurement, _tables(tuple(preload), tuple(environment.items())))


def _records(folder: Path) -> list[tuple[Any, ...]]:
    found = []
    for path in sorted(folder.iterdir()):
        content = b"" if path.suffix == ".map" else path.read_bytes()
        if len(content) == _RECORD.size:
            found.append(_RECORD.unpack(content))
    return found


def _variables(preload: Sequence[str], environment: Mapping[str, str], folder: str) -> dict[str, str]:
    probe = str(machine.tool("libmemoir_proof.so"))
    inherited = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return {**environment, "LD_PRELOAD": ":".join([probe, *preload, *inherited]), "MEMOIR_PROOF": folder}


@functools.lru_cache(maxsize=64)
def _tables(preload: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> int:
    """Anonymous bytes of the smallest program that are not its blocks: an allocator's tables, the loader's, libraries'."""
    launcher = str(machine.tool("memoir-launch").resolve())
    with tempfile.TemporaryDirectory(prefix="memoir-proof-") as folder:
        variables = _variables(preload, dict(environment), folder)
        measurement = Running([launcher, "--list-counters"], environment=variables, witness=folder).wait()
    looks = [image["anonymous"] - max(0, image["served"]) for image in measurement.images]
    return max(looks, default=0)


def _judge(records: Sequence[tuple[Any, ...]], measurement: Measurement, tables: int) -> _Seen:
    seen = _Seen(measurement=measurement)
    shadows: dict[tuple[int, str], str] = {}
    for magic, process, calls, _, provider, program, shadow in records:
        if magic == b"memproof":
            shadows[(process, _text(program))] = _text(shadow)
            seen.uses.append((_text(program), _text(provider)))
            seen.calls += calls
    launcher = str(machine.tool("memoir-launch").resolve())
    reached: list[bool] = []
    for image in measurement.images:
        key = image["process"], image["program"]
        parent = image["parent"]
        inherits = image["forked"] and parent >= 0 and reached[parent]  # it runs on the malloc of its parent
        reached.append(key in shadows or inherits)
        if image["program"] == launcher:
            continue
        if reached[-1]:
            shadow = shadows.get(key, "")
            seen.images.append(Image(image["program"], image["anonymous"], image["served"], tables, shadow))
        if not image["forked"]:
            unreachable = _is_unreachable(image["program"])
            settled = image["lived"] > _SETTLED or image["anonymous"] > _SMALL
            settled = settled or image["elsewhere"] or not image["preloaded"]
            if unreachable or image["secure"] or (not reached[-1] and settled):
                seen.missed.append(image)
    return seen


def _is_unreachable(program: str) -> bool:
    try:
        check_executable(Path(program))
    except (Error, OSError):
        return True
    return False


def _last_words(measurement: Measurement) -> str:
    lines = measurement.tail
    return f" (its last words: {printable(lines[-1])[:200]})" if lines else ""


def _text(field: bytes) -> str:
    return os.fsdecode(field.split(b"\0", 1)[0])
