# SPDX-License-Identifier: Apache-2.0
"""memoir bench: allocators against each other, with intervals."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from memoir._core import Error
from memoir.base.files import Record
from memoir.base.quantities import printable
from memoir.base.work_budget import allow, within_budget
from memoir.bench import (
    Grid,
    Metric,
    Options,
    Program,
    analysis,
    journal,
    reading,
    shown_commands,
    suite,
    trust,
)
from memoir.bench.experiment import Experiment, from_header
from memoir.bench.grid import PERCENTILES, placeholders
from memoir.bench.loop import run_all
from memoir.bench.process import allocators
from memoir.bench.recording import Recording, check_output, give_up, output_folder
from memoir.bench.rows import compile_metric
from memoir.cli.parts import bench_arguments as arguments
from memoir.cli.parts.arguments import Whole
from memoir.cli.parts.sections import SectionedCommand, section

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
        separated = "--" in args
        if separated:
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
        try:
            return super().parse_args(ctx, list(spread))
        except click.UsageError:
            if not separated:
                self._look_for_command(spread)
            raise

    def _look_for_command(self, args: list[str]) -> None:
        """Raises memoir.Error where the words look like a command whose `--` was forgotten."""
        valued = frozenset(
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag and option.flag_value is None
            for name in option.opts
        )
        at = arguments.forgotten_separator(args, valued)
        if at is not None:
            line = shlex.join(["memoir", "bench", *args[:at], "--", *args[at:]])
            raise Error(f"the command to measure comes after --: {printable(line)}")


@click.command(cls=_Command, options_metavar="[OPTIONS]")
@click.argument("allocator_list", metavar="[ALLOCATORS]", required=False)
@running(
    "--suite",
    "suite_names",
    is_flag=False,
    flag_value="programs",
    metavar="[NAMES]",
    help="Workloads instead of a command: programs (default), real, servers, or names of single ones.",
)
@running("--smoke", is_flag=True, help="A hundredth of the suite's work: does everything run?")
@running("--threads", metavar="LIST", help="Thread counts, as {threads} and OMP_NUM_THREADS.  [1]")
@running("--load", metavar="LIST", help="Work per thread, as {load}; {work} is threads x load.  [1]")
@running("--param", multiple=True, metavar="NAME=A,B", help="A further axis, as {NAME} and MEMOIR_NAME.")
@running("--server", metavar="COMMAND", help="A server to measure, with {port}; --client drives it.")
@running("--client", metavar="COMMAND", help="Puts the server under load; not measured itself.")
@running("--ready", metavar="COMMAND", help="Succeeds once the server can be used.  [its port answers]")
@running("--stop", metavar="COMMAND", help="Ends the server.  [SIGTERM]")
@running(
    "--settle",
    metavar="TIME",
    default="0s",
    help="Let the server idle for this long before it is stopped.  [0s]",
)
@repeating("-n", "--replicates", type=Whole(), help="Measured runs of every cell.  [10]")
@repeating(
    "--warmup", type=Whole(), default=1, show_default=True, help="Unmeasured runs of every cell before."
)
@repeating("--seed", type=Whole(), help="Seed of every random choice.  [drawn, and recorded]")
@repeating(
    "--sessions",
    metavar="N[,TIME]",
    default="1",
    show_default=True,
    help="Run the whole bench this many times, TIME (0s) apart; intervals are then over sessions.",
)
@repeating(
    "--pin",
    is_flag=False,
    flag_value="auto",
    metavar="[CORES]",
    help="Pin runs to cores such as 0,2-3; without a list: to as many cores as threads.",
)
@repeating("--timeout", metavar="TIME", help="A run that takes longer is stopped and counts as failed.")
@repeating(
    "--exit-code",
    type=click.IntRange(0, 255),
    default=0,
    show_default=True,
    help="Exit code of a successful run.",
)
@repeating("--prepare", metavar="COMMAND", help="Shell command before every run, not measured.")
@judging(
    "--metric",
    multiple=True,
    metavar="PATTERN",
    help="A number that the program prints: 'ops: ([0-9.]+)' or '(?P<ops>[0-9.]+) ops'.",
)
@judging("--lower-metric", multiple=True, metavar="PATTERN", help="A --metric of which less is better.")
@judging(
    "--histogram", metavar="FILE", help="Latencies that the client writes, VALUE COUNT: p50, p90, p99, p999."
)
@judging(
    "--memory",
    is_flag=True,
    help="Sample memory over time: resident, shared out, huge, lazily freed, swapped.",
)
@repeating(
    "--until",
    metavar="PERCENT[,TIME]",
    help="Add replicates until every interval is within this much of its ratio; after TIME (10m) it gives up.",
)
@judging("--baseline", metavar="NAME", help="What ratios are against.  [the first allocator]")
@judging("--confidence", metavar="PERCENT", default="95%", show_default=True)
@judging("--same", metavar="PERCENT", default="2%", show_default=True, help="What still counts as the same.")
@keeping(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where runs.jsonl, results.json, results.csv, report.html and pictures go.  [memoir-bench]",
)
@keeping("-f", "--force", is_flag=True, help="Overwrite a bench that is already there.")
@keeping(
    "--resume", type=click.Path(path_type=Path), metavar="FOLDER", help="Continue a bench that was stopped."
)
@keeping(
    "--yes",
    is_flag=True,
    help="With --resume: run the folder's commands even if another user made it. With --from: go on where the files ask "
    "for much more time or memory than files of their size do.",
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
    memoir bench system,memoir,jemalloc --threads 1,2,4 -n 30 -- ./server --workers {threads}
    memoir bench --suite                       the built-in workloads over all that is installed
    memoir bench --from a.csv b.csv            the same statistics for old measurements

    ALLOCATORS: system, memoir, jemalloc, tcmalloc, mimalloc, hoard, mesh, rpmalloc, snmalloc, or name=path.so,
    each with variables of its own: je1m=jemalloc,MALLOC_CONF=oversize_threshold:1048576
    """
    from memoir.cli.parts import bench_report as report

    words = ctx.meta.get(_SEPARATE, [])
    judge: Record = {"baseline": given["baseline"]}
    judge["confidence"] = arguments.percent("--confidence", given["confidence"])
    judge["same"] = arguments.percent("--same", given["same"])
    if given["sources"]:
        _read_old(given, words, judge)
        return
    experiment, folder = _set_up(given, words)
    _check_baseline(given["baseline"], experiment)
    experiment.look()
    recording = _recording(given, experiment, folder)
    result = recording.result

    def narrow(width: float) -> bool:
        return analysis.widest(result, **judge) <= width

    progress = report.Progress(experiment, result, judge)
    stopped = False
    try:
        with recording:
            _prove(experiment, recording, report.say)
            with progress:
                run_all(experiment, recording, narrow, progress.on_run)
    except KeyboardInterrupt:
        stopped = True
    if result.rows:
        report.present(result, judge, folder, given["pictures"], given["as_json"])
    if stopped:
        report.say(f"stopped; what was done is kept. Go on: memoir bench --resume {shown(folder)}")
        sys.exit(130)
    if not any(row["status"] == "ok" for row in result.rows):
        report.say("memoir: no run succeeded")
        sys.exit(1)


def _read_old(given: Record, words: list[str], judge: Record) -> None:
    if words or given["allocator_list"] or given["suite_names"] or given["resume"] or given["server"]:
        raise Error("--from runs nothing: leave out allocators, command, --suite, --server and --resume")
    with within_budget(map(reading.file_of, given["sources"]), lifted=given["yes"]):
        _present_old(given, judge)


def _present_old(given: Record, judge: Record) -> None:
    from memoir.cli.parts import bench_report as report

    result, folder = reading.read(given["sources"]), given["output"]
    aside: list[str] = []
    if folder is not None:
        if any(folder.resolve() in (path.resolve(), path.resolve().parent) for path in given["sources"]):
            raise Error(f"-o {folder} is where --from reads; choose another folder")
        aside = output_folder(folder, given["force"])
    if given["pictures"]:
        allow(seconds=20, memory=256 << 20)
    report.present(result, judge, folder, given["pictures"], given["as_json"])
    if folder is not None:
        give_up(folder, aside)


def _prove(experiment: Experiment, recording: Recording, say: Callable[[str], None]) -> None:
    """Proves the allocators; a bench that cannot begin leaves nothing behind."""
    try:
        experiment.prove(lambda line: say(printable(line)))
    except Error:
        recording.discard()
        raise
    recording.change_header(recording.result.header | {"proofs": experiment.proof_records()})


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
        with within_budget([folder / journal.NAME], lifted=given["yes"]):
            header, _ = journal.read(folder / journal.NAME)
            if "made_by" in header:
                raise Error(
                    f"--resume {folder}: {header['made_by']} made this bench; go on with its --resume"
                )
            try:
                experiment = from_header(header)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Error(f"{folder / journal.NAME}:1: the header is damaged ({error!r})") from None
        if words or given["allocator_list"] or given["suite_names"] or given["server"]:
            _check_same(folder, header, _experiment(given, words).header())
        if given["replicates"] is not None:
            experiment.options = Options(**{**vars(experiment.options), "replicates": given["replicates"]})
        _ask(folder, header, experiment, given["yes"])
        return experiment, folder
    experiment = _experiment(given, words)
    check_output(folder, given["force"])
    return experiment, folder


def _ask(folder: Path, header: Record, experiment: Experiment, yes: bool) -> None:
    """Shows all that a folder which this user did not make would run, and asks. Raises memoir.Error unless told to go on."""
    if yes or trust.is_ours(header, folder):
        return
    foreign = "was not made by this user in this folder, or its commands were changed"
    try:
        with within_budget([folder / journal.NAME]):
            lines = shown_commands.commands(experiment.grid, experiment.options)
    except Error as error:
        raise Error(
            f"--resume {shown(folder)}: it {foreign}, and {error}. Nothing was run; --yes runs it unseen"
        ) from None
    number = f"these {len(lines):,} commands" if len(lines) > 1 else "this command"
    click.echo(f"{shown(folder)} {foreign}. In {printable(os.getcwd())} it would run {number}:", err=True)
    for line in lines:
        click.echo(f"  {line}", err=True)
    if not sys.stdin.isatty():
        raise Error(
            f"--resume {shown(folder)}: there is no terminal to ask on; add --yes to run these commands"
        )
    if not click.confirm("Run them?", default=False, err=True):
        raise Error(f"--resume {shown(folder)}: not run")


def _experiment(given: Record, words: list[str]) -> Experiment:
    names = given["suite_names"]
    _check_what_runs(given, words)
    metrics = tuple(_metric(pattern, True) for pattern in given["metric"])
    metrics += tuple(_metric(pattern, False) for pattern in given["lower_metric"])
    if names:
        programs = suite.programs(names, given["smoke"])
        for line in suite.missing(names):
            click.echo(f"note: left out: {line}", err=True)
        programs = tuple(replace(program, metrics=(*program.metrics, *metrics)) for program in programs)
    elif given["server"]:
        programs = (_server(given, metrics),)
    else:
        programs = (Program(Path(words[0]).name, tuple(words), metrics=metrics),)
    threads = given["threads"]
    servers = all(program.client for program in programs)
    counts = (
        arguments.numbers("--threads", threads)
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
        loads=arguments.numbers("--load", given["load"] or "1"),
        parameters=tuple(arguments.axis(text) for text in given["param"]),
        threads_given=threads is not None,
        extra_placeholders=("port",) if names or given["server"] else (),
    )
    _check_placeholders(given, grid)
    width, _, most = (given["until"] or "").partition(",")
    until = None if given["until"] is None else arguments.percent("--until", width)
    sessions, _, pause = given["sessions"].partition(",")
    default = 6 if until is not None else 10
    options = Options(
        replicates=default if given["replicates"] is None else given["replicates"],
        warmup=given["warmup"],
        seed=given["seed"],
        sessions=arguments.numbers("--sessions", sessions)[0],
        pause=arguments.seconds("--sessions", pause or "0s"),
        pin=given["pin"],
        timeout=None if given["timeout"] is None else arguments.seconds("--timeout", given["timeout"]),
        exit_code=given["exit_code"],
        prepare=given["prepare"],
        until=until,
        budget=arguments.seconds("--until", most or "10m"),
        memory=given["memory"],
    )
    return Experiment(grid, options)


def _check_what_runs(given: Record, words: list[str]) -> None:
    names, server = given["suite_names"], given["server"]
    if names and words:
        raise Error("--suite brings its own programs: leave out the command")
    if server and (names or words):
        raise Error("--server is the command to measure: leave out the other one, and --suite")
    if not names and not words and not server:
        raise Error("no command to measure: write it after --, or use --suite or --server")
    if given["smoke"] and not names:
        raise Error("--smoke is for --suite")
    if server and not given["client"]:
        raise Error("--server needs a --client that puts it under load")
    for name in ("client", "ready", "stop", "histogram"):
        if given[name] and not server:
            raise Error(f"--{name} is for --server")


def _server(given: Record, metrics: tuple[Metric, ...]) -> Program:
    def split(name: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(given[name] or ""))
        except ValueError as error:
            raise Error(f"--{name} {given[name]}: {error}") from None

    command = split("server")
    if not command or not split("client"):
        raise Error("--server and --client need a command each")
    if given["histogram"]:
        metrics += tuple(Metric(name, "", False) for name in PERCENTILES)
    settle = arguments.seconds("--settle", given["settle"])
    return Program(
        Path(command[0]).name,
        command,
        split("client"),
        metrics,
        server=True,
        ready=split("ready"),
        stop=split("stop"),
        histogram=given["histogram"] or "",
        settle=settle,
    )


def _check_placeholders(given: Record, grid: Grid) -> None:
    """An axis that nothing in the command takes would measure the same thing again and again."""
    text = " ".join(word for program in grid.programs for word in program.words) + (given["prepare"] or "")
    axes: dict[str, tuple[str, ...]] = {name: (name,) for name, _ in grid.parameters}
    if given["load"] is not None and len(grid.loads) > 1:
        axes["load"] = ("load", "work")
    for axis, names in axes.items():
        used = placeholders([text])
        if not any(name in used or f"MEMOIR_{name.upper()}" in text for name in names):
            option = "--load" if axis == "load" else f"--param {axis}"
            raise Error(
                f"{option}: nothing in the command takes it; write {{{axis}}} where it belongs (a script that reads "
                f"$MEMOIR_{axis.upper()}: `env MEMOIR_{axis.upper()}={{{axis}}} SCRIPT`)"
            )


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


def shown(path: Path) -> str:
    return printable(str(path))
