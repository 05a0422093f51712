# SPDX-License-Identifier: Apache-2.0
"""What a bench would run, for people to read before they say yes: each command as a shell takes it, with its parameters
filled in and the variables that it gets. Nothing is left out; what is too much to be looked at is refused."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterator

from memoir._core import Error
from memoir.base.quantities import printable
from memoir.bench.grid import Cell, Grid, environment, fill
from memoir.bench.options import Options
from memoir.bench.process import proof

MOST = 200  # commands that somebody can be asked about
MOST_TEXT = 4000  # characters of one of them
_REPLICATE, _PORT = "replicate", "port"  # each run has its own
_LEFT = re.compile(r"\{(replicate|port|=)")


def commands(grid: Grid, options: Options) -> list[str]:
    """Every command that a run of the grid would start, in a line each, without repetitions.

    Raises memoir.Error for more than MOST, or a longer one than MOST_TEXT.
    """
    axes = [grid.threads, grid.loads, *(values for _, values in grid.parameters)]
    cells = len(grid.programs) * len(grid.allocators) * math.prod(map(len, axes))
    if cells > 100 * MOST:
        raise Error(f"it would run commands in {cells:,} cells, which nobody can look at")
    lines: dict[str, None] = {}
    for cell in grid.cells():
        for line in _of_cell(cell, grid, options):
            if len(line) > MOST_TEXT:
                raise Error(
                    f"one of its commands has {len(line):,} characters, more than anybody looks at; it begins with "
                    f"{line[:200]}"
                )
            lines[line] = None
            if len(lines) > MOST:
                raise Error(f"it would run more than {MOST} different commands, which nobody looks at")
    return list(lines)


def _of_cell(cell: Cell, grid: Grid, options: Options) -> Iterator[str]:
    program, allocator = grid.program(cell.program), grid.allocator(cell.allocator)
    if options.prepare is not None:
        yield _line(["sh", "-c", *_filled((options.prepare,), cell, (_REPLICATE,))])
    later = (_REPLICATE, _PORT) if program.client else (_REPLICATE,)
    variables = environment(cell, 0, grid.threads_given) | {"MEMOIR_REPLICATE": f"{{{_REPLICATE}}}"}
    variables |= proof.environment_for([str(allocator.library)] if allocator.library else (), allocator)
    given = [f"{name}={value}" for name, value in variables.items()]
    yield _line(["env", *given, *_filled(program.command, cell, later)])
    for words in (program.ready, program.client, program.stop):
        if words:
            yield _line(_filled(words, cell, later))
    if program.client and not program.server:  # the suite's clients, where an allocator is proved
        yield _line([*_filled(program.client, cell, later), "--smoke"])


def _filled(words: tuple[str, ...], cell: Cell, later: Collection[str]) -> list[str]:
    """What each run fills in stays as it was written; what only looks like it is refused."""
    values = cell.values(0) | dict.fromkeys(later, "0")
    for word in fill(words, values):
        if found := _LEFT.search(word):
            raise Error(
                f"one of its commands has the letters {found[0]}, and nobody can tell who fills them in"
            )
    return fill(words, values, later)


def _line(words: list[str]) -> str:
    return printable(shlex.join(words))
