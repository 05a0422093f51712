# SPDX-License-Identifier: Apache-2.0
"""Programs that no preload reaches, and why."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

from memoir._core import Error


class Header(NamedTuple):
    """What an ELF executable says of itself."""

    interpreter: str | None  # the loader that it names (PT_INTERP); None: static
    kind: tuple[int, int, int]  # word size, byte order, processor


def check_executable(path: Path) -> None:
    """Raises memoir.Error for a file that no preload can reach: static, setuid, musl's, or with capabilities."""
    status = path.stat()
    reason = None
    if status.st_mode & 0o4000 and status.st_uid != os.getuid():
        reason = "it is setuid, and the loader then ignores LD_PRELOAD"
    elif status.st_mode & 0o2000 and status.st_gid != os.getgid():
        reason = "it is setgid, and the loader then ignores LD_PRELOAD"
    elif _capabilities(path):
        reason = "it has file capabilities, and the loader then ignores LD_PRELOAD"
    if reason:
        raise Error(f"{path}: {reason}; copy it without those rights")
    header = read_header(path)
    if header is None:
        return
    own = read_header(Path(sys.executable))
    if header.interpreter is None:
        raise Error(
            f"{path}: it is statically linked, so no allocator can be preloaded into it; link it dynamically"
        )
    if "musl" in Path(header.interpreter).name and own and "musl" not in Path(own.interpreter or "").name:
        raise Error(
            f"{path}: it runs on musl's loader, and the libraries here are built for another C library; "
            "build it for this one"
        )
    if own and header.kind != own.kind:
        raise Error(
            f"{path}: it is built for another kind of processor or word size than the libraries here; build it for this one"
        )


def why_unreachable(image: dict[str, Any], library: Path) -> str:
    """One sentence for an image that runs without the allocator. image: as the witness reports it."""
    try:
        check_executable(Path(image["program"]))
    except Error as error:
        return str(error).partition(": ")[2]
    except OSError:
        if not image["elsewhere"]:
            return "it runs with other rights (setuid), and the loader then ignores LD_PRELOAD"
    if image["secure"]:
        return "it runs with other rights (setuid, capabilities), and the loader then ignores LD_PRELOAD"
    if image["elsewhere"]:
        return (
            f"it runs in a sandbox (another root or mount namespace), where {library} cannot be loaded; "
            "run the bench inside of it"
        )
    if not image["preloaded"]:
        return "something on the way cleared LD_PRELOAD (env -i, env -u, sudo, a sandbox)"
    return "its loader did not take the library; does the program start at all?"


def read_header(path: Path) -> Header | None:
    """None for what is not an ELF executable; of a script, its interpreter's."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:2] == b"#!":
            words = head[2:].split(b"\n")[0].split()
            script = Path(os.fsdecode(words[0])) if words else None
            return read_header(script) if script and script.is_file() and script != path else None
        if head[:4] != b"\x7fELF" or len(head) < 64:
            return None  # not ours to judge: exec will say
        order = "<" if head[5] == 1 else ">"
        wide = head[4] == 2
        kind = head[4], head[5], struct.unpack_from(order + "H", head, 18)[0]
        offset = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
        size, number = struct.unpack_from(order + "HH", head, 54 if wide else 42)
        file.seek(offset)
        table = file.read(size * number)
        for i in range(len(table) // size if size else 0):
            if struct.unpack_from(order + "I", table, i * size)[0] != 3:  # PT_INTERP
                continue
            where = struct.unpack_from(order + ("Q" if wide else "I"), table, i * size + (8 if wide else 4))[
                0
            ]
            file.seek(where)
            name = file.read(256).split(b"\0")[0]
            return Header(os.fsdecode(name), kind)
    return Header(None, kind)


def _capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability")) and os.getuid() != 0
    except OSError:
        return False
