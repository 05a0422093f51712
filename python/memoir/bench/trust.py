# SPDX-License-Identifier: Apache-2.0
"""Whether this user made a bench: a journal names commands, and --resume runs them.

Each header carries a signature over what it would run and where: its folder, and the folder that commands begin in. It is
made with a secret that is this user's and never leaves the machine. A folder from elsewhere, or one whose commands were
changed, has none that fits; nor has one that somebody got from this user and sends back, with other programs beside it.
Then its commands are shown, and whoever resumes it says whether they are to be run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from memoir._core import Error
from memoir.base.files import Record, make_folder, read_beside, write_output


def sign(header: Record, folder: Path) -> str | None:
    """The signature of what a header in that folder would run from here; None where this user has no place for a secret."""
    key = _secret()
    return None if key is None else hmac.new(key, _runs(header, folder), hashlib.sha256).hexdigest()[:32]


def is_ours(header: Record, folder: Path) -> bool:
    """True when this user signed exactly these commands, for these folders."""
    expected, found = sign(header, folder), header.get("signature")
    return expected is not None and isinstance(found, str) and hmac.compare_digest(expected, found)


def _runs(header: Record, folder: Path) -> bytes:
    where = [os.path.realpath(folder), os.path.realpath(".")]
    return json.dumps([header.get("grid"), header.get("options"), where], sort_keys=True).encode()


def _secret() -> bytes | None:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(state) / "memoir" / "secret"
    try:
        if not os.path.lexists(path):
            make_folder(path.parent, private=True)
            with contextlib.suppress(Error):  # whoever was first keeps it
                write_output(path, secrets.token_bytes(32), force=False, private=True)
        key = read_beside(path, 33)
    except OSError:
        return None
    return key if len(key) == 32 else None
