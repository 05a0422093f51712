# SPDX-License-Identifier: Apache-2.0
"""Problems out of the files of other frameworks: read as data, never run. Each importer makes the CSV that
docs/reference/formats-plan.md describes, so that whatever takes that takes them all; docs/guides/importers.md has a row
for each.

    model.tflite   ->   id,lower,upper,size,alignment        memoir plan model.tflite -o planned.tflite
                        t3,0,2,1024,16
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memoir._core import Error
from memoir.base.files import read_regular
from memoir.importers.problem import Imported

MOST_BYTES = 1 << 31  # of a file: what it names is held in memory


@dataclass(frozen=True)
class Importer:
    name: str
    what: str  # for people
    knows: Callable[[str, bytes], bool]  # by the name and the first bytes
    read: Callable[[bytes, str, dict[str, int]], Imported]


def _flat(identifier: bytes) -> Callable[[str, bytes], bool]:
    return lambda path, begin: begin[4:8] == identifier


def _read_tflite(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import tflite

    return tflite.read(data, path)


def _read_executorch(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import executorch

    return executorch.read(data, path)


def _read_xla(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import xla

    return xla.read(data, path)


def _read_onnx(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import onnx

    return onnx.read(data, path, dims)


def _read_ggml(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import ggml

    return ggml.read(data, path)


def _read_log(data: bytes, path: str, dims: dict[str, int]) -> Imported:
    from memoir.importers import logs

    return logs.read(data, path)


def _is_log(path: str, begin: bytes) -> bool:
    from memoir.importers import logs

    return logs.is_log(begin)


IMPORTERS = (
    Importer("tflite", "a TensorFlow Lite model", _flat(b"TFL3"), _read_tflite),
    Importer("executorch", "an ExecuTorch program", _flat(b"ET12"), _read_executorch),
    Importer("xla", "XLA's buffer assignment", lambda path, begin: path.endswith(".pb"), _read_xla),
    Importer("onnx", "an ONNX model", lambda path, begin: path.endswith(".onnx"), _read_onnx),
    Importer(
        "ggml", "a graph that ggml wrote", lambda path, begin: begin.startswith(b"digraph G {"), _read_ggml
    ),
    Importer("log", "a log of TensorFlow Lite Micro or MindSpore", _is_log, _read_log),
)


def importer_of(path: str, begin: bytes) -> Importer | None:
    """Who reads a file that begins so; None: it is none of these."""
    return next((one for one in IMPORTERS if one.knows(path, begin)), None)


def import_file(importer: Importer, path: str, dims: dict[str, int] | None = None) -> Imported:
    """Raises Error, naming the file, for what cannot be read or is not what it says."""
    try:
        data = read_regular(path, MOST_BYTES + 1)
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise Error(f"{path}: has more than 2 GiB, the most that is read of {importer.what}")
    imported = importer.read(data, path, dims or {})
    if not imported.rows:
        raise Error(f"{path}: is {importer.what} in which nothing is to be planned")
    return imported
