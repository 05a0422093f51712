# SPDX-License-Identifier: Apache-2.0
"""memoir train: lifetimes of contexts that nobody saw, learned from profiles."""

from __future__ import annotations

import time
from pathlib import Path

import click

from memoir import Error, Lifetimes
from memoir.base.files import write_output
from memoir.base.quantities import quoted
from memoir.base.work_budget import allow
from memoir.cli.parts.arguments import check_output
from memoir.cli.parts.work_limit import limited
from memoir.views.model_text import gain_text


@click.command(name="train")
@click.argument("profiles", type=click.Path(dir_okay=False), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False), default="memoir.model", show_default=True)
@click.option("--page", type=click.Path(dir_okay=False), help="Also write a page of the model: .html.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the files.")
@click.option(
    "--model",
    "kind",
    type=click.Choice(["stages", "lstm", "mingru"]),
    default="stages",
    show_default=True,
    help="stages: no network. lstm, mingru: also a network, trained with torch, that answers where names do not.",
)
@click.option("--private", is_flag=True, help="Hash all names with a random key; the file has no text.")
@click.option(
    "--tau",
    type=click.FloatRange(min=0.5, max=64),
    default=2.0,
    show_default=True,
    help="An object is long-lived when it outlives the allocation of this many times the largest heap.",
)
@click.option(
    "--no-replay",
    is_flag=True,
    help="Do not check whether two classes pay; the model then says that they do.",
)
@limited
def command(
    profiles: tuple[str, ...],
    output: str,
    page: str | None,
    force: bool,
    kind: str,
    private: bool,
    tau: float,
    no_replay: bool,
) -> None:
    """Learn from PROFILES how long the objects of a context live, also where no profile has seen it.

    \b
      memoir record --lifetimes -o a.lifetimes -- ./server
      memoir train a.lifetimes b.lifetimes -o server.model
      memoir run --model server.model -- ./server

    Profiles may be of several builds, versions, runs and machines. They need names, which `memoir record` looks up; for
    others see `memoir symbolize`.
    """
    from memoir.train import train
    from memoir.train.assembly import Settings

    path = Path(output)
    check_output(path, (".model",), force)
    if page is not None:
        check_output(Path(page), (".html",), force)
    begin = time.monotonic()
    read = [Lifetimes.open(name) for name in profiles]
    if not sum(len(profile) for profile in read):
        raise Error("the profiles have no contexts: nothing was sampled")
    if kind != "stages":
        allow(seconds=3600, memory=2 << 30)  # a network takes long for any profile
    done = train(
        read,
        settings=Settings(tau=tau),
        network=None if kind == "stages" else kind,
        private=private,
        replayed=not no_replay,
    )
    write_output(path, done.content, force)
    if page is not None:
        from memoir.cli.parts.show_model import write_model_page

        write_model_page(str(path), Path(page), None, force)
    facts = done.facts
    gain = facts["gain"]
    pays = (
        "two classes were not replayed" if gain is None else f"two classes save {gain_text(gain)} of the heap"
    )
    if done.one_class:
        pays += ", which is not enough: the model says one class"
    click.echo(
        f"memoir: {len(done.content):,} bytes from {facts['contexts']:,} contexts in {time.monotonic() - begin:.1f} s; "
        f"{pays}\nnext: memoir show {quoted(path)}" + f"\nwrote {quoted(page)}" * (page is not None),
        err=True,
    )
