# SPDX-License-Identifier: Apache-2.0
"""Whether this user made a bench: a journal names commands, and --resume runs them.

Each header carries a signature over what it would run, made with a secret that is this user's and never leaves the
machine. A folder from elsewhere, or one whose commands were changed, has none that fits; then its commands are shown,
and whoever resumes it says whether they are to be run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shlex
from pathlib import Path

from memoir.base.files import Record
from memoir.base.quantities import printable


def sign(header: Record) -> str | None:
    """The signature of what a header would run; None where this user has no place for a secret."""
    key = _secret()
    return None if key is None else hmac.new(key, _runs(header), hashlib.sha256).hexdigest()[:32]


def is_ours(header: Record) -> bool:
    """True when this user signed exactly these commands."""
    expected, found = sign(header), header.get("signature")
    return expected is not None and isinstance(found, str) and hmac.compare_digest(expected, found)


def commands(header: Record) -> list[str]:
    """Every command that resuming would run, and every library that it would load, for people to read."""
    grid, options = header.get("grid", {}), header.get("options", {})
    found = []
    for program in grid.get("programs", []):
        for name in ("command", "client", "ready", "stop"):
            if program.get(name):
                found.append(shlex.join(map(str, program[name])))
    if options.get("prepare"):
        found.append(f"sh -c {shlex.quote(str(options['prepare']))}")
    for allocator in grid.get("allocators", []):
        environment = [f"{key}={value}" for key, value in (allocator.get("environment") or {}).items()]
        if allocator.get("library"):
            environment.append(f"LD_PRELOAD={allocator['library']}")
        if environment:
            found.append(f"... with {' '.join(environment)}")
    return [printable(line) for line in found]


def _runs(header: Record) -> bytes:
    grid, options = header.get("grid", {}), header.get("options", {})
    return json.dumps([grid, options.get("prepare")], sort_keys=True, separators=(",", ":")).encode()


def _secret() -> bytes | None:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(state) / "memoir" / "secret"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name(f".secret.{os.getpid()}")
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(file, secrets.token_bytes(32))
            os.close(file)
            try:
                os.link(fresh, path)  # whoever was first keeps it
            except FileExistsError:
                pass
            finally:
                os.unlink(fresh)
        key = path.read_bytes()
    except OSError:
        return None
    return key if len(key) == 32 else None
