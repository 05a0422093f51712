# SPDX-License-Identifier: Apache-2.0
"""One process at a time in a folder of results."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from pathlib import Path

from memoir._core import Error
from memoir.base.files import open_beside

NAME = ".memoir-bench.lock"
_CONTENT = re.compile(rb"(process [0-9]+\n)?")  # another one is no lock of ours


class Lock:
    """Holds a folder until release(), or until this process ends in any way: the kernel keeps the lock, not the file."""

    def __init__(self, folder: Path) -> None:
        """Raises memoir.Error, naming the holder, when another process has the folder."""
        self._path = folder / NAME
        self._file = -1
        while self._file < 0:
            try:
                self._file = open_beside(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise Error(f"{self._path}: cannot be made or opened: {error.strerror}") from None
            holder = os.pread(self._file, 200, 0)
            if not _CONTENT.fullmatch(holder):
                os.close(self._file)
                self._file = -1
                raise Error(f"{self._path} is not of memoir bench: choose another folder with -o")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(self._file)
                    raise Error(
                        f"{folder} is in use by {holder.decode().strip() or 'another process'}: wait for it, or choose another "
                        "folder with -o"
                    ) from None
                # a file system without locks: then nobody can be kept out
            if not self._is_there():  # whoever had it has just removed it
                os.close(self._file)
                self._file = -1
        os.ftruncate(self._file, 0)
        with contextlib.suppress(OSError):  # a full disk: then nobody reads who holds it
            os.pwrite(self._file, f"process {os.getpid()}\n".encode(), 0)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def release(self) -> None:
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1
