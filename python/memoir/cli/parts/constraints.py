# SPDX-License-Identifier: Apache-2.0
"""The options of `memoir plan` for what a problem can say in addition to its columns, and how such a plan is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoir._core import Error
from memoir.cli.parts.arguments import ParamType, Size, Whole
from memoir.cli.parts.sections import section

if TYPE_CHECKING:
    from memoir import _core
    from memoir.cli.parts.problems import CsvSource, TraceSource
    from memoir.planning import PlanResult
    from memoir.planning.constraints import Arena


class ForbiddenRange(ParamType):
    """[ARENA:]BEGIN:END in bytes."""

    name = "[ARENA:]BEGIN:END"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        *arena, begin, end = value.rsplit(":", 2) if ":" in value else ("", "")
        if not begin or not end:
            self.fail(f"'{value}' is not a range: give BEGIN:END or ARENA:BEGIN:END", parameter, context)
        size = Size()
        return (*arena, size.convert(begin, parameter, context), size.convert(end, parameter, context))


class ArenaOption(ParamType):
    """NAME[=CAPACITY][,cost=N]"""

    name = "NAME[=BYTES][,cost=N]"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, int | None, int]:
        if isinstance(value, tuple):
            return value
        first, *settings = value.split(",")
        name, _, capacity = first.partition("=")
        if not name or " " in name or '"' in name:
            self.fail(f"'{value}': an arena needs a name without blanks", parameter, context)
        cost = 0
        for setting in settings:
            key, _, number = setting.partition("=")
            if key != "cost" or not number.isdecimal():
                self.fail(f"'{setting}' is not a setting of an arena: there is cost=N", parameter, context)
            cost = int(number)
        return name, Size().convert(capacity, parameter, context) if capacity else None, cost


class BanksOption(ParamType):
    """COUNT:WIDTH"""

    name = "COUNT:WIDTH"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        count, _, width = value.partition(":")
        if not count.isdecimal() or not width:
            self.fail(f"'{value}': give the number of banks and their width, 8:4KiB", parameter, context)
        return int(count), Size().convert(width, parameter, context)


constraining = section("What a problem can say (docs/reference/constraints.md)")
_OPTIONS = (
    constraining(
        "--arena", "arenas", type=ArenaOption(), multiple=True, help="One of several arenas, with its limit."
    ),
    constraining(
        "--forbid", type=ForbiddenRange(), multiple=True, help="Bytes of the arena that no buffer may touch."
    ),
    constraining(
        "--banks", type=BanksOption(), help="Interleaved banks, for buffers that must be kept `apart`."
    ),
    constraining(
        "--conflicts",
        type=click.Path(dir_okay=False),
        help="CSV with the columns a,b: buffers that conflict, in addition to or instead of times.",
    ),
    constraining(
        "--replan",
        type=click.Path(dir_okay=False),
        help="CSV with id and offset, an earlier plan to change as little as possible.",
    ),
    constraining("--moves", type=Whole(), help="With --replan: how many buffers may lie elsewhere."),
    constraining("--locality", is_flag=True, help="Among equal plans, prefer bytes freed a short time ago."),
)


Command = TypeVar("Command", bound=Callable[..., Any])


def constraint_options(command: Command) -> Command:
    """Adds the options, which Constraints.taken_from() takes from what the command is given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Constraints:
    """What the options say."""

    arenas: tuple[tuple[str, int | None, int], ...]
    forbid: tuple[tuple[Any, ...], ...]
    banks: tuple[int, int] | None
    conflicts: str | None
    replan: str | None
    moves: int | None
    locality: bool

    @staticmethod
    def taken_from(given: dict[str, Any]) -> Constraints:
        """Takes the options out of `given`."""
        return Constraints(**{field.name: given.pop(field.name) for field in dataclasses.fields(Constraints)})

    def any(self) -> bool:
        return any((self.arenas, self.forbid, self.banks, self.conflicts, self.replan, self.locality)) or (
            self.moves is not None
        )

    def chosen_arenas(self) -> list[Arena]:
        from memoir.planning.constraints import Arena

        return [Arena(*one) for one in self.arenas]

    def constrain(
        self, source: CsvSource | TraceSource, problem: _core.Problem
    ) -> _core.ConstrainedProblem | None:
        """What the source and the options say together; None when that is no more than a plain problem.
        `problem` is the source's, perhaps with more alignment."""
        from memoir.cli.parts.problems import CsvSource
        from memoir.planning import constraints

        if self.moves is not None and self.replan is None:
            raise Error("--moves needs --replan, the earlier plan that may change: add it")
        csv = source.csv if isinstance(source, CsvSource) else None
        if csv is None:
            if self.conflicts or self.replan:
                raise Error("--conflicts and --replan name buffers by the ids of a CSV; this is a trace")
            if not self.any():
                return None
        elif not (csv.has_constraints or self.any()):
            return None
        elif not csv.timed and self.conflicts is None:
            raise Error(f"{source.path}: has no columns lower and upper; without times, give --conflicts")
        out = constraints.start(problem, csv, self.chosen_arenas())
        if csv is not None and self.conflicts is not None:
            out.read_conflicts(self.conflicts, csv)
        if csv is not None and self.replan is not None:
            out.read_old_plan(self.replan, csv)
            if out.known_before == 0:
                raise Error(f"{self.replan}: none of its ids is one of {source.path}: is it an earlier plan?")
        constraints.common(
            out, forbid=self.forbid, banks=self.banks, moves=self.moves, locality=self.locality
        )
        return out


def refuse_plan_file(problem: _core.ConstrainedProblem) -> None:
    """A .plan holds one arena in which no two live allocations overlap."""
    shared = [name for name in problem.says if name in ("gaps", "alias", "in_place", "arenas", "conflicts")]
    if shared:
        raise Error(f"a .plan cannot hold a plan with {', '.join(shared)}: write a .csv")


def print_result(result: PlanResult, locality: bool) -> None:
    """What the table does not show, and how it stands with the limits."""
    from memoir.views.constrained_text import result_lines, verdict

    for line in result_lines(result, locality):
        click.echo(line)
    if (last := verdict(result)) is not None:
        click.echo(last, err=result.proven_infeasible or not result.found)
