# SPDX-License-Identifier: Apache-2.0
"""Reads what `hyperfine --export-json` writes: commands stand where allocators do, parameters are axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memoir._core import Error
from memoir.base.files import Record
from memoir.bench import journal
from memoir.bench.results import Result

_MOST_PLACES = 10  # places of a command that a value may have come from; of more, all count


def read_export(path: Path, entries: Any) -> Result:
    """The entries of an export's "results" as a Result; raises memoir.Error, or what a malformed entry raises."""
    names = _names(entries)
    rows: list[Record] = []
    for name, entry in zip(names, entries, strict=True):
        rows += _rows(name, entry)
    journal.check_rows(path, rows)
    if not rows:
        raise Error(f"{path}: no runs")
    notes = ["hyperfine runs one command after another: these are compared unpaired"]
    if any(row["status"] == "no time" for row in rows):
        notes.append(
            "hyperfine measured the start of a shell as longer than some runs, and wrote 0 s for them: these are left "
            "out; hyperfine -N starts no shell"
        )
    return Result({"interleaved": False, "sources": [path.name]}, rows, notes)


def template(commands: Sequence[str], parameters: Sequence[Mapping[str, str]]) -> str | None:
    """The text of which each command is made when its parameters are filled in; None where there is none.

    A value may stand in the command by chance too (`-n 2 -j 2`): so many places as possible are taken for the parameter
    such that every command comes out.
    """
    first, values = commands[0], parameters[0]
    if any(one.keys() != values.keys() for one in parameters):
        return None
    places = list(_places(first, values))
    choices = (
        (chosen for count in range(len(places), -1, -1) for chosen in itertools.combinations(places, count))
        if len(places) <= _MOST_PLACES
        else iter([tuple(places)])
    )
    for chosen in choices:
        pieces, end = [], 0
        for at, name in chosen:
            if at < end:
                break  # two values at the same place
            pieces += [first[end:at], name]
            end = at + len(values[name])
        else:
            pieces.append(first[end:])  # text, name, text, name, ..., text
            if all(
                _filled(pieces, given) == command for command, given in zip(commands, parameters, strict=True)
            ):
                return "".join(f"{{{piece}}}" if i % 2 else piece for i, piece in enumerate(pieces))
    return None


def _names(entries: Sequence[Record]) -> list[str]:
    """What each entry's command is called: alike for all values of its parameters, unlike that of any other one.

    hyperfine writes all commands for the first values, then all for the next ones, and so on.
    """
    commands = [str(entry["command"]) for entry in entries]
    given = [_parameters(entry) for entry in entries]
    combinations = list(dict.fromkeys(tuple(sorted(one.items())) for one in given))
    each, rest = divmod(len(entries), len(combinations) or 1)
    names = list(commands)
    if len(combinations) > 1 and not rest:
        for k in range(each):
            found = template(commands[k::each], given[k::each])
            if found is not None:
                names[k::each] = [found] * len(combinations)
    counted: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    for index, name in enumerate(names):
        key = name, tuple(sorted(given[index].items()))
        counted[key] = counted.get(key, 0) + 1
        if counted[key] > 1:
            names[index] = f"{name} ({counted[key]})"
    return names


def _places(command: str, values: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """(position, parameter) wherever a parameter's value stands, in order."""
    found = []
    for name, value in values.items():
        at = command.find(value) if value else -1
        while at >= 0:
            found.append((at, name))
            at = command.find(value, at + 1)
    return iter(sorted(found))


def _filled(pieces: Sequence[str], values: Mapping[str, str]) -> str:
    return "".join(values[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _parameters(entry: Record) -> dict[str, str]:
    return {str(name): str(value) for name, value in (entry.get("parameters") or {}).items()}


def _rows(name: str, entry: Record) -> Iterator[Record]:
    times = entry["times"]
    codes = entry.get("exit_codes") or [0] * len(times)
    sizes = entry.get("memory_usage_byte") or [None] * len(times)
    parameters = _parameters(entry)
    whole = {
        axis: max(1, int(parameters.pop(axis)))
        for axis in ("threads", "load")
        if parameters.get(axis, "").isdigit()
    }
    threads, load = whole.get("threads", 1), whole.get("load", 1)
    for replicate, (seconds, code, size) in enumerate(zip(times, codes, sizes, strict=True)):
        status = "ok" if code in (0, None) else f"exit code {code}"
        row = {
            "program": "command",
            "allocator": name,
            "threads": threads,
            "load": load,
            "work": threads * load,
            "parameters": dict(parameters),
            "replicate": replicate,
            "status": "no time" if status == "ok" and float(seconds) == 0.0 else status,
            "wall": float(seconds),
            "metrics": {},
        }
        yield row | ({} if size is None else {"peak_rss": size})
