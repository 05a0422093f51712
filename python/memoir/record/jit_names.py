# SPDX-License-Identifier: Apache-2.0
"""Names of code that was made at run time, where the program wrote them down: in a perf map (/tmp/perf-PID.map: node
--perf-basic-prof, python -X perf, Julia, PHP, .NET) or in a jitdump (jit-PID.dump: LLVM, node --perf-prof, JVMs' agents).

An address may have been several functions', one after the other. The files do not say which one a stack went through:
then it has all of their names."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memoir._core import Trace

_MOST_BYTES = 1 << 30  # of a file
_MOST_NAMES = 3  # for one address
# V8's: what made it, its tier, the function, its place.
_V8 = re.compile(r"(?:JS|LazyCompile|Function|Eval|Script):[~*^+']*(\S*) (\S.*?)(?::(\d+))(?::\d+)?$")
Place = tuple[str, str, int]  # function, file, line; "" and 0: unknown


@dataclass
class _Code:
    begin: int
    end: int
    name: str
    lines: list[tuple[int, str, int]] = field(default_factory=list)  # from this address on

    def place(self, address: int) -> Place:
        file, line = "", 0
        for begin, in_file, at in self.lines:
            if begin <= address:
                file, line = in_file, at
        return _taken_apart(self.name, file, line)


def find(trace: Trace, returns: Iterable[int]) -> dict[int, Place] | None:
    """Of the return addresses of a trace that lie in no module, those with names. None: its program wrote none down."""
    pid = trace.meta("pid")
    codes: list[_Code] = []
    if pid.isdigit() and (text := _read(Path(f"/tmp/perf-{pid}.map"), trace.start)) is not None:
        codes += _of_map(text)
    if (path := trace.meta("jitdump")) and (content := _read(Path(path), trace.start)) is not None:
        codes += _of_dump(content)
    if not codes:
        return None
    codes.sort(key=lambda code: code.begin)
    names: dict[int, Place] = {}
    first = 0
    open_codes: list[_Code] = []
    for address in sorted(set(returns)):
        call = address - 1
        while first < len(codes) and codes[first].begin <= call:
            open_codes.append(codes[first])
            first += 1
        open_codes = [code for code in open_codes if code.end > call]
        places = list(dict.fromkeys(code.place(call) for code in open_codes))
        if functions := list(dict.fromkeys(place[0] for place in places)):
            file, line = (places[0][1], places[0][2]) if len(places) == 1 else ("", 0)
            more = " or ..." if len(functions) > _MOST_NAMES else ""
            names[address] = (" or ".join(functions[:_MOST_NAMES]) + more, file, line)
    return names


def _read(path: Path, start: int) -> bytes | None:
    """A file of this user's that was written since `start` (nanoseconds since 1970): a number of a process comes again,
    and /tmp is everybody's."""
    if os.path.realpath(path).startswith(
        ("/proc/", "/sys/")
    ):  # to read some of the kernel's is to take from them
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        known = os.fstat(opened.fileno())
        if not stat.S_ISREG(known.st_mode) or known.st_uid not in (os.geteuid(), 0):
            return None
        if known.st_mtime_ns < start:
            return None
        return opened.read(_MOST_BYTES)


def _of_map(text: bytes) -> Iterator[_Code]:
    for line in text.decode(errors="replace").splitlines():
        parts = line.split(" ", 2)
        try:
            begin, size = int(parts[0], 16), int(parts[1], 16)
        except (ValueError, IndexError):
            continue
        if len(parts) == 3 and parts[2]:
            yield _Code(begin, begin + size, parts[2])


def _of_dump(content: bytes) -> Iterator[_Code]:
    """As tools/perf/Documentation/jitdump-specification.txt of Linux has it, of this machine's byte order."""
    if len(content) < 40 or struct.unpack_from("<I", content)[0] != 0x4A695444:
        return
    at = struct.unpack_from("<I", content, 8)[0]
    known: dict[int, _Code] = {}  # by its index
    lines: dict[int, list[tuple[int, str, int]]] = {}  # of code that is loaded next
    while at + 16 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        end = at + size
        if size < 16 or end > len(content):
            return
        if kind == 0 and size >= 56:  # code is loaded
            address, length, index = struct.unpack_from("<QQQ", content, at + 32)
            name = content[at + 56 : end].split(b"\0", 1)[0].decode(errors="replace")
            known[index] = _Code(address, address + length, name, lines.pop(address, []))
            yield known[index]
        elif kind == 1 and size >= 64:  # it moves
            before, after, length, index = struct.unpack_from("<QQQQ", content, at + 32)
            if (code := known.get(index)) is not None:
                moved = [(begin - before + after, file, line) for begin, file, line in code.lines]
                yield _Code(after, after + length, code.name, moved)
        elif kind == 2 and size >= 32:  # lines of what comes next
            address, count = struct.unpack_from("<QQ", content, at + 16)
            entry, of_code = at + 32, []
            for _ in range(count):
                if entry + 16 > end or (stop := content.find(b"\0", entry + 16, end)) < 0:
                    break
                begin, line = struct.unpack_from("<QI", content, entry)
                of_code.append((begin, content[entry + 16 : stop].decode(errors="replace"), line))
                entry = stop + 1
            lines[address] = of_code
        at = end


def _taken_apart(name: str, file: str, line: int) -> Place:
    found = _V8.match(name)
    if found is None:
        return name, file, line
    return found[1] or "(anonymous)", found[2], int(found[3])
