# SPDX-License-Identifier: Apache-2.0
"""memoir run: a program under memoir's malloc."""

from __future__ import annotations

import os
import sys

import click

from memoir import Error, malloc


def _choices(texts: tuple[str, ...]) -> dict[str, str]:
    """--set key=value, several of them or one with commas."""
    chosen = {}
    for part in (part for text in texts for part in text.split(",") if part):
        name, equals, value = part.partition("=")
        chosen[name] = value if equals else "true"
    return chosen


def _list_settings(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    for one in malloc.settings().values():
        click.echo(f"{one.name + '=' + one.initial:<24}{one.unit:<8}{one.help}")
    context.exit()


def _print_library(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    click.echo(malloc.library())
    context.exit()


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--print",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_library,
    help="Print the library's path, for LD_PRELOAD, and end.",
)
@click.option(
    "--settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_settings,
    help="List what --set takes, and end.",
)
@click.option("--set", "chosen", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(chosen: tuple[str, ...], program: tuple[str, ...]) -> None:
    """Run PROGRAM with memoir's malloc in place of its own.

    \b
      memoir run -- ./server --port 8000
      memoir run --set stats -- python serve.py
      LD_PRELOAD=$(memoir run --print) ./server

    The program takes this command's place: its exit status, its signals and its terminal are its own. Programs that it
    starts have the malloc too.
    """
    from memoir.bench import launch, proof

    path = launch.resolve(program[0])
    proof.check_executable(path)
    environment = malloc.environment(_choices(chosen))
    sys.stdout.flush()
    try:
        os.execve(path, list(program), environment)
    except OSError as error:
        raise Error(f"{program[0]}: cannot be run: {error.strerror}") from None
