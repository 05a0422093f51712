# SPDX-License-Identifier: Apache-2.0
"""Logs that say sizes and lifetimes: of TensorFlow Lite Micro's planner, and MindSpore's SOMAS.

3 (id=3): size=1024, offset=0, first_used=1 last_used=2                                 since 2021; before:
Planner buffer ID: 3, calculated offset: 0, size required: 1024, first_time_created: 1, last_time_used: 2

index:	size:	real_size:	offset:	addr:	type:	lifelong:	life_start:	life_end:	source node name:
%0T	#19267584S	#19267584S	&0	&0x7f..	OutputOnly	0	1	4	Cast-op1
"""

from __future__ import annotations

import re

from memoir._core import Error
from memoir.importers.problem import Imported, Row

_TFLM = re.compile(
    r"[0-9A-Za-z*] \(id=(?P<id>\d{1,9})\): size=(?P<size>\d{1,18}), offset=(?P<offset>-?\d{1,18}), "
    r"first_used=(?P<first>\d{1,9}) last_used=(?P<last>\d{1,9})"
)
_OLD_TFLM = re.compile(
    r"Planner buffer ID: (?P<id>\d{1,9}), calculated offset: (?P<offset>-?\d{1,18}), "
    r"size required: (?P<size>\d{1,18}), first_time_created: (?P<first>\d{1,9}), last_time_used: (?P<last>\d{1,9})"
)
_SOMAS = re.compile(r"%(\d{1,9})(C?T)\t#(\d{1,18})S\t#(\d{1,18})S\t&(\d{1,19})\t(.*)$")
_TICK = re.compile(r"\d{1,18}")
_TFLM_ALIGNMENT, _SOMAS_ALIGNMENT = 16, 512


def is_log(begin: bytes) -> bool:
    """By the first bytes of a file."""
    somas = b"All Tensors:" in begin or b"All Parameters:" in begin
    return somas or b"Planner buffer ID:" in begin or b" (id=" in begin and b" first_used=" in begin


def read(data: bytes, path: str) -> Imported:
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    for form in (_TFLM, _OLD_TFLM):
        if any(form.search(line) for line in lines):
            return _tflm(lines, form, path)
    return _somas(lines, path)


def _tflm(lines: list[str], form: re.Pattern[str], path: str) -> Imported:
    imported = Imported(path)
    peak = 0
    for number, line in enumerate(lines, 1):
        found = form.search(line)
        if found is None:
            continue
        buffer, offset, size, first, last = (
            int(found[name]) for name in ("id", "offset", "size", "first", "last")
        )
        if last < first:
            raise Error(f"{path}:{number}: buffer {buffer} is used last before it is created")
        imported.add(Row(f"buffer{buffer}", first, last + 1, size, _TFLM_ALIGNMENT))
        peak = max(peak, offset + size)
    imported.peer = peak
    imported.notes.append(f"a log of TensorFlow Lite Micro, whose own plan needs {peak:,} bytes")
    return imported


def _somas(lines: list[str], path: str) -> Imported:
    imported = Imported(path)
    columns: list[str] = []
    peak = last_tick = 0
    placed = False
    rows: list[tuple[str, int, bool, int, int]] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("index:") and "lifelong:" in line:
            columns = [name.strip(": ") for name in line.split("\t")]
            if not {"lifelong", "life_start", "life_end"} <= set(columns):
                raise Error(
                    f"{path}:{number}: this dump of SOMAS has no life_start and life_end: take somas_allocate_info"
                )
            continue
        found = _SOMAS.match(line.rstrip("\r"))
        if found is None or not columns or found[2] == "CT":
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != len(columns):
            raise Error(f"{path}:{number}: has {len(fields)} fields; the header has {len(columns)}")
        told = dict(zip(columns, fields, strict=True))
        ticks = all(_TICK.fullmatch(told[name]) for name in ("life_start", "life_end"))
        if not ticks or told["lifelong"] == "":
            raise Error(f"{path}:{number}: life_start and life_end are not ticks")
        first, last, size = int(told["life_start"]), int(told["life_end"]), int(found[3])
        if last < first:
            raise Error(f"{path}:{number}: ends before it begins")
        kind = told["lifelong"].strip()
        lifelong = kind not in ("0", "LifeLongNone", "kLifeLongNone")
        name = told.get("source node name", "")
        rows.append((f"{name}.T{found[1]}" if name else f"T{found[1]}", size, lifelong, first, last))
        placed |= found[5] != "0"
        peak, last_tick = max(peak, int(found[5]) + size), max(last_tick, last)
    for name, size, lifelong, first, last in rows:
        lower, upper = (0, last_tick + 1) if lifelong else (first, last + 1)
        imported.add(Row(name, lower, upper, size, _SOMAS_ALIGNMENT))
    if len(rows) > 1 and not placed:
        imported.notes.append(
            "a dump of MindSpore's SOMAS from before it placed anything; its own plan is in *somas_tensor_offset*; "
            "unions are not read"
        )
        return imported
    imported.peer = peak
    imported.notes.append(
        f"a dump of MindSpore's SOMAS, whose own plan needs {peak:,} bytes; unions are not read"
    )
    return imported
