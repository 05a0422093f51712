# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per verb, imported only when that verb is called."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import os
import sys
import traceback

import click

from memoir import __version__

# Of every verb; docs/reference/exit-codes.md has the table. 1 is a verb's own "no", and no error ever ends with it.
BAD_INPUT, UNFORESEEN, INTERRUPTED, NO_READER = 2, 70, 130, 141

# verb -> what it does; the command is `command` in memoir/cli/<verb>.py
VERBS = {
    "record": "Record what a program allocates into a trace.",
    "symbolize": "Find names for the stacks of native traces, and store them there.",
    "plan": "Give every buffer of a trace or a CSV problem its offset.",
    "import": "Make a trace of a PyTorch memory snapshot, or of a log of RMM.",
    "export": "Write a trace or a lifetime profile in another tool's format.",
    "attach": "Sample or record a running process.",
    "train": "Learn how long objects live, from lifetime profiles.",
    "merge": "Merge the lifetime profiles of several runs.",
    "run": "Run a program with memoir's malloc.",
    "top": "Show what memoir's malloc holds in a running program.",
    "simulate": "Run the same allocators on a trace: what-if, caps, no hardware needed.",
    "oom": "Say why a program ran out of memory, and which settings would have survived.",
    "show": "Show a trace, a plan, a lifetime profile or a model: tables, pictures, pages.",
    "bench": "Compare allocators, with intervals.",
    "doctor": "Say what this machine offers: allocators, huge pages, cores, counters.",
    "diff": "Say what changed between two results.",
    "completion": "Print the script that makes Tab complete verbs and options.",
}


# What -h shows of the verbs whose --help is longer than a screen.
_COMMON = {
    "record": ("output", "lifetimes", "only", "page"),
    "plan": ("output", "capacity", "planner", "deadline", "json"),
    "export": ("to", "output", "only"),
    "train": ("output", "page", "private"),
    "run": ("set", "model", "remember", "pool"),
    "simulate": ("policy", "cap", "find-cap", "what-if", "output", "json"),
    "oom": ("asked", "cap", "policy", "output", "json"),
    "show": ("output", "only", "at", "all", "json"),
    "bench": ("suite", "threads", "replicates", "baseline", "memory", "output", "json"),
}


def _with_short_help(command: click.Command, common: tuple[str, ...] | None) -> click.Command:
    """`-h` is one screen, `--help` is all; None: that is one screen."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    if any("-h" in option.opts for option in options):
        return command
    shown = [option for option in options if any(f"--{name}" in option.opts for name in common or ())]

    def say(context: click.Context, _: click.Parameter, given: bool) -> None:
        if not given or context.resilient_parsing:
            return
        if common is None:
            click.echo(context.get_help())
            context.exit()
        out = context.make_formatter()
        out.write(command.get_usage(context) + "\n\n")
        first = (command.help or "").split("\n\n")[0].replace("\b", "")
        text = " ".join(first.split())
        out.write(click.formatting.wrap_text(text, out.width, "  ", "  ") + "\n")
        with out.section("Options"):
            out.write_dl([record for option in shown if (record := option.get_help_record(context))])
        more = sum(not option.hidden for option in options) - len(shown)
        out.write(f"\n{context.command_path} --help shows {more} more, and all that there is to say.\n")
        click.echo(out.getvalue(), nl=False)
        context.exit()

    short = click.Option(
        ["-h"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=say, help="One screen."
    )
    command.params.append(short)
    return command


class _Verbs(click.Group):
    """Lists the verbs without importing them, so that `memoir --help` and every verb start quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"memoir.cli.{name}").command
        return _with_short_help(command, _COMMON.get(name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], VERBS, 1)
            raise click.UsageError(
                f"there is no verb '{args[0]}'" + "".join(f"; did you mean {name}?" for name in close)
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def _group() -> None:
    """Allocators that remember: record a program's allocations once, plan them, run without paying for them again."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and ends the process; what a verb does not foresee has an exit code of its own."""
    _repair_output()
    try:
        try:
            code = _run(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else UNFORESEEN if end.code else 0
            if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
                code = NO_READER  # click saw it first, and ends with 1
        sys.stdout.flush()  # here, where it can be told
    except BrokenPipeError:
        # Whoever read the output has gone; what is still buffered must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NO_READER
    sys.exit(code)


def _repair_output() -> None:
    """What a verb may take for granted: there are streams (as of a daemon, they may have been closed: what is written then
    goes nowhere), and they take every letter."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.close(number)
            # The lowest number that is free: this one, so that no file of ours becomes somebody's standard output.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, "r" if number == 0 else "w"))
        elif number == 1 and isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")


def _run(arguments: list[str] | None) -> int:
    from memoir._core import Error
    from memoir.base.quantities import printable_error

    try:
        code = _group.main(arguments, prog_name="memoir", standalone_mode=False)
    except click.ClickException as error:
        message = printable_error(" ".join(error.format_message().split()))
        context = getattr(error, "ctx", None)
        help_of = context.command_path if context is not None else "memoir"
        click.echo(
            f"memoir: {message.rstrip('.')}{'' if message.endswith('?') else '.'} {help_of} --help says more",
            err=True,
        )
        return BAD_INPUT
    except Error as error:
        click.echo(f"memoir: {printable_error(error)}", err=True)
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        click.echo("memoir: interrupted", err=True)
        return INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        click.echo(f"memoir: {where}{error.strerror or error}", err=True)
        return UNFORESEEN
    except MemoryError:
        click.echo("memoir: not enough memory", err=True)
        return BAD_INPUT
    except Exception as error:
        traceback.print_exc()
        click.echo(
            f"memoir: an error of memoir's own: {type(error).__name__}. Please report the lines above",
            err=True,
        )
        return UNFORESEEN
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
