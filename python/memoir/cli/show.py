# SPDX-License-Identifier: Apache-2.0
"""`memoir show`: tables and pictures of a trace, a plan or a lifetime profile, told apart by how the file begins."""

from __future__ import annotations

import click

from memoir._core import Error
from memoir.cli._problems import PLAN_MAGIC
from memoir.traces.files import is_trace, read_begin


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A picture: .png, .svg or .pdf.")
@click.option("--planner", metavar="NAME|all", help="Of a plan: beside that of this planner, or all.")
@click.option(
    "--deadline", type=click.FloatRange(min=0), help="With --planner: seconds for one that searches on."
)
@click.option("--json", is_flag=True, help="The figures as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the picture.")
def command(
    file: str, output: str | None, planner: str | None, deadline: float | None, json: bool, force: bool
) -> None:
    """Show what FILE holds: a trace, a plan, a lifetime profile, or CSV with an offset column.

    Of a trace: counts, bytes, the load and the largest operators. Of a plan: its arena beside the floor, and
    as a picture its heap map (address against time). Of a lifetime profile: how long objects lived, and which contexts
    allocate most.
    """
    begin = read_begin(file)
    if is_trace(begin):
        if planner is not None:
            raise Error(f"{file} is a trace: memoir plan {file} --planner {planner} makes plans of it")
        from memoir.cli._show_trace import show_trace

        show_trace(file, output=output, json=json, force=force)
        return
    if begin.startswith(b"\x89memoirL"):
        if planner is not None or output is not None:
            raise Error(f"{file} is a lifetime profile: there is no plan or picture of it")
        from memoir.cli._show_lifetimes import show_lifetimes

        show_lifetimes(file, json=json)
        return
    is_plan = begin.startswith(PLAN_MAGIC)
    if not is_plan and (b"\0" in begin[:8] or begin[:1] == b"\x89"):
        raise Error(f"{file} is neither a trace, nor a plan, nor a lifetime profile, nor CSV")
    from memoir.cli._show_plan import show_plan

    show_plan(
        file,
        is_plan=is_plan,
        output=output,
        planner=planner,
        deadline=deadline,
        json=json,
        force=force,
    )
