# SPDX-License-Identifier: Apache-2.0
"""memoir bench: allocators against each other, with intervals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.bench import (
    Grid,
    Metric,
    Options,
    Program,
    allocators,
    analysis,
    journal,
    results,
    suite,
)
from memoir.bench.experiment import Experiment, compile_metric, from_header, run_all
from memoir.bench.journal import Record
from memoir.bench.recording import Recording, check_output, output_folder
from memoir.bench.statistics import METHODS
from memoir.cli._sections import SectionedCommand, section

_SEPARATE = "memoir.bench.command"

running = section("What runs")
repeating = section("How often and how")
judging = section("What is measured and compared")
keeping = section("Results")


class _Command(SectionedCommand):
    """Keeps what follows `--` as the program's own words, and lets --from take several files."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[_SEPARATE] = args[:at], args[at + 1 :]
        spread: list[str] = []
        taking = False
        for arg in args:
            if arg == "--from":
                taking = True
            elif taking and not arg.startswith("-"):
                spread += ["--from", arg]
            else:
                taking = False
                spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command(cls=_Command, options_metavar="[OPTIONS]")
@click.argument("allocator_list", metavar="[ALLOCATORS]", required=False)
@running(
    "--suite",
    "suite_names",
    is_flag=False,
    flag_value="programs",
    metavar="[NAMES]",
    help="Built-in workloads instead of a command: programs (default), servers, or names of single ones.",
)
@running("--smoke", is_flag=True, help="A hundredth of the suite's work: does everything run?")
@running("--threads", metavar="LIST", help="Thread counts, as {threads} and OMP_NUM_THREADS.  [1]")
@running(
    "--load", metavar="LIST", default="1", help="Work per thread, as {load}; {work} is threads x load.  [1]"
)
@running("--param", multiple=True, metavar="NAME=A,B", help="A further axis, as {NAME} and MEMOIR_NAME.")
@repeating("-n", "--replicates", type=int, help="Measured runs of every cell.  [10]")
@repeating("--warmup", type=int, default=1, show_default=True, help="Unmeasured runs of every cell before.")
@repeating(
    "--seed", type=int, default=1, show_default=True, help="Of the random order within each replicate."
)
@repeating(
    "--pin",
    is_flag=False,
    flag_value="auto",
    metavar="[CORES]",
    help="Pin runs to cores such as 0,2-3; alone: to as many as threads.",
)
@repeating("--timeout", metavar="TIME", help="A run that takes longer is stopped and counts as failed.")
@repeating(
    "--exit-code", type=int, default=0, show_default=True, help="What the program ends with when it is well."
)
@repeating("--prepare", metavar="COMMAND", help="Shell command before every run, not measured.")
@judging(
    "--metric",
    multiple=True,
    metavar="PATTERN",
    help="A number that the program prints: 'ops: ([0-9.]+)' or '(?P<ops>[0-9.]+) ops'.",
)
@judging("--lower", is_flag=True, help="Less of the metric is better.")
@repeating(
    "--until", metavar="PERCENT", help="Add replicates until every interval is within so much of its ratio."
)
@repeating("--budget", metavar="TIME", default="10m", show_default=True, help="When --until gives up.")
@judging("--baseline", metavar="NAME", help="What ratios are against.  [the first allocator]")
@judging(
    "--method",
    type=click.Choice(METHODS),
    default="paired_t",
    show_default=True,
    help="How intervals are made.",
)
@judging("--confidence", metavar="PERCENT", default="95%", show_default=True)
@keeping(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where runs.jsonl, results.json, results.csv, report.html and pictures go.  [memoir-bench]",
)
@keeping("-f", "--force", is_flag=True, help="Start again where a bench is already.")
@keeping(
    "--resume", type=click.Path(path_type=Path), metavar="FOLDER", help="Go on with a bench that was stopped."
)
@keeping(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILES",
    help="Run nothing: read results, or CSVs with malloc,Threads,Work,Load,Replicate,Time.",
)
@keeping("--pictures/--no-pictures", default=True, help="Draw pictures and the HTML page (needs matplotlib).")
@keeping("--json", "as_json", is_flag=True, help="The results as JSON on standard output.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Measure COMMAND under each allocator and say what differs, with intervals.

    \b
    memoir bench system,jemalloc,mimalloc --threads 1,2,4 -n 30 -- ./server --workers {threads}
    memoir bench --suite                       the built-in workloads over all that is installed
    memoir bench --from a.csv b.csv            the same statistics for old measurements

    ALLOCATORS: system, jemalloc, tcmalloc, mimalloc, hoard, mesh, rpmalloc, snmalloc, or name=path.so, each
    with variables of its own: je1m=jemalloc,MALLOC_CONF=oversize_threshold:1048576
    """
    from memoir.cli import _bench_report as report

    words = ctx.meta.get(_SEPARATE, [])
    confidence = _percent("--confidence", given["confidence"])
    judge = {"baseline": given["baseline"], "method": given["method"], "confidence": confidence}
    if given["sources"]:
        if words or given["allocator_list"] or given["suite_names"] or given["resume"]:
            raise Error("--from runs nothing: leave out allocators, command, --suite and --resume")
        result, folder = results.read(given["sources"]), given["output"]
        if folder is not None:
            if any(folder.resolve() in (path.resolve(), path.resolve().parent) for path in given["sources"]):
                raise Error(f"-o {folder} is where --from reads; choose another folder")
            output_folder(folder, given["force"])
        report.present(result, judge, folder, given["pictures"], given["as_json"])
        return
    experiment, folder = _set_up(given, words)
    _check_baseline(given["baseline"], experiment)
    experiment.check(report.say)
    recording = _recording(given, experiment, folder)
    result = recording.result

    def narrow(width: float) -> bool:
        return analysis.widest(result, **judge) <= width

    progress = report.Progress(experiment, result.header, len(result.rows), judge)
    stopped = False
    try:
        with recording, progress:
            run_all(experiment, recording, narrow, progress.on_run)
    except KeyboardInterrupt:
        stopped = True
    if result.rows:
        report.present(result, judge, folder, given["pictures"], given["as_json"])
    if stopped:
        report.say(f"stopped; what was done is kept. Go on: memoir bench --resume {folder}")
        sys.exit(130)


def _recording(given: Record, experiment: Experiment, folder: Path) -> Recording:
    """Where the runs go: a new folder, or the one to go on with."""
    if not given["resume"]:
        return Recording.begin(experiment.header(), folder, given["force"], experiment.notes)
    recording = Recording.resume(folder, experiment.notes)
    before = recording.result.header["versions"]
    for name, version in experiment.header()["versions"].items():
        if before.get(name) != version:
            experiment.notes.append(f"{name} was {before.get(name)} at the start, is {version} now")
    return recording


def _set_up(given: Record, words: list[str]) -> tuple[Experiment, Path]:
    """The experiment and its folder."""
    folder = given["resume"] or given["output"] or Path("memoir-bench")
    if given["resume"]:
        if not (folder / journal.NAME).is_file():
            raise Error(f"--resume {folder}: no {journal.NAME} in it")
        header, _ = journal.read(folder / journal.NAME)
        if "made_by" in header:
            raise Error(f"--resume {folder}: {header['made_by']} made this bench; go on with its --resume")
        try:
            experiment = from_header(header)
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"{folder / journal.NAME}:1: the header is damaged ({error!r})") from None
        if words or given["allocator_list"] or given["suite_names"]:
            _check_same(folder, header, _experiment(given, words).header())
        if given["replicates"] is not None:
            experiment.options = Options(**{**vars(experiment.options), "replicates": given["replicates"]})
        return experiment, folder
    experiment = _experiment(given, words)
    check_output(folder, given["force"])
    return experiment, folder


def _experiment(given: Record, words: list[str]) -> Experiment:
    names = given["suite_names"]
    if names and words:
        raise Error("--suite brings its own programs: leave out the command")
    if not names and not words:
        raise Error("no command to measure: write it after --, or use --suite")
    if given["smoke"] and not names:
        raise Error("--smoke is for --suite")
    metrics = tuple(_metric(pattern, not given["lower"]) for pattern in given["metric"])
    if names:
        programs = suite.programs(names, given["smoke"])
        programs = tuple(Program(p.name, p.command, p.client, (*p.metrics, *metrics)) for p in programs)
    else:
        programs = (Program(Path(words[0]).name, tuple(words), metrics=metrics),)
    threads = given["threads"]
    servers = names and all(program.client for program in programs)
    counts = (
        _numbers("--threads", threads)
        if threads
        else suite.default_threads()
        if names and not servers
        else (1,)
    )
    listed = given["allocator_list"] or ",".join(
        name for name in allocators.NAMES if name == allocators.SYSTEM or allocators.find(name)
    )
    if not names and not given["allocator_list"]:
        raise Error(
            "no allocators named: write them before the options, as in `memoir bench system,jemalloc -- CMD`"
        )
    grid = Grid(
        programs=programs,
        allocators=tuple(allocators.parse(listed)),
        threads=counts,
        loads=_numbers("--load", given["load"]),
        parameters=tuple(_axis(text) for text in given["param"]),
        threads_given=threads is not None,
        extra_placeholders=("port",) if names else (),
    )
    until = None if given["until"] is None else _percent("--until", given["until"])
    default = 6 if until is not None else 10
    options = Options(
        replicates=default if given["replicates"] is None else given["replicates"],
        warmup=given["warmup"],
        seed=given["seed"],
        pin=given["pin"],
        timeout=None if given["timeout"] is None else _seconds("--timeout", given["timeout"]),
        exit_code=given["exit_code"],
        prepare=given["prepare"],
        until=until,
        budget=_seconds("--budget", given["budget"]),
    )
    return Experiment(grid, options)


def _check_same(folder: Path, before: Record, now: Record) -> None:
    for name, value in now["grid"].items():
        kept = before["grid"].get(name)
        if json.loads(json.dumps(value)) != kept:
            raise Error(
                f"--resume {folder}: that bench has other {name}; leave them out to go on with its own"
            )


def _check_baseline(baseline: str | None, experiment: Experiment) -> None:
    names = [allocator.name for allocator in experiment.grid.allocators]
    if baseline is not None and baseline not in names:
        raise Error(f"--baseline {baseline}: not among {', '.join(names)}")


def _metric(pattern: str, higher: bool) -> Metric:
    named = list(compile_metric(pattern).groupindex)
    return Metric(named[0] if named else "metric", pattern, higher)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise Error(f"{option} {text}: use whole numbers separated by commas, such as 1,2,4") from None


def _axis(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise Error(f"--param {text}: write it as NAME=A,B,C")
    return name, tuple(values.split(","))


def _percent(option: str, text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)\s*(%?)", text)
    if match is None or match.group(1).count(".") > 1 or match.group(1) == ".":
        raise Error(f"{option} {text}: write it as 2% or 0.02")
    value = float(match.group(1)) / (100 if match.group(2) else 1)
    if not 0 < value < 1:
        raise Error(f"{option} {text}: must be between 0% and 100%")
    return value


def _seconds(option: str, text: str) -> float:
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:([0-9]+\.?[0-9]*)s?)?", text)
    if not text or not match or not any(match.groups()):
        raise Error(f"{option} {text}: write it as 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds
