# SPDX-License-Identifier: Apache-2.0
"""`memoir plan`: a trace or a CSV problem in, a plan out. One problem, a sweep over many, or a stream of buffers."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.cli.parts.arguments import Size, Whole, check_output, workers_option
from memoir.cli.parts.plan_options import FITS, NOT_FOUND, PlanOptions, ToleranceOption, seeds_of
from memoir.cli.parts.sections import SectionedCommand, section
from memoir.cli.parts.work_limit import limited
from memoir.planning.planners import PLANNERS, SETS, SHOWN
from memoir.planning.planners.planner import NO_TOLERANCE
from memoir.traces.files import ONLY

searching = section("Search")
# These plan in their own way, and no list has them.
OWN_WAY = ("guided", "stream")


@click.command(
    cls=SectionedCommand,
    epilog="Exit codes: 0 a plan (that fits), 1 proven that none fits, 2 bad input, 3 none found that fits.",
)
@click.argument("inputs", metavar="INPUT...", type=click.Path(dir_okay=False), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="File for the plan: .plan or .csv; for a .tflite model also .tflite.",
)
@click.option(
    "--capacity",
    type=Size(),
    help="Bytes that the arena must fit into (KiB, MiB, GiB); what is idle may be recomputed or offloaded.",
)
@click.option(
    "--alignment",
    type=Size(),
    help="Every offset is a multiple of this, in addition to its own alignment.",
)
@click.option("--device", type=click.IntRange(0, 65535), help="With a trace: plan what was allocated on it.")
@click.option(
    "--only",
    type=click.Choice(list(ONLY)),
    help="With a trace: which allocations are planned.  [default: tensors, where it has any]",
)
@click.option(
    "--dim",
    "dims",
    metavar="NAME=N",
    multiple=True,
    help="With an ONNX model: the size of a dimension that it leaves open.",
)
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@searching(
    "--planner",
    type=click.Choice([*PLANNERS, *SETS, *OWN_WAY]),
    default="auto",
    show_default=True,
    metavar="NAME|all|thesis",
    help=f"One of {', '.join(SHOWN)}; all of these, compared; or the thesis's five (docs/guides/planning.md). "
    "`guided`: the whole run in a trace, for the pool of that name to follow. `stream`: CSV sorted by birth, of any length.",
)
@searching(
    "--deadline",
    type=click.FloatRange(min=0),
    help="Seconds for a planner that searches (auto, exact: 1; mip, cpsat: 10).",
)
@searching(
    "--threads",
    type=Whole(bits=31),
    default=0,
    help="Threads of auto and exact; 0, the default: one per core.",
)
@searching(
    "--seed",
    "seeds",
    metavar="N|1-8",
    default="0",
    help="Seed of the restarts of auto and exact, or several to compare.",
)
@searching(
    "--work-limit",
    type=Whole(),
    default=0,
    help="Placements that auto and exact may try, instead of a deadline: the same plan on any machine.",
)
@searching(
    "--tolerance",
    type=ToleranceOption(),
    default=NO_TOLERANCE,
    help="Stop at a plan this close to the proven bound: bytes (64KiB) or percent (0.5%).",
)
@workers_option()
@limited
def command(**given: Any) -> None:
    """Give every buffer of INPUT its offset in one arena.

    INPUT is a trace, a memory snapshot of PyTorch or a text trace, whose last complete pass is planned; a model or
    a dump of another framework (TFLite, ExecuTorch, ONNX, XLA, ggml, logs: docs/guides/importers.md); or CSV
    with the columns id, lower, upper (exclusive; or end, inclusive), size and perhaps alignment, gaps and more
    that a problem can say (docs/reference/constraints.md). Several inputs or seeds make a sweep over all inputs,
    planners and seeds.
    """
    given["dims"] = _dims(given["dims"])
    given["seeds"] = seeds_of(given["seeds"])
    options = PlanOptions(**given)
    if options.tolerance != NO_TOLERANCE and options.capacity is not None:
        raise Error(
            "--capacity ends the search at the first plan that fits it, --tolerance at the first one close to the bound: "
            "give one of them"
        )
    if options.planner == "guided":
        sys.exit(_guided(options))
    if options.planner == "stream":
        sys.exit(_stream(options))
    if options.is_sweep():
        sys.exit(_sweep(options))
    with _terminated_as_interrupted():
        code = _one(options)
    sys.exit(code)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, as batch systems send it, ends a search as Ctrl-C does: with the best plan so far."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _dims(given: Sequence[str]) -> dict[str, int]:
    dims = {}
    for text in given:
        name, _, extent = text.rpartition("=")
        if not name or not extent.isdecimal() or not 0 < int(extent) < 1 << 32:
            raise Error(f"--dim {text}: give NAME=N, such as batch=1")
        dims[name] = int(extent)
    return dims


def _one(options: PlanOptions) -> int:
    from memoir.cli.parts.plan_one import plan_one

    if options.output is not None:
        check_output(Path(options.output), (".plan", ".csv", ".tflite"), options.force)
    return plan_one(options)


def _sweep(options: PlanOptions) -> int:
    from memoir.cli.parts.plan_sweep import plan_sweep

    if options.output is not None:
        raise Error(f"-o {options.output}: a sweep compares, and writes no plan; plan one input to have it")
    return plan_sweep(options)


def _stream(options: PlanOptions) -> int:
    from memoir.cli.parts.plan_stream import plan_stream

    given = options.alignment is not None or options.device is not None
    if given or options.tolerance != NO_TOLERANCE or options.is_sweep():
        raise Error(
            "the planner stream takes one CSV; of the constraints it takes only alignments in the CSV"
        )
    (path,) = options.inputs
    if options.output is None:
        raise Error("the planner stream writes its plan as it goes: pass -o FILE.csv")
    output = Path(options.output)
    check_output(output, (".csv",), options.force)
    fits = plan_stream(path, output, options.capacity, options.as_json, options.force)
    return FITS if fits else NOT_FOUND


def _guided(options: PlanOptions) -> int:
    from memoir.cli.parts.plan_guided import plan_guided

    if options.capacity is not None or options.tolerance != NO_TOLERANCE or options.is_sweep():
        raise Error(
            "the planner guided takes one trace: of the options --device, --only, --alignment, -o, -f and --json go with it"
        )
    (path,) = options.inputs
    plan_guided(
        path, options.output, options.device, options.alignment, options.as_json, options.force, options.only
    )
    return FITS
