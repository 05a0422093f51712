# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there; the word for a line of JSON in one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memoir._core import Error

Record = dict[str, Any]  # one JSON object of a file of lines


@contextlib.contextmanager
def finished_output(path: Path, force: bool) -> Iterator[Path]:
    """All or nothing: the name of a new file in the same folder, which becomes `path` when all went well."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        if force:
            unfinished.replace(path)
        else:  # fails where the file has come up meanwhile
            os.link(unfinished, path)
    except FileExistsError:
        raise Error(f"{path} exists already; pass -f to overwrite it") from None
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def write_output(path: Path, content: bytes, force: bool) -> None:
    """All or nothing: to a file of the same folder first, which is then renamed."""
    with finished_output(path, force) as unfinished:
        unfinished.write_bytes(content)
