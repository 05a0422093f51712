# SPDX-License-Identifier: Apache-2.0
"""memoir completion: what a shell runs so that Tab completes memoir's verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes Tab complete memoir's verbs and options.

    \b
      eval "$(memoir completion bash)"        in ~/.bashrc
      eval "$(memoir completion zsh)"         in ~/.zshrc
      memoir completion fish > ~/.config/fish/completions/memoir.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(click.Group("memoir"), {}, "memoir", "_MEMOIR_COMPLETE").source())
