# SPDX-License-Identifier: Apache-2.0
"""The files that hold a trace: a .trace, a memory snapshot of PyTorch, a log of RAPIDS Memory Manager, or a text trace,
told apart by how they begin."""

from __future__ import annotations

from pathlib import Path

from memoir import _core
from memoir._core import Error, Only, Trace
from memoir.base.files import read_regular
from memoir.base.kinds import wrong_kind

_MAGIC = b"\x89memoirT"
_PICKLE = b"\x80"

# Of a trace: which allocations, as people choose them.
ONLY = {"tensors": Only.kTensors, "malloc": Only.kMallocs, "both": Only.kBoth}


def read_begin(path: str | Path) -> bytes:
    """As much of a file as tells what it is; Error when it cannot be read."""
    try:
        return read_regular(path, 4096)
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None


def is_trace(begin: bytes) -> bool:
    """Whether open_trace() is for a file that begins so."""
    return begin.startswith((_MAGIC, _PICKLE)) or _core.is_text_trace(begin) or _core.is_rmm_log(begin)


def open_trace(path: str | Path, only: Only = Only.kBoth) -> Trace:
    """A trace from whatever holds one; `only` its tensors, or its mallocs."""
    path = str(path)
    begin = read_begin(path)
    if begin and not is_trace(begin):
        raise wrong_kind(path, begin, "not a trace")
    if _core.is_text_trace(begin):
        return Trace.from_bytes(_core.import_text_trace(read_regular(path), path)[0], path, only)
    if _core.is_rmm_log(begin):
        return Trace.from_bytes(_core.import_rmm_log(read_regular(path), path)[0], path, only)
    if begin.startswith(_PICKLE):
        return Trace.from_bytes(_core.import_snapshot_bytes(read_regular(path), path), path, only)
    return Trace.open(path, only)


def open_chosen(path: str | Path, only: str | None = None) -> tuple[Trace, str]:
    """A trace and which of its allocations it has: those of `only`; without, its tensors where there are any."""
    if only is not None:
        return open_trace(path, ONLY[only]), only
    if read_begin(path).startswith(_MAGIC):
        trace, has_tensors = Trace.open_chosen(str(path))
    else:  # whatever allocates there is a tensor
        trace = open_trace(path)
        has_tensors = trace.allocates
    return trace, "tensors" if has_tensors else "both"


def has_more(trace: Trace, chosen: str) -> bool:
    """Whether a trace of tensors alone was recorded with all that malloc served."""
    return chosen == "tensors" and trace.meta("recorder") == "native"


def open_for_plans(path: str | Path, only: str | None = None) -> Trace:
    """What is planned of a trace: its tensors by their operators alone, which a run can match; where there are none, or
    with `only` "malloc", what malloc served."""
    if only in ("malloc", "both"):
        return open_trace(path, ONLY[only])
    if not read_begin(path).startswith(_MAGIC):
        return open_trace(path)
    return (
        Trace.open_chosen(str(path), plannable=True)[0] if only is None else Trace.open_plannable(str(path))
    )


def only_device(trace: Trace, device: int | None) -> int:
    """`device`, or the only one that the trace allocates on. Error when there is no such, or more than one."""
    devices = _core.devices_of(trace)
    if device is None and len(devices) == 1:
        return devices[0]
    if device is None:
        raise Error(f"the trace is of the devices {', '.join(map(str, devices))}: choose one with --device")
    if device not in devices:
        raise Error(
            f"the trace allocates nothing on device {device} (devices: {', '.join(map(str, devices))})"
        )
    return device
