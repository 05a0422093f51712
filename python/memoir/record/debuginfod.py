# SPDX-License-Identifier: Apache-2.0
"""Debug files from debuginfod servers, which hand them out by build ids. Nothing is asked unless a caller names servers.

What was fetched stays where debuginfod's own client keeps it: $DEBUGINFOD_CACHE_PATH, or ~/.cache/debuginfod_client."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from memoir.base.files import Folder, make_folder

_TIMEOUT = 90  # seconds without a byte
LONGEST = 1800.0  # seconds for a file
_MOST = 4 << 30  # bytes of a file


def servers() -> list[str]:
    """Those that $DEBUGINFOD_URLS names."""
    return [
        url
        for url in os.environ.get("DEBUGINFOD_URLS", "").split()
        if url.startswith(("http://", "https://"))
    ]


def fetch(build_id: str, urls: Sequence[str], longest: float = LONGEST) -> tuple[Path | None, str]:
    """The debug file of a build, from the cache or the first server that has it; else why there is none. longest: seconds
    that each server may take."""
    if not urls or not build_id or any(digit not in "0123456789abcdef" for digit in build_id):
        return None, ""
    kept = _cache() / build_id / "debuginfo"
    if kept.is_file() and kept.stat().st_size > 0:
        return kept, ""
    why = ""
    for url in urls:
        try:
            _download(f"{url.rstrip('/')}/buildid/{build_id}/debuginfo", kept, longest)
            return kept, ""
        except urllib.error.HTTPError as error:
            why = why or ("no debuginfod server has it" if error.code == 404 else f"{url}: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = f"{url}: {error or type(error).__name__}"
    return None, why


def _cache() -> Path:
    if named := os.environ.get("DEBUGINFOD_CACHE_PATH"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "debuginfod_client"


def _download(url: str, to: Path, longest: float) -> None:
    """Whole, or not there."""
    until = time.monotonic() + longest
    with urllib.request.urlopen(url, timeout=min(_TIMEOUT, longest)) as answer:
        make_folder(to.parent)
        with Folder(to.parent) as folder, folder.own_folder(to.name) as own:
            with os.fdopen(own.create(to.name), "wb") as file:
                while part := answer.read1(1 << 20):
                    file.write(part)
                    if time.monotonic() > until:
                        raise TimeoutError(f"not whole after {longest:.0f} s")
                    if file.tell() > _MOST:
                        raise ValueError(f"more than {_MOST >> 30} GiB")
                size = answer.headers["Content-Length"]
                if size is not None and file.tell() != int(size):  # read() does not say so
                    raise ValueError(f"the connection ended after {file.tell():,} of {int(size):,} bytes")
            own.finish(to.name, to.name, folder, force=True)
