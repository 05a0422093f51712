# SPDX-License-Identifier: Apache-2.0
"""What a file is: as its name promises, and as its first bytes say. For errors about files that are damaged, empty or of
another kind than they are named."""

from __future__ import annotations

from pathlib import Path

from memoir._core import Error
from memoir.base.quantities import printable

_PROMISES = {
    ".trace": "a trace",
    ".plan": "a plan",
    ".lifetimes": "a lifetime profile",
    ".model": "a model of lifetimes",
    ".tflite": "a TFLite model",
    ".pte": "an ExecuTorch program",
    ".onnx": "an ONNX model",
    ".pickle": "a memory snapshot of PyTorch",
    ".pkl": "a memory snapshot of PyTorch",
    ".html": "a page",
    ".png": "a picture",
    ".svg": "a picture",
    ".pdf": "a picture",
    ".json": "JSON",
    ".gz": "something compressed",
    ".zst": "something compressed",
    ".xz": "something compressed",
    ".zip": "an archive",
}

# (where, bytes, what begins so)
_BEGINNINGS = (
    (0, b"\x89memoirT", "a trace"),
    (0, b"\x89memoirP", "a plan"),
    (0, b"\x89memoirL", "a lifetime profile"),
    (0, b"\x89memoirM", "a model of lifetimes"),
    (4, b"TFL3", "a TFLite model"),
    (4, b"ET12", "an ExecuTorch program"),
    (0, b"\x80", "a pickle of Python, as PyTorch's memory snapshots are"),
    (0, b"\x1f\x8b", "a gzip archive: unpack it"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it"),
    (0, b"\xfd7zXZ", "an xz archive: unpack it"),
    (0, b"PK\x03\x04", "a zip archive: unpack it"),
    (0, b"\x7fELF", "a program or a library"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"%PDF", "a PDF file"),
)
_SHOWN_BYTES, _SHOWN_LETTERS = 8, 40


def promise(path: str | Path) -> str:
    """What its suffix says that it is: 'a trace'; '' where that says nothing, as of .csv and .txt."""
    return _PROMISES.get(Path(path).suffix.lower(), "")


def first_bytes(begin: bytes) -> str:
    """A clause about how a file begins: 'it is empty', 'it begins like a gzip archive: unpack it'."""
    if not begin:
        return "it is empty"
    for at, magic, what in _BEGINNINGS:
        if begin[at:].startswith(magic):
            return f"it begins like {what}"
    line = begin.split(b"\n", 1)[0][:_SHOWN_LETTERS]
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = ""
    if text.strip() and all(letter.isprintable() or letter in "\t\r" for letter in text):
        return f"it begins with the text '{printable(text.strip())}'"
    return f"its first bytes are {begin[:_SHOWN_BYTES].hex(' ')}, as of no kind of file that is read here"


def wrong_kind(path: str | Path, begin: bytes, verdict: str) -> Error:
    """An error for a file that is not what is wanted ('not a trace'): what it is; or what its name promised, and what it
    begins like."""
    promised, found = promise(path), first_bytes(begin)
    if promised and found.removeprefix("it begins like ").startswith(promised):
        said = f"it is {promised}"
    else:
        said = f"its name promises {promised}, but {found}" if promised else found
    return Error(f"{printable(str(path))} is {verdict}: {said}")


def check_begins_like(path: str | Path, begin: bytes, kind: str) -> None:
    """Raises memoir.Error unless the file begins like `kind`, of what _BEGINNINGS has: 'a lifetime profile'."""
    if not any(begin[at:].startswith(magic) for at, magic, what in _BEGINNINGS if what == kind):
        raise wrong_kind(path, begin, f"not {kind}")


def is_binary(begin: bytes) -> bool:
    """Not text at its beginning, so not CSV."""
    return b"\0" in begin[:8] or any(begin[at:].startswith(magic) for at, magic, _ in _BEGINNINGS)


def check_is_csv(path: str | Path, begin: bytes, verdict: str) -> None:
    """For a file that begins like no kind that is known. Raises memoir.Error unless it may be CSV: by its name, and text."""
    if promise(path) or is_binary(begin) or (not begin and Path(path).suffix.lower() != ".csv"):
        raise wrong_kind(path, begin, verdict)
