# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per verb, imported only when that verb is called."""

from __future__ import annotations

import importlib
import sys

import click

from memoir import __version__

# verb -> what it does; the command is `command` in memoir/cli/<verb>.py
VERBS = {
    "record": "Record what a program allocates into a trace.",
    "symbolize": "Names for the stacks of native traces, stored in them.",
    "plan": "Give every buffer of a trace or a CSV problem its offset.",
    "import": "Make a trace of a PyTorch memory snapshot.",
    "export": "Write a trace or a lifetime profile for the viewers of others.",
    "attach": "Sample or record a process that runs.",
    "merge": "Lifetime profiles of several runs as one.",
    "run": "Run a program with memoir's malloc.",
    "top": "What memoir's malloc holds in a running program.",
    "simulate": "The same allocators on a trace alone: what-if, caps, no hardware needed.",
    "show": "Tables and pictures of a trace, a plan or a lifetime profile.",
    "bench": "Allocators against each other, with intervals.",
    "doctor": "What this machine offers: allocators, huge pages, cores, counters.",
    "diff": "What changed between two results.",
    "completion": "What makes Tab complete verbs and options in a shell.",
}


class _Verbs(click.Group):
    """Lists the verbs without importing them, so that `memoir --help` and every verb start quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"memoir.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def _group() -> None:
    """Allocators that remember: record a program's allocations once, plan them, run without paying for them again."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; a memoir.Error becomes one line on stderr and exit code 2."""
    from memoir._core import Error

    try:
        sys.exit(_group.main(arguments, prog_name="memoir", standalone_mode=True))
    except Error as error:
        click.echo(f"memoir: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
