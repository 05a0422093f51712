# SPDX-License-Identifier: Apache-2.0
"""`memoir show`: tables and pictures of a trace, a plan or a lifetime profile, told apart by how the file begins."""

from __future__ import annotations

import click

from memoir._core import Error
from memoir.base.kinds import check_is_csv, promise, wrong_kind
from memoir.base.quantities import read_duration
from memoir.cli.parts.problems import PLAN_MAGIC
from memoir.cli.parts.work_limit import limited
from memoir.traces.files import ONLY, is_trace, read_begin


@click.command()
@click.argument("files", type=click.Path(dir_okay=False), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="A page to look into: .html; or a picture: .png, .svg, .pdf.",
)
@click.option(
    "--planner",
    metavar="NAME|all|thesis",
    help="With a plan: show it next to the plan of this planner, or of all.",
)
@click.option(
    "--deadline", type=click.FloatRange(min=0), help="With --planner: seconds for a planner that searches."
)
@click.option(
    "--only",
    type=click.Choice(list(ONLY)),
    help="With a trace: which allocations.  [default: tensors, where it has any]",
)
@click.option("--at", metavar="12.5s", help="With a trace: who held memory then, instead of at the peak.")
@click.option("--all", "everything", is_flag=True, help="With a trace of a program: all its tables.")
@click.option(
    "--all-frames",
    is_flag=True,
    help="With a trace: the innermost frame asked. Without, allocators, standard libraries and interpreters are folded.",
)
@click.option(
    "--against", type=click.Path(dir_okay=False), help="With a model: how it does on this .lifetimes profile."
)
@click.option("--diff", is_flag=True, help="With two traces: what changed, by the names of their stacks.")
@click.option("--follow", is_flag=True, help="With a trace that is still being recorded: a line each second.")
@click.option(
    "--live",
    is_flag=True,
    help="With a trace that is still being recorded: a page that only this machine can open, on a free port.",
)
@click.option("--json", is_flag=True, help="The figures as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the picture.")
@limited
def command(
    files: tuple[str, ...],
    output: str | None,
    planner: str | None,
    deadline: float | None,
    only: str | None,
    at: str | None,
    everything: bool,
    all_frames: bool,
    against: str | None,
    diff: bool,
    follow: bool,
    live: bool,
    json: bool,
    force: bool,
) -> None:
    """Show what FILES hold: a trace, a plan, a lifetime profile, a model, or CSV with offsets; with --diff, two traces.

    Of a program's trace: who never freed how much, who held the peak, who allocated again and again, in three sentences,
    then tables by who asked; with --all every table. Of a trace of tensors: counts, bytes, the load and the largest
    operators. Of a plan: its arena and the
    floor, and as a picture its heap map (address against time). Of a lifetime profile: how long objects lived,
    and which contexts allocate most. Of a model: what it learned from, sites by predicted class, and with --against
    how it does on a profile. A page (.html) is one file that opens without a network: every object to
    zoom into, and who allocated it.
    """
    if diff:
        _show_diff(files, output, json, only, force)
        return
    if len(files) != 1:
        raise Error(f"one file at a time, or two traces with --diff; {len(files)} are named")
    file = files[0]
    if live:
        if output is not None or json or planner is not None:
            raise Error("--live shows a page while a program records: leave -o, --json and --planner out")
        from memoir.cli.parts.show_live import show_live

        show_live(file, ONLY[only or "both"])
        return
    begin = read_begin(file)
    if is_trace(begin):
        if planner is not None:
            raise Error(f"{file} is a trace: memoir plan {file} --planner {planner} makes plans of it")
        if follow:
            from memoir.cli.parts.follow_trace import follow_trace

            follow_trace(file, only=ONLY[only or "both"], json=json)
            return
        from memoir.cli.parts.show_trace import show_trace

        show_trace(
            file,
            output=output,
            json=json,
            force=force,
            only=only,
            at=_moment(at),
            everything=everything,
            all_frames=all_frames,
        )
        return
    if follow or at is not None or only is not None or everything or all_frames:
        if promise(file) == "a trace":
            raise wrong_kind(file, begin, "not a trace")
        raise Error(f"{file} is not a trace: --only, --at, --all, --all-frames and --follow work on traces")
    if begin.startswith(b"\x89memoirM"):
        if planner is not None:
            raise Error(f"{file} is a model: only traces and problems can be planned")
        from memoir.cli.parts.show_model import show_model

        show_model(file, profile=against, output=output, json=json, force=force)
        return
    if against is not None:
        raise Error(f"{file} is not a model: --against compares a model with a profile")
    if begin.startswith(b"\x89memoirL"):
        if planner is not None:
            raise Error(f"{file} is a lifetime profile: only traces and problems can be planned")
        from memoir.cli.parts.show_lifetimes import show_lifetimes

        show_lifetimes(file, output=output, json=json, force=force)
        return
    is_plan = begin.startswith(PLAN_MAGIC)
    if not is_plan:
        check_is_csv(file, begin, "neither a trace, nor a plan, nor a lifetime profile, nor a model, nor CSV")
    from memoir.cli.parts.show_plan import show_plan

    show_plan(
        file,
        is_plan=is_plan,
        output=output,
        planner=planner,
        deadline=deadline,
        json=json,
        force=force,
    )


def _moment(text: str | None) -> int | None:
    if text is None:
        return None
    at = read_duration(text)
    if at is None:
        raise Error(f"--at {text}: not a time such as 12.5s, 300ms or 2min")
    return at


def _show_diff(files: tuple[str, ...], output: str | None, json: bool, only: str | None, force: bool) -> None:
    if len(files) != 2:
        raise Error(f"--diff compares two traces; {len(files)} {'is' if len(files) == 1 else 'are'} named")
    for file in files:
        if not is_trace(read_begin(file)):
            raise wrong_kind(file, read_begin(file), "not a trace, and --diff compares two")
    from memoir.cli.parts.show_trace import show_diff

    show_diff(*files, output=output, json=json, only=only, force=force)
