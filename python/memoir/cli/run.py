# SPDX-License-Identifier: Apache-2.0
"""memoir run: a program under memoir's malloc."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

import memoir
from memoir import Error, malloc
from memoir._core import LifetimeModel
from memoir.base.files import read_regular
from memoir.base.kinds import check_begins_like


def _choices(texts: tuple[str, ...]) -> dict[str, str]:
    """--set key=value, several of them or one with commas."""
    chosen = {}
    for part in (part for text in texts for part in text.split(",") if part):
        name, equals, value = part.partition("=")
        chosen[name] = value if equals else "true"
    return chosen


def _for_python(
    environment: Mapping[str, str], remember: bool, plans: tuple[str, ...], pool: str | None, report: bool
) -> dict[str, str]:
    """What makes the Pythons among the program and those that it starts begin when they import torch."""
    injected = str(Path(memoir.__file__).parent / "torch" / "injected")
    asked = {
        "PYTHONPATH": os.pathsep.join(filter(None, [injected, environment.get("PYTHONPATH")])),
        "MEMOIR_REMEMBER": "1" if remember else "",
        "MEMOIR_PLANS": os.pathsep.join(os.path.abspath(plan) for plan in plans),
        "MEMOIR_POOL": pool or "",
        "MEMOIR_REPORT": "1" if report else "",
    }
    return {name: value for name, value in asked.items() if value}


def _checked(model: Path) -> str:
    """The model's path as the malloc takes it, once the file was read as one."""
    path = str(model.resolve())
    if "," in path or len(path) > 1000:
        raise Error(
            f"{path}: a path with a comma, or with more than 1,000 letters, does not fit into {malloc.VARIABLE}"
        )
    try:
        content = read_regular(model)
    except OSError as error:
        raise Error(f"{model}: cannot be read: {error.strerror}") from None
    check_begins_like(model, content, "a model of lifetimes")
    LifetimeModel.from_bytes(content, str(model))
    return path


def _list_settings(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    for one in malloc.settings().values():
        click.echo(f"{one.name + '=' + one.initial:<24}{one.unit:<8}{one.help}")
    context.exit()


def _print_library(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    click.echo(malloc.library(malloc.asks_for_checks(_choices(context.params["chosen"]))))
    context.exit()


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--print",
    is_flag=True,
    expose_value=False,
    callback=_print_library,
    help="Print the library's path, for LD_PRELOAD, and exit.",
)
@click.option(
    "--settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_settings,
    help="List what --set takes, and exit.",
)
@click.option(  # read before --print, which names the library that --set chooses
    "--set",
    "chosen",
    multiple=True,
    is_eager=True,
    metavar="KEY=VALUE",
    help="A setting; may be repeated.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="A file of memoir train: how long objects will live, from the first one on.",
)
@click.option(
    "--remember",
    is_flag=True,
    help="In a Python program that uses PyTorch on CPUs: remember every module that no other module calls.",
)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A plan for the module that it was made for, used from the first call on; may be repeated.",
)
@click.option(
    "--pool",
    metavar="POLICY",
    help="In a Python program that uses PyTorch on GPUs: this policy in the place of PyTorch's allocator, with its "
    "settings, and cap= and plan= as use_pool takes them.",
)
@click.option("--report", is_flag=True, help="At the program's end, say what was remembered.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    chosen: tuple[str, ...],
    model: Path | None,
    remember: bool,
    plans: tuple[str, ...],
    pool: str | None,
    report: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM with memoir's malloc in place of its own.

    \b
      memoir run -- ./server --port 8000
      memoir run --set stats -- python serve.py
      memoir run --model server.model -- ./server --port 8000
      LD_PRELOAD=$(memoir run --print) ./server
      memoir run --remember --report -- python serve.py
      memoir run --pool memoir,cap=40GiB -- python train.py

    The program replaces this command: its exit status, its signals and its terminal are its own. Programs that it
    starts use the malloc too.
    """
    from memoir.bench.process import launch, proof

    path = launch.resolve(program[0])
    proof.check_executable(path)
    settings = _choices(chosen)
    if model is not None:
        settings["model"] = _checked(model)
    environment = malloc.environment(settings)
    if report and not (remember or plans):
        raise Error("--report says what --remember and --plan did; add one of them")
    if remember or plans or pool:
        environment.update(_for_python(environment, remember, plans, pool, report))
    sys.stdout.flush()
    try:
        os.execve(path, list(program), environment)
    except OSError as error:
        raise Error(f"{program[0]}: cannot be run: {error.strerror}") from None
