# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime with memoir's allocator: a thin session over its C API, as its own wheel has it.

    session = memoir.onnxruntime.Session("model.onnx")
    outputs = session.run({"x": array})          # the first runs record, later ones follow their plan

C and C++ programs register the allocator themselves: memoir_onnxruntime.h, docs/guides/onnxruntime.md."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memoir import _core
from memoir._core import Error
from memoir.frameworks.plug import hand_over

__all__ = ["Session", "include", "library"]

if TYPE_CHECKING:
    import numpy as np

Memory = Literal["memoir", "arena", "no pattern", "malloc"]

VERSION = 16  # of the C API, which later versions keep
# Where a function stands in ONNX Runtime's table, which only ever grows at its end.
FUNCTIONS = {
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "CreateSession": 7,
    "Run": 9,
    "CreateSessionOptions": 10,
    "DisableMemPattern": 17,
    "DisableCpuMemArena": 19,
    "SetIntraOpNumThreads": 24,
    "SessionGetInputCount": 30,
    "SessionGetOutputCount": 31,
    "SessionGetInputName": 36,
    "SessionGetOutputName": 37,
    "CreateTensorWithDataAsOrtValue": 49,
    "GetTensorMutableData": 51,
    "GetTensorElementType": 60,
    "GetDimensionsCount": 61,
    "GetDimensions": 62,
    "GetTensorTypeAndShape": 65,
    "CreateMemoryInfo": 68,
    "AllocatorFree": 76,
    "GetAllocatorWithDefaultOptions": 78,
    "ReleaseStatus": 93,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseSessionOptions": 100,
    "AddSessionConfigEntry": 130,
    "RegisterAllocator": 176,
}
RELEASES = {
    name for name in FUNCTIONS if name.startswith("Release")
}  # these return nothing, the others a status
# ONNX's numbers of the element types, by numpy's names.
TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
NAMES = {number: name for name, number in TYPES.items()}


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "runs",
            "recorded",
            "followed",
            "derived",
            "plain",
            "planned",
            "fallen_back",
            "arena_size",
            "peak_live",
            "slab_bytes",
        )
    ]


def library() -> Path:
    """libmemoir_onnxruntime.so, for C and C++ programs to link. Raises memoir.Error when it was not built."""
    path = Path(_core.__file__).parent / "bin" / "libmemoir_onnxruntime.so"
    if not path.exists():
        raise Error(f"{path.name} is missing next to the package's compiled core: build it again (make dev)")
    return path


def include() -> Path:
    """The folder of memoir_onnxruntime.h, for those programs."""
    return Path(_core.__file__).parent / "include"


class _Api:
    """ONNX Runtime's table of functions. Each raises Error with ONNX Runtime's own words when it fails."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("onnxruntime")
        folders = spec.submodule_search_locations if spec is not None else None
        if not folders:
            raise ImportError("memoir.onnxruntime needs ONNX Runtime: pip install onnxruntime")
        found = sorted(Path(folders[0]).glob("capi/libonnxruntime.so*"))
        if not found:
            raise ImportError(f"there is no libonnxruntime.so in {folders[0]}/capi")
        base_of = ctypes.CDLL(str(found[0]), mode=os.RTLD_LOCAL).OrtGetApiBase
        base_of.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(base_of()[0])
        table = get_api(VERSION)
        if not table:
            raise ImportError(f"{found[0].name} does not have version {VERSION} of its C API")
        self._functions = {
            name: ctypes.CFUNCTYPE(None if name in RELEASES else ctypes.c_void_p)(table[index])
            for name, index in FUNCTIONS.items()
        }
        self._functions["GetErrorMessage"].restype = ctypes.c_char_p

    def call(self, name: str, *args: Any) -> None:
        """By its name. Python's integers must be ctypes' already where they are not an int."""
        status = self._functions[name](*args)
        if name in RELEASES or not status:
            return
        status = ctypes.c_void_p(status)
        words = self._functions["GetErrorMessage"](status)
        self._functions["ReleaseStatus"](status)
        raise Error(f"ONNX Runtime: {(words or b'').decode(errors='replace')}")

    def make(self, name: str, *args: Any) -> ctypes.c_void_p:
        """Calls a function whose last argument receives what it made."""
        made = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(made))
        return made


class _Runtime:
    """The one environment of the process, with memoir's allocator in it."""

    def __init__(self) -> None:
        self.api = _Api()
        self.env = self.api.make("CreateEnv", 3, b"memoir")  # 3: errors alone
        self.info = self.api.make("CreateMemoryInfo", b"Cpu", 0, 0, 0)
        self.models = itertools.count(1)
        self.ours: ctypes.CDLL | None = None
        self.memory: ctypes.c_void_p | None = None
        try:
            self._register()
        except (Error, OSError) as error:
            hand_over("ONNX Runtime", str(error))

    def _register(self) -> None:
        ours = ctypes.CDLL(str(library()), mode=os.RTLD_LOCAL)
        for name in ("create", "allocator"):
            getattr(ours, f"memoir_onnxruntime_{name}").restype = ctypes.c_void_p
        ours.memoir_onnxruntime_get_stats.restype = _Stats
        memory = ctypes.c_void_p(ours.memoir_onnxruntime_create(self.info))
        allocator = ctypes.c_void_p(ours.memoir_onnxruntime_allocator(memory))
        self.api.call("RegisterAllocator", self.env, allocator)
        self.ours, self.memory = ours, memory


_lock = threading.Lock()


@functools.cache
def _only_runtime() -> _Runtime:
    return _Runtime()


def _runtime() -> _Runtime:
    with _lock:
        return _only_runtime()


class Session:
    """A model that is loaded. Thread-safe, as ONNX Runtime's sessions are.

    memory: "memoir", or how ONNX Runtime does without: its "arena" with patterns of runs (its default), the arena with
    "no pattern", or "malloc" for every tensor. threads: within an operator, 0 for one per core."""

    def __init__(self, path: str | Path, *, memory: Memory = "memoir", threads: int = 0) -> None:
        self._session: ctypes.c_void_p | None = None
        if memory not in ("memoir", "arena", "no pattern", "malloc"):
            raise Error(f"memory is {memory!r}: it must be memoir, arena, no pattern or malloc")
        self._runtime = _runtime()
        self._api = self._runtime.api
        self._ours = self._runtime.ours if memory == "memoir" else None
        self._model = next(self._runtime.models)
        options = self._api.make("CreateSessionOptions")
        try:
            self._api.call("SetIntraOpNumThreads", options, threads)
            if memory in ("no pattern", "malloc") or self._ours is not None:
                self._api.call("DisableMemPattern", options)
            if memory == "malloc":
                self._api.call("DisableCpuMemArena", options)
            if self._ours is not None:
                self._api.call("AddSessionConfigEntry", options, b"session.use_env_allocators", b"1")
            self._session = self._api.make("CreateSession", self._runtime.env, os.fsencode(path), options)
        finally:
            self._api.call("ReleaseSessionOptions", options)
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")

    def __del__(self) -> None:
        if self._session is not None:
            self._api.call("ReleaseSession", self._session)
            self._session = None

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """All outputs, in order, as arrays of their own. Raises memoir.Error for inputs that are not the model's, or of a
        type that is not a number."""
        import numpy as np

        missing = [name for name in self.inputs if name not in feeds]
        if missing:
            raise Error(f"the model's input {', '.join(missing)} is missing")
        arrays = [np.ascontiguousarray(feeds[name]) for name in self.inputs]
        values = [ctypes.c_void_p() for _ in arrays]
        results = (ctypes.c_void_p * len(self.outputs))()
        try:
            for value, array, name in zip(values, arrays, self.inputs, strict=True):
                if array.dtype.name not in TYPES:
                    raise Error(
                        f"the input {name} is of {array.dtype.name}, which memoir cannot pass to a model"
                    )
                shape = (ctypes.c_int64 * array.ndim)(*array.shape)
                data = array.ctypes.data_as(ctypes.c_void_p)
                self._api.call(
                    "CreateTensorWithDataAsOrtValue",
                    self._runtime.info,
                    data,
                    ctypes.c_size_t(array.nbytes),
                    shape,
                    ctypes.c_size_t(array.ndim),
                    TYPES[array.dtype.name],
                    ctypes.byref(value),
                )
            self._run(arrays, values, results)
            return [self._array(ctypes.c_void_p(result)) for result in results]
        finally:
            for result in [*values, *(ctypes.c_void_p(result) for result in results)]:
                if result:
                    self._api.call("ReleaseValue", result)

    def stats(self) -> dict[str, int]:
        """What memoir's allocator did for all sessions of the process: runs recorded, followed and derived (of shapes that
        were never recorded), allocations planned and fallen back, bytes. Empty without memoir's allocator."""
        if self._ours is None:
            return {}
        stats = self._ours.memoir_onnxruntime_get_stats(self._runtime.memory)
        return {field[0]: getattr(stats, field[0]) for field in _Stats._fields_}

    def _run(self, arrays: list[np.ndarray], values: list[ctypes.c_void_p], results: Any) -> None:
        numbers = [size for array in arrays for size in array.shape]
        given = (ctypes.c_void_p * len(values))(*[value.value for value in values])
        names = (ctypes.c_char_p * len(self.inputs))(*[name.encode() for name in self.inputs])
        wanted = (ctypes.c_char_p * len(self.outputs))(*[name.encode() for name in self.outputs])
        finished = False
        if self._ours is not None:
            self._ours.memoir_onnxruntime_begin(
                self._runtime.memory,
                ctypes.c_uint64(self._model),
                (ctypes.c_int64 * len(numbers))(*numbers),
                ctypes.c_size_t(len(numbers)),
            )
        try:
            self._api.call(
                "Run",
                self._session,
                None,
                names,
                given,
                ctypes.c_size_t(len(values)),
                wanted,
                ctypes.c_size_t(len(results)),
                results,
            )
            finished = True
        finally:
            if self._ours is not None:
                self._ours.memoir_onnxruntime_end(self._runtime.memory, int(finished))

    def _array(self, value: ctypes.c_void_p) -> np.ndarray:
        import numpy as np

        info = self._api.make("GetTensorTypeAndShape", value)
        try:
            kind, rank = ctypes.c_int(), ctypes.c_size_t()
            self._api.call("GetTensorElementType", info, ctypes.byref(kind))
            self._api.call("GetDimensionsCount", info, ctypes.byref(rank))
            shape = (ctypes.c_int64 * rank.value)()
            self._api.call("GetDimensions", info, shape, rank)
        finally:
            self._api.call("ReleaseTensorTypeAndShapeInfo", info)
        if kind.value not in NAMES:
            raise Error(f"an output is of ONNX's type {kind.value}, of which numpy has no arrays")
        out = np.empty(tuple(shape), NAMES[kind.value])
        data = self._api.make("GetTensorMutableData", value)
        if out.nbytes:
            ctypes.memmove(out.ctypes.data, data, out.nbytes)
        return out

    def _names(self, what: str) -> list[str]:
        count = ctypes.c_size_t()
        self._api.call(f"SessionGet{what}Count", self._session, ctypes.byref(count))
        allocator = self._api.make("GetAllocatorWithDefaultOptions")
        names = []
        for index in range(count.value):
            made = self._api.make(f"SessionGet{what}Name", self._session, ctypes.c_size_t(index), allocator)
            names.append(ctypes.string_at(made).decode())
            self._api.call("AllocatorFree", allocator, made)
        return names
